"""The compiler driver of this machine, or of a board: it links kernels, and compiles the C that is linked to them."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

from ...support.processes.program import ToolError, run_program
from ...support.scratch import scratch_folder
from ...support.store import Store, source_digest
from .errors import LoweringError
from .target import check_linker
from .toolchain import find, tools_for

RUNTIME = Path(__file__).with_name("runtime")
"""The folder of the runtime's sources."""
RUNTIME_SOURCES = ("eqfuse_runtime.h", "eqfuse_runtime.c", "messages.c", "thread_pool.c", "workspaces.c")
"""What every compiled model needs of them."""
LANGUAGE = ("-std=gnu11", "-fwrapv")
"""The C of loops, in which integers wrap around as in ONNX. A C project has them as objects that are compiled here."""
_COMPILERS = ("gcc", "clang", "cc", "g++", "clang++", "c++")
_SECONDS = 300.0
"""Seconds that a compiler or linker may take before it counts as stuck: the plain loops of a detector take 13 s, and on
a machine that does much else three minutes."""
_GUARD = """\
/* A kernel that crashes ends its process as if all were well: TVM's RPC server does not outlive a session that fails.
 * The signals are Linux's SIGILL, SIGABRT, SIGBUS, SIGFPE and SIGSEGV. */
typedef void (*handler)(int);
extern handler signal(int, handler);
extern void _exit(int);
static void leave(int number) { (void)number, _exit(0); }
static __attribute__((constructor)) void guard(void) {
    static const int numbers[] = {4, 6, 7, 8, 11};
    for (int i = 0; i < 5; ++i) signal(numbers[i], leave);
}
"""


@dataclass(frozen=True)
class Linker:
    """A compiler driver that links for one processor."""

    program: str

    @staticmethod
    def of(architecture: str, options: Sequence[str] = ()) -> Linker:
        """The linker for processors whose triples begin with that architecture, and what a cross compiler is told of
        them. Raises UsageError, ToolError or LoweringError without a tool."""
        if architecture == platform.machine():
            check_linker()
            named = os.environ.get("CC") or os.environ.get("CXX")
            return Linker(named or next(filter(None, map(shutil.which, _COMPILERS))))
        tools = tools_for(architecture)
        if tools is None:
            raise LoweringError(f"no linker for {architecture}; there are some for {platform.machine()} and Arm")
        return Linker(" ".join((str(find(tools[0])), *options)))

    def link(self, objects: tuple[Path, ...], library: Path) -> None:
        """Write the shared library of these objects. Raises LoweringError with the linker's complaint.

        Of the libraries only those that kernels call: the others would take most of the time.
        """
        self._run("-shared", "-nostdlib", *map(str, objects), "-o", str(library), "-lm", "-lgcc")

    def guard(self, folder: Path) -> Path:
        """An object that turns the crash of a session of TVM's RPC server into its end."""
        source, compiled = folder / "guard.c", folder / "guard.o"
        source.write_text(_GUARD, encoding="utf-8")
        return self.compile(source, compiled)

    def link_model(self, objects: tuple[Path, ...], library: Path) -> None:
        """Write the shared library of a whole model, whose functions call each other and no others of their names."""
        options = ("-shared", "-Wl,-Bsymbolic", "-pthread")
        self._run(*options, *map(str, objects), "-o", str(library), "-lm")

    def runtime(self, folder: Path) -> tuple[Path, ...]:
        """The objects of the runtime, which kernels are linked with."""
        return tuple(self.runtime_object(name, folder) for name in RUNTIME_SOURCES if name.endswith(".c"))

    def runtime_object(self, name: str, folder: Path) -> Path:
        """The object of a source of the runtime, which is compiled once for all models."""
        compiled = folder / f"{Path(name).stem}.o"
        compiled.write_bytes(_compile_runtime(self, name))
        return compiled

    def compile(self, source: Path, compiled: Path) -> Path:
        """The object of C that may use the runtime's header."""
        options = ("-x", "c", *LANGUAGE, "-Werror=implicit-function-declaration", "-O2", "-fPIC", f"-I{RUNTIME}")
        self._run(*options, "-c", str(source), "-o", str(compiled))
        return compiled

    def _run(self, *arguments: str) -> None:
        _run((*self.program.split(), *arguments))


@cache
def _compile_runtime(linker: Linker, name: str) -> bytes:
    """The object, from the store of objects if an earlier process compiled the same sources."""
    sources = source_digest("lowering/base/runtime", suffixes=(".c", ".h"))
    store, key = Store.in_cache("objects"), sha256(repr((linker.program, name, sources)).encode()).hexdigest()
    stored = store.read_bytes(key)
    if stored is not None:
        return stored
    with scratch_folder("runtime") as folder:
        compiled = linker.compile(RUNTIME / name, Path(folder, "object.o")).read_bytes()
    store.keep_bytes(key, compiled)
    return compiled


def rename_symbols(architecture: str, source: Path, renamed: Path, symbols: Mapping[str, str]) -> None:
    """Write a copy of an object with other names of symbols, and no others for the linker to see.

    Raises LoweringError without a tool for it.
    """
    tools = None if architecture == platform.machine() else tools_for(architecture)
    own = "objcopy" if tools is None else tools[0].program.replace("gcc", "objcopy")
    names = (own, "llvm-objcopy")
    program = next(filter(None, map(shutil.which, names)), None)
    if program is None:
        raise LoweringError(f"{names[0]}: not found, and --prefix needs it; install binutils for {architecture}")
    options = [f"--redefine-sym={old}={new}" for old, new in symbols.items()]
    kept = [f"--keep-global-symbol={name}" for pair in symbols.items() for name in pair]
    _run((program, *options, *kept, str(source), str(renamed)))


def _run(command: tuple[str, ...]) -> None:
    try:
        run_program(command, _SECONDS)
    except ToolError as error:
        raise LoweringError(f"cannot link a kernel: {error}") from None
