"""A compiled model as C in a folder: a project that CMake builds, or what a compiler makes of it here."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...costmodels.device import Device
from ...support.errors import EqfuseError, UsageError
from ...support.processor import CORTEX_M
from ...support.scratch import scratch_folder
from ..base.linking import RUNTIME, RUNTIME_SOURCES, Linker, rename_symbols
from ..base.toolchain import Tool, compile_there, find, machine_options, tools_for
from ..plan.manifest import PLAN, WEIGHTS
from ..plan.names import DEFAULT_PREFIX, EXAMPLE, add_prefix, renamed_symbols
from ..plan.plan import Callback, Plan, PlanError
from ..plan.templates import WEIGHTS_STUB
from .c_source import header, source, write_weights

_PROJECT_FILES = ("main.c", "CMakeLists.txt", "exports.map")
_BOARD_FILES = ("board.c", "board.ld")
_FUNCTION = """\
/* The model as a function of TVM's foreign function interface: inputs, then outputs, as tensors. */
#include "eqfuse_model.h"

static void *data(const eqfuse_argument *argument) {
    const eqfuse_tensor *tensor = argument->pointer;
    return (char *)tensor->data + tensor->byte_offset;
}

EQFUSE_API int FUNCTION(void *self, const eqfuse_argument *arguments, int32_t count, eqfuse_argument *result) {
    static eqfuse_context *context;
    const void *inputs[EQFUSE_INPUTS];
    void *outputs[EQFUSE_OUTPUTS];
    (void)self, (void)result;
    if (count != EQFUSE_INPUTS + EQFUSE_OUTPUTS) return -1;
    for (int32_t i = 0; i < count; i++)
        if (arguments[i].type_index != EQFUSE_TENSOR_ARGUMENT) return -1;
    if (!context) context = eqfuse_create(&eqfuse_network, eqfuse_weights, THREADS);
    if (!context) return -1;
    for (int i = 0; i < EQFUSE_INPUTS; i++) inputs[i] = data(arguments + i);
    for (int i = 0; i < EQFUSE_OUTPUTS; i++) outputs[i] = data(arguments + EQFUSE_INPUTS + i);
    return eqfuse_run(context, inputs, outputs);
}
"""

@dataclass(frozen=True)
class Naming:
    """The prefix of a C project's names, and the processor whose objects have symbols to be renamed."""

    prefix: str = DEFAULT_PREFIX
    architecture: str = ""


DEFAULT_NAMING = Naming()
Weights = Mapping[int, NDArray[np.generic]]
"""Elements by buffer."""


def write_library(
    library: Path, plan: Plan, weights: Weights, objects: Sequence[Path], linker: Linker
) -> None:
    """Write the shared library of a model for this machine, and beside it its weights and its plan.

    Raises PlanError if weights do not fit the plan, LoweringError if the compiler fails, EqfuseError if the
    folder cannot be written.
    """
    with scratch_folder("link") as scratch:
        folder = Path(scratch)
        try:
            _write_model(folder, plan)
            write_weights(plan, weights, library.parent / WEIGHTS)
            (library.parent / PLAN).write_text(plan.to_json(), encoding="utf-8")
        except OSError as error:
            raise _unwritable(library.parent, error) from None
        model = linker.compile(folder / "eqfuse_model.c", folder / "eqfuse_model.o")
        stopwatch = linker.runtime_object("stopwatch.c", folder)
        linker.link_model((model, stopwatch, *linker.runtime(folder), *objects), library)


