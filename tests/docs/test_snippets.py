"""The Python and C that the documentation prints runs, or compiles, as it is printed; its commands are commands.

test_docs.py runs those in blocks ``console``, with what they print. Others are indented: they take hours, other
machines or files of the reader, so they are parsed here, and run if they take a model alone.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.parser import parse_model

import eqfuse
from eqfuse.cli import main
from eqfuse.cli.parser import build_parser
from eqfuse.docs.examples import PAGES

from ..caches import own_cache

ROOT = Path(__file__).parents[2]
IN_MAKE_TEST = "docs/optimize.md"
"""The page whose snippets compile nothing."""
QUOTES = {"docs/lowering.md": "lowering/compute/layout.py"}
"""Pages that print a part of the program, and where it stands."""


ALL_PAGES = (*PAGES, "rules/README.md", "costmodels/README.md", "CONTRIBUTING.md")
OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
RUN = (
    "eqfuse completion bash", "eqfuse completion zsh", "eqfuse optimize - -o -", "eqfuse optimize model.onnx -o",
    "eqfuse reduce model.onnx", "eqfuse compile model.onnx -o build/",
)  # fmt: skip
"""How indented commands begin that need nothing but a model."""


def indented_commands() -> list[tuple[str, str]]:
    """The page and the text of each command in an indented block, without what a shell does to its output."""
    found = []
    for page in ALL_PAGES:
        text = re.sub(r"\\\n\s+", "", (ROOT / page).read_text(encoding="utf-8"))
        text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        for line in re.findall(r"^    (?:\$ )?(.*(?:eqfuse|python) .*)$", text, re.MULTILINE):
            for part in re.split(r" \| | && | > | &$", line):
                if re.match(r"(eqfuse|python) ", part):
                    found.append((page, shlex.join(shlex.split(part, comments=True))))
    return found


def snippets(language: str) -> list[tuple[str, str]]:
    """The page and the text of every block of a language."""
    texts = {page: (ROOT / page).read_text(encoding="utf-8") for page in (*PAGES, "rules/README.md", "CONTRIBUTING.md")}
    pattern = re.compile(rf"^```{language}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return [(page, block) for page, text in texts.items() for block in pattern.findall(text)]


def _parameter(page: str, text: str) -> Any:
    marks = [] if page == IN_MAKE_TEST else [pytest.mark.conformance]
    return pytest.param(page, text, id=f"{page}: {text.splitlines()[0]}", marks=marks)


def _write_models(folder: Path, page: str) -> np.ndarray:
    """Write what a reader of the page has by then; returns an input of `model.onnx`."""
    sizes = "N,3,H,W" if page == "docs/dynamic-shapes.md" else "1,3,96,96"
    features = f", float[{sizes}] g" if page == "docs/compile.md" else ""  # the demo model has two outputs
    text = f"""
        <ir_version: 8, opset_import: ["" : 17]>
        network (float[{sizes}] image) => (float[{sizes}] logits{features})
        {{ h = Relu(image) g = Relu(h) logits = Sigmoid(g) }}
    """
    onnx.save(parse_model(text), folder / "model.onnx")
    if page == "docs/dynamic-shapes.md":
        eqfuse.compile(folder / "model.onnx", folder / "build", threads=1)
    if page == "docs/compile.md":
        (folder / "models").mkdir()
        eqfuse.compile(folder / "model.onnx", folder / "models/demo.bundle", threads=1)
    return np.random.default_rng(0).standard_normal((1, 3, 96, 96), np.float32)


@pytest.mark.parametrize(("page", "text"), [_parameter(*each) for each in snippets("python") if each[0] not in QUOTES])
def test_python_runs_as_printed(page: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", own_cache(tmp_path / "cache"))
    names = {"image": _write_models(tmp_path, page)}
    exec(compile(text, page, "exec"), names)
    assert set(names) - {"image", "__builtins__"}


@pytest.mark.parametrize(("page", "text"), [each for each in snippets("python") if each[0] in QUOTES])
def test_quoted_parts_of_the_program_are_up_to_date(page: str, text: str) -> None:
    assert text in (ROOT / QUOTES[page]).read_text(encoding="utf-8")


@pytest.mark.parametrize(("page", "command"), [each for each in indented_commands() if each[1].startswith("eqfuse ")])
def test_indented_commands_can_be_parsed(page: str, command: str) -> None:
    assert build_parser().parse_args(shlex.split(command)[1:]).command


@pytest.mark.conformance
@pytest.mark.parametrize(("page", "command"), [each for each in indented_commands() if each[1].startswith(RUN)])
def test_indented_commands_run(page: str, command: str, tmp_path: Path) -> None:
    image = _write_models(tmp_path, page)
    np.savez(tmp_path / "real.npz", image=image)
    (tmp_path / "more_inputs").mkdir()
    np.save(tmp_path / "more_inputs/image.npy", image)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    words = [sys.executable, "-m", *shlex.split(command.replace("eqfuse optimize {}", f"{sys.executable} -c 1 {{}}"))]
    with (tmp_path / "model.onnx").open("rb") as model:
        done = subprocess.run(words, cwd=tmp_path, stdin=model, capture_output=True, env=environment, timeout=600)
    if " reduce " in command:  # nothing fails for this model
        assert (done.returncode, done.stderr.count(b"\n")) == (1, 1), done.stderr
    else:
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("page", "command"), [each for each in indented_commands() if "benchmarks/" in each[1]])
def test_indented_benchmarks_have_these_options(page: str, command: str) -> None:
    script = next(word for word in shlex.split(command) if word.startswith("benchmarks/"))
    assert (ROOT / script).is_file()
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "benchmarks").rglob("*.py"))
    assert [option for option in OPTION.findall(command) if f'"{option}"' not in sources] == []


def inline_commands() -> list[tuple[str, str]]:
    """Each command within a sentence of a page, and what stands behind it."""
    texts = "".join((ROOT / page).read_text(encoding="utf-8") for page in ALL_PAGES)
    return sorted(set(re.findall(r"`eqfuse ((?:rules |device |profile )?[a-z-]+)(?:\|[a-z|]+)?( [^`]*)?`", texts)))


@pytest.mark.parametrize(("command", "options"), inline_commands())
def test_options_within_sentences_exist(command: str, options: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([*command.split(), "--help"])
    assert stop.value.code == 0
    assert set(OPTION.findall(options)) - set(OPTION.findall(capsys.readouterr().out)) == set()


@pytest.mark.conformance
@pytest.mark.parametrize(("page", "text"), [pytest.param(*each, id=each[0]) for each in snippets("c")])
def test_c_compiles_as_printed(page: str, text: str, tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    prefix = "net" if "net_" in text else "eqfuse"
    _write_models(tmp_path, page)
    project = tmp_path / "project"
    made = main(
        ["compile", str(tmp_path / "model.onnx"), "-o", str(project), "-q", "--format", "c", "--prefix", prefix]
    )
    assert made == 0
    header = next(project.rglob(f"{prefix}_model.h"))
    if "#include" not in text:  # statements, which stand in a function of the reader
        text = f'#include "{header.name}"\nvoid snippet(void);\nvoid snippet(void) {{\n{text}}}\n'
    (tmp_path / "snippet.c").write_text(text, encoding="utf-8")
    command = [compiler, "-std=c11", "-fsyntax-only", f"-I{header.parent}", str(tmp_path / "snippet.c")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
