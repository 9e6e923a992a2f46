"""docs/writing-rules.md, followed as a reader would: its files are written, its commands run, its output compared."""

from __future__ import annotations

import re
import runpy
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eqfuse.cli import main

ROOT = Path(__file__).parent.parent
GUIDE = ROOT / "docs" / "writing-rules.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    """The contents of the fenced blocks of one language."""
    return [text for name, text in BLOCK.findall(GUIDE.read_text()) if name == language]


def commands() -> Iterator[tuple[str, list[str]]]:
    """Each command and the lines shown below it."""
    for block in blocks("console"):
        for part in block.split("$ ")[1:]:
            command, *shown = part.rstrip().splitlines()
            yield command, shown


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a reader has after the first command and the first rule."""
    place = tmp_path_factory.mktemp("guide")
    shutil.copytree(ROOT / "examples", place / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    (place / "careless.egg").write_text(next(block for block in blocks("egg") if block.startswith("; softmax")))
    runpy.run_path(str(ROOT / "examples/rules/models.py"))["main"](place / "models")
    return place


def squeezed(text: str) -> str:
    return " ".join(text.split())


def run(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    program, *arguments = shlex.split(command)
    if program == "python":
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", arguments)
            runpy.run_path(arguments[0], run_name="__main__")
        return ""
    code = main(arguments)
    output = "".join(capsys.readouterr())
    return f"{output}\nexit code {code}" if code else output


@pytest.mark.representatives(5)
@pytest.mark.parametrize(("command", "shown"), [*commands()], ids=[c for c, _ in commands()])
def test_a_command_prints_what_the_guide_shows(
    command: str, shown: list[str], folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    printed = squeezed(run(command, capsys))
    assert "exit code" not in printed or any("exit code" in line for line in shown)
    for line in shown:
        assert squeezed(line) in printed


def test_the_rules_it_quotes_are_those_of_the_files() -> None:
    files = squeezed("".join(path.read_text() for path in (ROOT / "examples/rules").glob("*.egg")))
    quoted = [squeezed(block) for block in blocks("egg")[1:]]
    assert all(text.removesuffix("...)").rstrip() in files for text in quoted)
