"""Right results: whether the commands refuse one."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from .rows import Alarm, Half
from .subjects import Subject

_LIMIT = 1800
"""Seconds that one command may take on a busy machine."""
_TIMED_OUT = 124
"""The exit code by which a command that took longer is recorded."""
_LONGEST = 600
"""Characters of a message that are kept."""


def try_right_result(subject: Subject, half: Half, options: Sequence[str]) -> Alarm:
    """Run the command with these further options, and record how it ended."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="eqfuse-judge-") as folder:
        extra = ["-o", f"{folder}/out.onnx"] if half == "optimize" else ["-o", f"{folder}/bundle", "--threads", "1"]
        command = [sys.executable, "-m", "eqfuse", half, str(subject.path), *extra, *options, "--quiet"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LIMIT)
            code, lines = done.returncode, done.stderr.strip().splitlines()
        except subprocess.TimeoutExpired:
            code, lines = _TIMED_OUT, [f"no end within {_LIMIT} s"]
    message = lines[-1][:_LONGEST] if lines and code else ""
    return Alarm(subject.name, half, code, message, round(time.monotonic() - started, 1))
