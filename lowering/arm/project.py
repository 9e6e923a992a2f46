"""A folder with a compiled model as a C project, and what the cross compiler makes of it: example, or object."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...costmodels.device import Device
from ...errors import EqfuseError
from ...support.scratch import scratch_folder
from .c_source import generate
from .plan import Plan
from .toolchain import Tool, find, run

RUNTIME = Path(__file__).parent / "c_runtime"
EXAMPLE = "eqfuse_example"
_FUNCTION = """\
/* The model as a function of TVM's foreign function interface: inputs, then outputs, as tensors. */
#include "eqfuse_model.h"

static void *data(const eqfuse_argument *argument) {
    const eqfuse_tensor *tensor = argument->pointer;
    return (char *)tensor->data + tensor->byte_offset;
}

__attribute__((visibility("default")))
int __tvm_ffi_SYMBOL(void *self, const eqfuse_argument *arguments, int32_t count, eqfuse_argument *result) {
    const void *inputs[EQFUSE_INPUTS];
    void *outputs[EQFUSE_OUTPUTS];
    (void)self, (void)result;
    if (count != EQFUSE_INPUTS + EQFUSE_OUTPUTS) return -1;
    for (int32_t i = 0; i < count; i++)
        if (arguments[i].type_index != EQFUSE_TENSOR_ARGUMENT) return -1;
    for (int i = 0; i < EQFUSE_INPUTS; i++) inputs[i] = data(arguments + i);
    for (int i = 0; i < EQFUSE_OUTPUTS; i++) outputs[i] = data(arguments + EQFUSE_INPUTS + i);
    return eqfuse_run(inputs, outputs);
}
"""


def write_project(
    folder: Path, plan: Plan, weights: Mapping[int, NDArray[np.generic]], objects: Sequence[Path]
) -> None:
    """Write model, weights (by buffer), runtime, example, CMakeLists.txt, plan.json and the kernels' object files.

    Raises PlanError where weights do not fit the plan, EqfuseError where the folder cannot be written.
    """
    model = generate(plan, weights)
    texts = {
        "eqfuse_model.h": model.header,
        "eqfuse_model.c": model.source,
        "eqfuse_weights.S": model.weights_stub,
        "plan.json": plan.to_json(),
    }
    try:
        (folder / "kernels").mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
        (folder / "weights.bin").write_bytes(model.weights)
        for source in (*RUNTIME.glob("*.[ch]"), RUNTIME / "CMakeLists.txt"):
            shutil.copyfile(source, folder / source.name)
        for stale in (folder / "kernels").glob("*.o"):  # one of an earlier compile would define its kernels again
            stale.unlink()
        for number, path in enumerate(objects):
            shutil.copyfile(path, folder / "kernels" / f"kernels_{number:04d}.o")
    except OSError as error:
        raise EqfuseError(f"{error.filename or folder}: cannot be written: {error.strerror or error}") from None


def build_example(folder: Path, executable: Path, device: Device, *, emulation: bool = False) -> None:
    """Cross-compile the project in `folder` to a static executable; with `emulation`, one that marks its kernels.

    Raises ToolError where the cross compiler is missing or refuses.
    """
    with scratch_folder("arm") as scratch:
        built = Path(scratch) / EXAMPLE
        options = [*_compiler_options(device), "-static", *["-DEQFUSE_EMULATION"] * emulation]
        files = ["main.c", "eqfuse_runtime.c", *_model_files(folder)]
        run([find(Tool.CROSS_COMPILER), *options, *files, "-lm", "-o", built], folder)
        shutil.copyfile(built, executable)
    executable.chmod(0o755)


def build_object(folder: Path, object_file: Path, device: Device, symbol: str) -> None:
    """Cross-compile the project in `folder` to one object, for a shared library that TVM's runtime loads.

    The model is TVM's function `symbol` in it. What kernels need at run time is left to TVM, so loops are shared by its
    threads. Raises ToolError where the cross compiler is missing or refuses.
    """
    with scratch_folder("arm") as scratch:
        function = Path(scratch) / "function.c"
        function.write_text(_FUNCTION.replace("SYMBOL", symbol), encoding="utf-8")
        shared = ["-fPIC", "-fvisibility=hidden", "-r", "-nostdlib"]
        options = [*_compiler_options(device), *shared]
        run([find(Tool.CROSS_COMPILER), *options, function, *_model_files(folder), "-o", object_file], folder)


def _compiler_options(device: Device) -> list[str]:
    options = ["-std=gnu11", "-O2", "-I."]
    return [*options, f"-mcpu={device.mcpu}"] if device.mcpu and device.mcpu != "generic" else options


def _model_files(folder: Path) -> list[str]:
    """In a fixed order: the addresses of code and data, and so the simulated caches, depend on it."""
    kernels = sorted(f"kernels/{path.name}" for path in (folder / "kernels").glob("*.o"))
    return ["eqfuse_model.c", "eqfuse_weights.S", *kernels]
