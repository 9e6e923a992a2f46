"""Plans whose kernels are those of c_kernels.c, as libraries that are loaded."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from eqfuse.ir.sizes import Size, parse_size
from eqfuse.lowering.base.linking import Linker
from eqfuse.lowering.base.ports import Port
from eqfuse.lowering.plan.manifest import LIBRARY, WEIGHTS
from eqfuse.lowering.plan.plan import Buffer, Plan
from eqfuse.lowering.plan.sizes import extents_of
from eqfuse.lowering.program.project import Weights, write_library
from eqfuse.lowering.running.context import Context, Fallback
from eqfuse.lowering.running.native import aligned, load_library

KERNELS = Path(__file__).with_name("c_kernels.c")


def size(text: str) -> Size:
    parsed = parse_size(text)
    assert parsed is not None
    return parsed


def floats(name: str, *shape: int | str) -> Buffer:
    return Buffer(name, "float32", extents_of(shape))


def load_plan(
    plan: Plan, folder: Path, weights: Weights | None = None, fallbacks: Sequence[Fallback] = (), threads: int = 1
) -> Context:
    """A context of the plan's library, which is compiled into the folder."""
    linker = Linker.of(platform.machine())
    write_library(folder / LIBRARY, plan, weights or {}, [linker.compile(KERNELS, folder / "kernels.o")], linker)
    ports = [[port_of(plan.buffers[number]) for number in numbers] for numbers in (plan.inputs, plan.outputs)]
    blob = aligned(np.fromfile(folder / WEIGHTS, np.uint8))
    return Context(load_library(folder / LIBRARY), blob, threads, ports[0], ports[1], fallbacks)


def port_of(buffer: Buffer) -> Port:
    return Port(buffer.name, buffer.dtype, tuple(e if isinstance(e, int) else str(e) for e in buffer.shape))
