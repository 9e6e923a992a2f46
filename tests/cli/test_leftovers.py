"""What a command leaves behind, however it ends: its output or nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import eqfuse.cli as command_line

from .command_line import CommandLine


@pytest.fixture
def temporary(eqfuse: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files of commands go."""
    folder = eqfuse.folder / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def left_in(folder: Path) -> list[str]:
    """What eqfuse left there: ONNX Runtime has a hidden file of its own."""
    return [path.name for path in folder.iterdir() if path.name != ".ses"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("optimize", "missing.onnx", "out.onnx"),
        pytest.param(("verify", "missing.onnx", "missing.onnx"), marks=pytest.mark.conformance),
        pytest.param(("bisect", "missing.onnx"), marks=pytest.mark.conformance),
        pytest.param(("compile", "missing.onnx", "-o", "bundle"), marks=pytest.mark.conformance),
        pytest.param(("tune", "missing.onnx", "-o", "bundle"), marks=pytest.mark.conformance),
        pytest.param(("run", "missing"), marks=pytest.mark.conformance),
        pytest.param(("rules", "explain", "missing.onnx"), marks=pytest.mark.conformance),
        pytest.param(("rules", "check", "missing.egg"), marks=pytest.mark.conformance),
    ],
    ids=" ".join,
)
def test_a_missing_file_leaves_nothing(eqfuse: CommandLine, temporary: Path, arguments: tuple[str, ...]) -> None:
    assert eqfuse.spawn(*arguments).code in (1, 4)
    assert left_in(temporary) == []
    assert eqfuse.files() == ["temporary"]


def test_the_temporary_folder_may_have_any_name(eqfuse: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs for egglog name files in it."""
    folder = eqfuse.folder / 'a "quote" \\ and (more)'
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    eqfuse.small()
    outcome = eqfuse.spawn("optimize", "in.onnx", "-q")
    assert (outcome.code, outcome.err) == (0, "")


def compiling(eqfuse: CommandLine) -> subprocess.Popen[str]:
    """A compilation in the midst of its kernels, with enough of them that a signal comes before its end."""
    widths = [4, *range(5, 21), 4]
    names = ["x", *(f"h{i}" for i in range(2 * len(widths) - 3)), "y"]
    nodes = []
    for number in range(len(widths) - 1):
        first, middle, last = names[2 * number : 2 * number + 3]
        nodes.append(helper.make_node("MatMul", [first, f"w{number}"], [middle]))
        nodes.append(helper.make_node("Softmax", [middle], [last]))
    weights = {f"w{i}": np.full(pair, 0.5) for i, pair in enumerate(pairwise(widths))}
    eqfuse.model("in.onnx", nodes, (4, 4), **weights)
    process = subprocess.Popen(
        eqfuse.command("compile", "in.onnx", "-o", "bundle", "-v", "--no-verify"),
        cwd=eqfuse.folder, env=eqfuse.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if line.split()[2] == "compile":
            break
    return process


@pytest.mark.conformance
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_compilation_that_is_stopped_leaves_nothing(
    eqfuse: CommandLine, temporary: Path, number: signal.Signals
) -> None:
    with compiling(eqfuse) as process:
        process.send_signal(number)
        assert process.wait(30) == 128 + number
    assert left_in(temporary) == []
    assert eqfuse.files() == ["in.onnx", "temporary"]


@pytest.mark.conformance
def test_what_a_killed_compilation_left_goes_with_the_next(
    eqfuse: CommandLine, temporary: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    with compiling(eqfuse) as process:
        process.kill()
    assert len(left_in(temporary)) == 1
    (beside,) = eqfuse.folder.glob(".bundle.*")
    for path in (beside, *temporary.iterdir()):
        os.utime(path, (time.time() - 3600,) * 2)
    assert eqfuse.spawn("compile", "in.onnx", "-o", "bundle", "--no-verify").code == 0
    assert left_in(temporary) == []
    assert eqfuse.files() == ["bundle", "in.onnx", "temporary"]


def test_a_signal_that_gets_lost_comes_again(eqfuse: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one does that is raised in a finalizer."""
    monkeypatch.setattr(command_line, "_AGAIN", 0.01)
    with command_line._Interruption() as found:
        with pytest.raises(SystemExit):
            os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(SystemExit):
            time.sleep(60)
    assert found.number == signal.SIGTERM


@pytest.mark.parametrize(
    ("number", "said"), [(signal.SIGTERM, ""), (signal.SIGINT, "eqfuse: interrupted; no file is half written\n")]
)
def test_a_signal_is_no_error_whatever_a_library_makes_of_it(
    eqfuse: CommandLine, monkeypatch: pytest.MonkeyPatch, number: int, said: str
) -> None:
    """A compiled module that is being imported raises an ImportError in its place."""

    def interrupted(_: object) -> int:
        try:
            os.kill(os.getpid(), number)
            time.sleep(60)
        except BaseException:
            raise ImportError("initialization failed") from None
        return 0

    monkeypatch.setattr(command_line, "_run", interrupted)
    outcome = eqfuse.run("inspect", "in.onnx")
    assert (outcome.code, outcome.out, outcome.err) == (128 + number, "", said)


def marked(mark: str) -> list[str]:
    """The commands of the processes that run with a variable in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


@pytest.mark.conformance
@pytest.mark.parametrize("twentieths", range(0, 60, 20))
def test_a_compilation_that_is_terminated_at_any_time_leaves_neither_files_nor_processes(
    eqfuse: CommandLine, temporary: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory,
    twentieths: int,
) -> None:  # fmt: skip
    """Without a cache it compiles kernels and the runtime, too."""
    mark = f"EQFUSE_TEST_MARK={temporary}"
    monkeypatch.setenv(*mark.split("=", 1))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    with compiling(eqfuse) as process:
        time.sleep(twentieths / 20)
        process.terminate()
        process.communicate(timeout=30)
    assert process.returncode in (128 + signal.SIGTERM, 0)
    assert marked(mark) == []
    assert left_in(temporary) == []
