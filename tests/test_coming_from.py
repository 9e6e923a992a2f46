"""The page for users of other tools names options that exist: ours, and all of theirs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from eqfuse.cli import main

PAGE = (Path(__file__).parent.parent / "docs/coming-from.md").read_text(encoding="utf-8")
OURS = sorted(set(re.findall(r"`eqfuse ((?:rules )?[a-z-]+)( [^`]*)?`", PAGE)))
POLYGRAPHY = (
    "run", "convert", "inspect model", "inspect data", "inspect tactics", "inspect capability", "inspect diff-tactics",
    "inspect sparsity", "check lint", "check accuracy", "surgeon extract", "surgeon sanitize", "surgeon insert",
    "surgeon prune", "surgeon weight-strip", "surgeon weight-reconstruct", "template onnx-gs", "debug build",
    "debug precision", "debug reduce", "debug repeat", "data concat", "data merge", "plugin match", "plugin list",
    "plugin replace", "multi-device shard",
)  # fmt: skip
THEIRS = [("onnxsim", ""), ("onnxslim", ""), *(("polygraphy", each) for each in POLYGRAPHY)]


def sections() -> dict[str, str]:
    """The text of each section by its heading."""
    return {part.partition("\n")[0]: part for part in PAGE.split("\n## ")[1:]}


@pytest.mark.parametrize(("command", "options"), OURS, ids=[" ".join(each).strip() for each in OURS])
def test_our_options_exist(command: str, options: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([*command.split(), "--help"])
    assert stop.value.code == 0
    known = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", capsys.readouterr().out))
    assert set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", options)) - known == set()


@pytest.mark.conformance
@pytest.mark.parametrize(("tool", "command"), THEIRS, ids=[" ".join(each).strip() for each in THEIRS])
def test_each_option_of_theirs_is_answered(tool: str, command: str) -> None:
    """With the tool that is installed beside this Python, or on the PATH."""
    program = shutil.which(tool, path=str(Path(sys.executable).parent)) or shutil.which(tool)
    if program is None:
        pytest.skip(f"{tool} is not installed")
    done = subprocess.run([program, *command.split(), "--help"], capture_output=True, text=True)
    heads = re.findall(r"^  (-.*?)(?:  |$)", done.stdout, re.MULTILINE)
    options = {name for head in heads for name in re.findall(r"(?<![\w-])--[a-z][\w-]*", head)} - {"--help"}
    assert options, done.stderr
    named = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", sections()[tool]))
    assert sorted(options - named) == []


def test_every_row_has_an_answer() -> None:
    rows = [line.strip("|").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
    assert rows
    assert [row for row in rows if len(row) != 2 or not row[1].strip()] == []
