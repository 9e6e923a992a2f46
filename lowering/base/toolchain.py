"""The cross tools: GNU's C compiler for 64-bit Arm, and QEMU's user emulation of it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from enum import Enum
from pathlib import Path

from ...support.errors import EqfuseError

LIBRARIES = Path("/usr/aarch64-linux-gnu")
"""Where Debian's cross packages put the target's C library: the root of a dynamic executable under emulation."""


class ToolError(EqfuseError):
    """A cross tool that is missing, too new, or that failed: with its exit status and what it complained of."""

    def __init__(self, message: str, status: int = 0, complaint: str = "") -> None:
        super().__init__(message)
        self.status, self.complaint = status, complaint


class Tool(Enum):
    """A program, and the Debian packages that bring it."""

    CROSS_COMPILER = ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross")
    EMULATOR = ("qemu-aarch64-static", "qemu-user-static")
    COUNTING_EMULATOR = ("qemu-aarch64", "qemu-user")
    HOST_COMPILER = ("gcc", "gcc libc6-dev")

    @property
    def program(self) -> str:
        """The name of its file."""
        return self.value[0]

    @property
    def packages(self) -> str:
        """Their names, separated by spaces."""
        return self.value[1]


def find(tool: Tool) -> Path:
    """Where the program is. Raises ToolError with the package to install."""
    path = shutil.which(tool.program)
    if path is None:
        raise ToolError(f"{tool.program}: not found; on Debian or Ubuntu: apt-get install {tool.packages}")
    # Of a compiler that knows no libc.a, the answer is the bare name.
    query = [path, "-print-file-name=libc.a"] if tool is Tool.CROSS_COMPILER else None
    if query and subprocess.run(query, capture_output=True, text=True).stdout.strip() in ("", "libc.a"):
        raise ToolError(f"{tool.program}: has no C library to link; on Debian: apt-get install libc6-dev-arm64-cross")
    return Path(path)


def missing(*tools: Tool) -> str:
    """One line that names all of these tools that are missing; empty where none is."""
    absent = []
    for tool in tools:
        try:
            find(tool)
        except ToolError:
            absent.append(tool)
    if not absent:
        return ""
    programs = ", ".join(tool.program for tool in absent)
    return f"{programs}: not found; on Debian or Ubuntu: apt-get install {' '.join(tool.packages for tool in absent)}"


def run(command: Sequence[str | Path], folder: Path, *, seconds: float = 600.0) -> str:
    """Run the command and return its standard output. Raises ToolError with the first line of its complaint."""
    program = Path(command[0]).name
    # Nothing of the caller's environment: its size moves the stack, and with it the conflicts in the simulated caches.
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, errors="replace", timeout=seconds
        )
    except subprocess.TimeoutExpired:
        raise ToolError(f"{program}: stopped after {seconds:.0f} s; the model is too large to emulate") from None
    except OSError as error:
        raise ToolError(f"{program}: cannot be run: {error.strerror or error}") from None
    if done.returncode:
        status = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()] or ["no message"]
        complaint = next((line for line in lines if re.search(r"\berror\b|undefined reference", line)), lines[0])
        raise ToolError(f"{program}: failed ({status}): {complaint}", done.returncode, complaint)
    return done.stdout
