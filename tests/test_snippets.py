"""The Python and C that the documentation prints runs, or compiles, as it is printed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.parser import parse_model

import eqfuse
from eqfuse.cli import main
from eqfuse.docs.examples import PAGES

from .caches import own_cache

ROOT = Path(__file__).parent.parent
IN_MAKE_TEST = "docs/optimize.md"
"""The page whose snippets compile nothing."""
QUOTES = {"docs/lowering.md": "lowering/compute/layout.py"}
"""Pages that print a part of the program, and where it stands."""


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
