"""What lies in the folder that a user stands in is data: no command imports it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .command_line import RECORD, CommandLine

ENTRY_POINT = "import sys\nfrom eqfuse.cli import main\nsys.exit(main())\n"
"""What an installation makes of `[project.scripts]`."""
NAMES = (
    *("pickle", "json", "struct", "subprocess", "threading", "tempfile", "signal", "queue", "egglog", "onnx", "numpy"),
    *("eqfuse/__init__", "numpy/__init__", "tvm/__init__", "multiprocessing/__init__", "sitecustomize"),
)


@pytest.fixture
def entry_point(eqfuse: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The installed command, in another folder than the one where the hostile modules are."""
    for name in NAMES:
        path = eqfuse.folder / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"open({str(eqfuse.folder / 'owned')!r}, 'a').write({name!r} + '\\n')\n")
    script = tmp_path_factory.mktemp("bin") / "eqfuse"
    script.write_text(ENTRY_POINT)
    yield script
    owned = eqfuse.folder / "owned"
    assert not owned.exists(), owned.read_text()


def run(eqfuse: CommandLine, script: Path, *arguments: str) -> str:
    """What a command prints, which must not fail."""
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        cwd=eqfuse.folder, env=eqfuse.environment(), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_optimize(eqfuse: CommandLine, entry_point: Path) -> None:
    eqfuse.small()
    run(eqfuse, entry_point, "optimize", "in.onnx", "out.onnx", "--partition", "ago")


@pytest.mark.conformance
def test_rules_check(eqfuse: CommandLine, entry_point: Path) -> None:
    """It has enough rules that processes are started for them."""
    for number, operator in enumerate(("Abs", "Relu", "Floor", "Ceil")):
        left, right = f"({operator} ({operator} ({operator} a)))", f"({operator} a)"
        record = RECORD.replace("(Add a b) => (Mul a b)", f"{left} => {right}")
        eqfuse.rule(f"own{number}.egg", f'(rewrite {left} {right} :ruleset explore :name "own-{number}")', record)
    files = [f"own{number}.egg" for number in range(4)]
    assert "4 rules" in run(eqfuse, entry_point, "rules", "check", "--fresh", *files)


@pytest.mark.conformance
def test_rules_explain(eqfuse: CommandLine, entry_point: Path) -> None:
    eqfuse.small()
    assert "checked by replay" in run(eqfuse, entry_point, "rules", "explain", "in.onnx", "--output", "second")


@pytest.mark.conformance
def test_compile(eqfuse: CommandLine, entry_point: Path) -> None:
    eqfuse.small()
    run(eqfuse, entry_point, "compile", "in.onnx", "-o", "bundle")
