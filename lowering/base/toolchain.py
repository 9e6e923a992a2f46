"""The cross tools: GNU's C compilers for Arm, and QEMU, which emulates it; versions of all software."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from enum import Enum
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ...support.processes.program import ToolError, run_program
from ...support.processor import ARM, CORTEX_M
from ...support.scratch import scratch_root
from ...support.version import __version__

LIBRARIES = Path("/usr/aarch64-linux-gnu")
"""Where Debian's cross packages put the target's C library: the root of a dynamic executable under emulation."""
EMULATION_SECONDS = 600.0
"""Seconds that a compiler or an emulator may take before it counts as stuck, if nobody says that they need longer."""
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C"}
"""Nothing of the caller's: its size moves the stack, and with it the conflicts in the simulated caches."""

_PACKAGES = ("apache-tvm", "apache-tvm-ffi", "onnxruntime", "onnx", "numpy")


def versions() -> dict[str, str]:
    """The software that compiles and runs bundles here."""
    return {"eqfuse": __version__, **{name: _version(name) for name in _PACKAGES}}


@cache
def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


class Tool(Enum):
    """A program, and the Debian packages that bring it."""

    CROSS_COMPILER = ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross")
    EMULATOR = ("qemu-aarch64-static", "qemu-user-static")
    COUNTING_EMULATOR = ("qemu-aarch64", "qemu-user")
    BARE_COMPILER = ("arm-none-eabi-gcc", "gcc-arm-none-eabi libnewlib-arm-none-eabi")
    BARE_EMULATOR = ("qemu-system-arm", "qemu-system-arm")
    HOST_COMPILER = ("gcc", "gcc libc6-dev")

    @property
    def program(self) -> str:
        """The name of its file."""
        return self.value[0]

    @property
    def packages(self) -> str:
        """Their names, separated by spaces."""
        return self.value[1]


def tools_for(architecture: str) -> tuple[Tool, Tool] | None:
    """What compiles for a processor that is not this machine, and what emulates it; None if nothing does."""
    if architecture.startswith(CORTEX_M):
        return Tool.BARE_COMPILER, Tool.BARE_EMULATOR
    return (Tool.CROSS_COMPILER, Tool.EMULATOR) if architecture == ARM else None


def machine_options(triple: str, cpu: str) -> list[str]:
    """What GNU's C compiler is told of a processor that LLVM calls so."""
    named = [f"-mcpu={cpu}"] if cpu not in ("", "generic") else []
    floats = "hard" if triple.endswith("hf") else "soft"
    return [*named, f"-mfloat-abi={floats}"] if triple.startswith(CORTEX_M) else named


def find(tool: Tool) -> Path:
    """Where the program is. Raises ToolError with the package to install."""
    path = shutil.which(tool.program)
    if path is None:
        raise ToolError(f"{tool.program}: not found; on Debian or Ubuntu: apt-get install {tool.packages}")
    # Of a compiler that knows no libc.a, the answer is the bare name.
    query = [path, "-print-file-name=libc.a"] if tool in (Tool.CROSS_COMPILER, Tool.BARE_COMPILER) else None
    if query and run_program(query, EMULATION_SECONDS, may_fail=True).strip() in ("", "libc.a"):
        library = tool.packages.split()[-1]
        raise ToolError(f"{tool.program}: has no C library to link; on Debian: apt-get install {library}")
    return Path(path)


def missing(*tools: Tool) -> str:
    """One line that names all of these tools that are missing; empty if none is."""
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


def compile_there(command: Sequence[str | Path], folder: Path) -> None:
    """Run a compiler in a folder. Raises ToolError with the first line of its complaint."""
    run_program(command, EMULATION_SECONDS, folder=folder, environment={**_ENVIRONMENT, "TMPDIR": str(scratch_root())})


def emulate(command: Sequence[str | Path], folder: Path, *, seconds: float = EMULATION_SECONDS) -> str:
    """Run an emulator and return its standard output. Raises ToolError with the first line of its complaint."""
    try:
        return run_program(command, seconds, folder=folder, environment=_ENVIRONMENT)
    except ToolError as error:
        if error.timed_out:
            raise ToolError(f"{error}; the model is too large to emulate") from None
        raise