def write_project(
    folder: Path, plan: Plan, weights: Weights, objects: Sequence[Path], naming: Naming = DEFAULT_NAMING
) -> None:
    """Write model, weights (by buffer), runtime, example, CMakeLists.txt, plan.json and the kernels' object files.

    Raises PlanError if weights do not fit the plan, LoweringError if there is no tool to rename the kernels'
    symbols with, EqfuseError if the folder cannot be written.
    """
    if not plan.inputs or not plan.outputs:
        raise PlanError("plan: a C project needs at least one input and one output")
    if any(isinstance(step, Callback) for step in plan.steps):
        raise PlanError("plan: a C project has no other runtime to call")
    prefix = naming.prefix
    names = (*RUNTIME_SOURCES, *_PROJECT_FILES, *(_BOARD_FILES if naming.architecture.startswith(CORTEX_M) else ()))
    texts = {name: (RUNTIME / name).read_text(encoding="utf-8") for name in names}
    texts |= {"eqfuse_model.h": header(plan), "eqfuse_model.c": source(plan), "eqfuse_weights.S": WEIGHTS_STUB}
    try:
        (folder / "kernels").mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / add_prefix(name, prefix)).write_text(add_prefix(text, prefix), encoding="utf-8")
        write_weights(plan, weights, folder / WEIGHTS)
        (folder / PLAN).write_text(plan.to_json(), encoding="utf-8")
        for stale in (folder / "kernels").glob("*.o"):  # one of an earlier compile would define its kernels again
            stale.unlink()
        for number, path in enumerate(objects):
            copy = folder / "kernels" / f"kernels_{number:04d}.o"
            if prefix == DEFAULT_PREFIX:
                shutil.copyfile(path, copy)
            else:
                rename_symbols(naming.architecture, path, copy, renamed_symbols(plan.kernels, prefix))
    except OSError as error:
        raise _unwritable(folder, error) from None


def _write_model(folder: Path, plan: Plan) -> None:
    (folder / "eqfuse_model.h").write_text(header(plan), encoding="utf-8")
    (folder / "eqfuse_model.c").write_text(source(plan), encoding="utf-8")


def _unwritable(folder: Path, error: OSError) -> EqfuseError:
    return EqfuseError(f"{error.filename or folder}: cannot be written: {error.strerror or error}")


def build_example(folder: Path, executable: Path, device: Device, *, emulation: bool = False) -> None:
    """Cross-compile the project in `folder` to a static executable; with `emulation`, one that marks its kernels.

    Raises ToolError if the cross compiler is missing or refuses, UsageError if there is none for the device.
    """
    architecture = device.mtriple.partition("-")[0]
    tools = tools_for(architecture)
    if tools is None:
        raise UsageError(f"there is no cross compiler for {architecture}")
    is_bare = tools[0] is Tool.BARE_COMPILER
    with scratch_folder("arm") as scratch:
        built = Path(scratch) / EXAMPLE
        options = [*_compiler_options(device), "-static", *[f"-D{_prefix_of(folder).upper()}_EMULATION"] * emulation]
        options += ["-T", "board.ld", "--specs=rdimon.specs"] if is_bare else []
        sources = ["main.c", *_model_files(folder)]
        compile_there([find(tools[0]), *options, *sources, "-lm", "-o", built], folder)
        shutil.copyfile(built, executable)
    executable.chmod(0o755)


def build_object(folder: Path, object_file: Path, device: Device, symbol: str, threads: int) -> None:
    """Cross-compile the project in `folder` to one object, for a shared library that TVM's runtime loads.

    The model is TVM's function `symbol` in it. Raises ToolError if the cross compiler is missing or refuses.
    """
    with scratch_folder("arm") as scratch:
        function = Path(scratch) / "function.c"
        text = _FUNCTION.replace("THREADS", str(threads))
        function.write_text(
            add_prefix(text, _prefix_of(folder)).replace("FUNCTION", f"__tvm_ffi_{symbol}"), encoding="utf-8"
        )
        shared = ["-fPIC", "-fvisibility=hidden", "-r", "-nostdlib"]
        options = [*_compiler_options(device), *shared]
        compile_there([find(Tool.CROSS_COMPILER), *options, function, *_model_files(folder), "-o", object_file], folder)


def _compiler_options(device: Device) -> list[str]:
    return ["-std=gnu11", "-O2", "-I.", *machine_options(device.mtriple, device.mcpu)]


def _prefix_of(folder: Path) -> str:
    return next(folder.glob("*_model.h")).name.removesuffix("_model.h")


def _model_files(folder: Path) -> list[str]:
    """The files in a fixed order: the addresses of code and data, and so the simulated caches, depend on it."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.[cSo]"))
    return [name for name in names if name != "main.c"]
