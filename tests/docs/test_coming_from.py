"""The page for users of other tools names all options of theirs; test_snippets.py looks at ours."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs/coming-from.md").read_text(encoding="utf-8")
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


TVMC = {
    "compile": """
        --cross-compiler --cross-compiler-options --desired-layout --desired-layout-ops --dump-code --dump-offloads
        --model-format --output --output-format --pass-config --target --input-shapes --disabled-pass --module-name
        --opt-level --print-pass-times --print-ir-before --print-ir-after --mixed-precision --mixed-precision-ops
        --mixed-precision-calculation-type --mixed-precision-acc-type --workspace-pools --executor --runtime --use-vm
        --config --verbose --version --experimental-tvm-extension --tuning-records
    """,
    "run": """
        --device --fill-mode --inputs --outputs --print-time --print-top --profile --profile-options --end-to-end
        --repeat --number --rpc-key --rpc-tracker --project-dir
    """,
    "tune": """
        --early-stopping --min-repeat-ms --model-format --number --output --parallel --repeat --rpc-key --rpc-tracker
        --target --target-host --timeout --trials --tuning-records --desired-layout --desired-layout-ops
        --enable-autoscheduler --cache-line-bytes --num-cores --vector-unit-bytes --max-shared-memory-per-block
        --max-local-memory-per-block --max-threads-per-block --max-vthread-extent --warp-size --include-simple-tasks
        --log-estimated-latency --tasks --tuner --input-shapes
    """,
}
"""The options in the last sources of TVM that had tvmc (2025-02), of which no package can be installed."""


@pytest.mark.parametrize(("command", "options"), TVMC.items(), ids=TVMC)
def test_each_option_of_tvmc_is_answered(command: str, options: str) -> None:
    assert sorted(set(options.split()) - set(re.findall(r"(?<![\w-])--[a-z][\w-]*", sections()["tvmc"]))) == []


def test_every_row_has_an_answer() -> None:
    rows = [line.strip("|").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
    assert rows
    assert [row for row in rows if len(row) != 2 or not row[1].strip()] == []
