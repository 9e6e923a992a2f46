"""Compiled kernels as a library that is loaded."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from eqfuse.ir.sizes import Size
from eqfuse.lowering.base.linking import Linker
from eqfuse.lowering.base.ports import Port
from eqfuse.lowering.kernels.compilation import CompiledKernels
from eqfuse.lowering.plan.manifest import LIBRARY, WEIGHTS
from eqfuse.lowering.program.planning import plan_program
from eqfuse.lowering.program.project import write_library
from eqfuse.lowering.running.context import Context
from eqfuse.lowering.running.native import aligned, load_library


def linked(compiled: CompiledKernels, folder: Path, threads: int = 1) -> Context:
    """A context of a library that is linked in a folder."""
    plan, arrays = plan_program(compiled)
    write_library(folder / LIBRARY, plan, arrays, compiled.all_objects, Linker.of(platform.machine()))
    inputs, outputs = (
        [Port(buffer.name, buffer.dtype, _texts(buffer.shape)) for buffer in map(plan.buffers.__getitem__, numbers)]
        for numbers in (plan.inputs, plan.outputs)
    )
    weights = aligned(np.fromfile(folder / WEIGHTS, np.uint8))
    return Context(load_library(folder / LIBRARY), weights, threads, inputs, outputs, ())


def _texts(shape: Iterable[int | Size]) -> tuple[int | str, ...]:
    return tuple(extent if isinstance(extent, int) else str(extent) for extent in shape)
