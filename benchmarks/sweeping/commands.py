"""Commands, each in a process of its own, with what they took and how they ended."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Timer

_LONGEST = 400
"""Characters of a message that are kept."""
LIMIT = 1200.0
"""Seconds that one command may take on a busy machine."""


@dataclass(frozen=True)
class Ended:
    """A command that has ended: its code, what it printed, the last line that it said, seconds, and MiB at its peak."""

    code: int
    printed: str
    message: str
    wall: float
    cpu: float
    peak: float


def run_eqfuse(*arguments: str) -> Ended:
    """Run `eqfuse` on an empty cache."""
    return run_command([sys.executable, "-P", "-m", "eqfuse", *arguments])


def run_command(command: Sequence[str]) -> Ended:
    """Run a command, which is ended after `LIMIT` seconds, on an empty cache; times are those of all its processes."""
    with tempfile.TemporaryDirectory(prefix="eqfuse-sweep-") as folder:
        printed, said = Path(folder) / "printed", Path(folder) / "said"
        environment = {**os.environ, "XDG_CACHE_HOME": folder, "TMPDIR": folder}
        started = time.monotonic()
        with printed.open("wb") as output, said.open("wb") as errors:
            process = subprocess.Popen(
                command, stdout=output, stderr=errors, env=environment, start_new_session=True
            )  # fmt: skip
            timer = Timer(LIMIT, _end, (process.pid,))
            timer.start()
            _, status, usage = os.wait4(process.pid, 0)
            timer.cancel()
        process.returncode = code = os.waitstatus_to_exitcode(status)
        wall = time.monotonic() - started
        lines = said.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        message = f"no end within {LIMIT:g} s" if wall >= LIMIT else lines[-1][:_LONGEST] if lines and code else ""
        text = printed.read_text(encoding="utf-8", errors="replace")
        cpu = usage.ru_utime + usage.ru_stime
        return Ended(code, text, message, round(wall, 2), round(cpu, 2), usage.ru_maxrss / 1024)


def _end(process: int) -> None:
    """End a process and those that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process, 9)
