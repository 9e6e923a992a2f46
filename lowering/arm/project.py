"""A folder with a compiled model as a C project, and the example built from it with the cross compiler."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...costmodels.device import Device
from ...errors import EqfuseError
from .c_source import generate
from .plan import Plan
from .toolchain import Tool, find, run

RUNTIME = Path(__file__).parent / "c_runtime"
EXAMPLE = "eqfuse_example"


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
        _copy_objects(folder / "kernels", objects)
    except OSError as error:
        raise EqfuseError(f"{error.filename or folder}: cannot be written: {error.strerror or error}") from None


def build_example(folder: Path, executable: Path, device: Device, *, emulation: bool = False) -> None:
    """Cross-compile the project in `folder` to a static executable; with `emulation`, one that marks its kernels.

    Raises ToolError where the cross compiler is missing or refuses.
    """
    with tempfile.TemporaryDirectory(prefix="eqfuse-arm-") as scratch:
        built = Path(scratch) / EXAMPLE
        run([find(Tool.CROSS_COMPILER), *_options(device, emulation), *_files(folder), "-lm", "-o", built], folder)
        shutil.copyfile(built, executable)
    executable.chmod(0o755)


def _options(device: Device, emulation: bool) -> list[str]:
    options = ["-std=gnu11", "-O2", "-static", "-I."]
    if device.mcpu and device.mcpu != "generic":
        options.append(f"-mcpu={device.mcpu}")
    return options + ["-DEQFUSE_EMULATION"] * emulation


def _files(folder: Path) -> list[str]:
    """In a fixed order: the addresses of code and data, and so the simulated caches, depend on it."""
    kernels = sorted(f"kernels/{path.name}" for path in (folder / "kernels").glob("*.o"))
    return ["main.c", "eqfuse_model.c", "eqfuse_runtime.c", "eqfuse_weights.S", *kernels]


def _copy_objects(folder: Path, objects: Sequence[Path]) -> None:
    """Exactly these objects: one left from an earlier compile would define the same kernels again."""
    for stale in folder.glob("*.o"):
        stale.unlink()
    for number, path in enumerate(objects):
        shutil.copyfile(path, folder / f"kernels_{number:04d}.o")
