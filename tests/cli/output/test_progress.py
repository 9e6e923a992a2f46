"""Progress on standard error, and the files that an interrupted run leaves."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from argparse import Namespace
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial

import pytest

from eqfuse.cli import progress

from ..command_line import CommandLine


def test_plain_lines_where_asked_for(eqfuse: CommandLine) -> None:
    eqfuse.small()
    phases = [line.split()[2].rstrip(":") for line in eqfuse.run("optimize", "in.onnx", "-v").err.splitlines()]
    assert list(dict.fromkeys(phases)) == [
        "read", "infer", "encode", "saturate", "check", "extract", "decode", "summarize", "verify",
    ]  # fmt: skip


def test_silence_elsewhere_while_it_is_short(eqfuse: CommandLine) -> None:
    eqfuse.small()
    assert eqfuse.run("optimize", "in.onnx").err == ""


@pytest.mark.representatives(2)
@pytest.mark.parametrize(("flags", "says"), [((), True), (("--json",), True), (("-q",), False)])
def test_lines_from_time_to_time_elsewhere(
    eqfuse: CommandLine, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], says: bool
) -> None:
    monkeypatch.setattr(progress, "_REPEATED", 0.001)
    eqfuse.small()
    lines = eqfuse.run("optimize", "in.onnx", *flags).err.splitlines()
    assert any(line.endswith(" s  saturate") for line in lines) == says


def test_a_phase_that_says_nothing_is_repeated(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_REPEATED", 0.001)
    err = ""
    with progress.Progress(Namespace(quiet=False, verbose=0), "verify"):
        while err.count("verify\n") < 3:  # for ever, without the timer
            err += capsys.readouterr().err


@pytest.mark.representatives(1)
@pytest.mark.parametrize(("flags", "live"), [((), True), (("-q",), False)])
def test_a_live_line_on_a_terminal(eqfuse: CommandLine, flags: tuple[str, ...], live: bool) -> None:
    """It is written over and over and cleared at the end."""
    eqfuse.small()
    written = on_terminal(eqfuse, "optimize", "in.onnx", *flags)
    assert ("saturate" in written) == live
    assert written == "" or written.endswith("\r\x1b[K")
    assert "\n" not in written


def on_terminal(eqfuse: CommandLine, *arguments: str) -> str:
    """What a command writes to a standard error that is a terminal."""
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as reader:
        command = eqfuse.command(*arguments)
        process = subprocess.Popen(
            command, cwd=eqfuse.folder, env=eqfuse.environment(), stdout=subprocess.DEVNULL, stderr=theirs
        )
        os.close(theirs)
        parts = list(read_all(reader.fileno()))
        process.wait(30)
    return b"".join(parts).decode()


def read_all(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            part = os.read(descriptor, 4096)
        except OSError:  # how Linux says that the other side of a terminal is closed
            return
        if not part:
            return
        yield part


@contextmanager
def saturating(eqfuse: CommandLine) -> Iterator[subprocess.Popen[str]]:
    """A run in the middle of saturation, with its temporary files in `temporary`."""
    (eqfuse.folder / "temporary").mkdir()
    process = subprocess.Popen(
        eqfuse.command("optimize", "in.onnx", "out.onnx", "-v", "--node-limit", 10**9),
        cwd=eqfuse.folder, env=eqfuse.environment() | {"TMPDIR": str(eqfuse.folder / "temporary")},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # in the background shells ignore it
    )  # fmt: skip
    assert process.stderr is not None
    with closing(process.stderr):
        for line in process.stderr:
            if "iteration" in line:
                break
        yield process


def left_over(eqfuse: CommandLine) -> list[str]:
    """Temporary files of eqfuse: ONNX Runtime leaves a hidden file of its own."""
    return [path.name for path in (eqfuse.folder / "temporary").iterdir() if not path.name.startswith(".")]


@pytest.mark.representatives(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_leaves_nothing(eqfuse: CommandLine, number: signal.Signals) -> None:
    content = eqfuse.chain(300).read_bytes()
    with saturating(eqfuse) as process:
        process.send_signal(number)
        assert process.stderr is not None
        last = process.stderr.read().splitlines()[-1:]
        assert process.wait(30) == 128 + number
    assert number != signal.SIGINT or last == ["eqfuse: interrupted; no file is half written"]
    assert eqfuse.files() == ["in.onnx", "temporary"]
    assert (eqfuse.folder / "in.onnx").read_bytes() == content
    assert left_over(eqfuse) == []
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
