"""The tasks of a partitioned graph: each distinct kernel once, with how often a run of the model calls it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import log2
from typing import Any

import tvm

from ...costmodels.flops import flops
from ...extract.partition.baselines.weights import weights
from ...ir.types import TensorType
from ..kernels.prim_funcs import KernelCall, ScheduleCheck, task_key
from ..kernels.steps import Kernel, steps
from ..kernels.table import roofline
from ..schedules import CONSTANTS
from ..schedules.base.blocks import find_blocks
from ..schedules.base.extents import extent_at_typical_sizes

Members = tuple[int, ...]
"""Operators of one kernel, ascending."""
_EXTENTS = 5
"""Iterators of a kind, of the block with the most steps, that a learned model is told the extents of."""


@dataclass(frozen=True)
class Task:
    """A kernel to tune, equal ones of a model being one task.

    `key` names it for ever (64 hex digits, from its computation and tensors); `prim_func` is TVM's JSON of it.
    `parameters` are its inputs, those at the places `constants` known beforehand, and then its `outputs` outputs, all
    before any packing; their dynamic dimensions have the sizes that are optimised for, at which the kernel
    for all sizes is measured.
    `features` tell a learned model what the kernel is (operations, bytes, extents of loops).
    """

    key: str
    name: str
    prim_func: str
    outputs: int
    constants: tuple[int, ...]
    parameters: tuple[TensorType, ...]
    features: Mapping[str, float]


@dataclass
class TaskTable:
    """The tasks of kernels of a graph, made when they are first asked for."""

    fits: ScheduleCheck
    tasks: dict[str, Task] = field(default_factory=dict)
    _keys: dict[Members, str | None] = field(default_factory=dict)
    _rooflines: dict[str, float] = field(default_factory=dict)
    _weights: dict[str, float] = field(default_factory=dict)

    def key(self, kernel: Members) -> str | None:
        """The task of a kernel; None if nothing is compiled for it (views, what ONNX Runtime runs)."""
        if kernel not in self._keys:
            self._keys[kernel] = self._find_task(kernel)
        return self._keys[kernel]

    def calls(self, kernels: Iterable[Members]) -> Mapping[str, int]:
        """How often a run of these kernels calls each task."""
        return Counter(key for kernel in kernels if (key := self.key(kernel)) is not None)

    def constant_bytes(self, kernels: Iterable[Members]) -> int:
        """Bytes of all constants that a run of these kernels reads."""
        return sum(
            count * sum(self.tasks[key].parameters[place].bytes() for place in self.tasks[key].constants)
            for key, count in self.calls(kernels).items()
        )

    def roofline(self, key: str) -> float:
        """Seconds below which a call of the task is not to be expected."""
        return self._rooflines[key]

    def weight(self, key: str) -> float:
        """How many trials the task takes in proportion to others (AGO, Eq. 1 and Fig. 8)."""
        return self._weights[key]

    def _find_task(self, kernel: Members) -> str | None:
        table = self.fits.kernels
        for step in steps(table.graph, [kernel]):
            call = table.lower_step(step) if isinstance(step, Kernel) else None
            if isinstance(call, KernelCall):
                return self._task(call)
        return None

    def _task(self, call: KernelCall) -> str:
        function = self.fits.kernels.functions[call.symbol]
        key = task_key(function)
        if key not in self.tasks:
            floating = sum(flops(self.fits.kernels.graph.operations[member]) for member in call.members)
            types = tuple(_type(parameter, function) for parameter in function.params)
            moved = sum(type_.bytes() for type_ in types)
            features = {"flops": log2(1 + floating), "bytes": log2(1 + moved), **_loops(function)}
            prim_func = tvm.ir.save_json(function)
            constants = tuple(int(place) for place in (function.attrs or {}).get(CONSTANTS, ()))
            self.tasks[key] = Task(key, call.symbol, prim_func, len(call.outputs), constants, types, features)
            self._weights[key] = sum(weights(self.fits.kernels.graph, call.members))
            self._rooflines[key] = roofline(floating, moved, self.fits.target.device, self.fits.target.threads)
        return key


def _type(buffer: Any, function: Any) -> TensorType:
    return TensorType(str(buffer.dtype), tuple(extent_at_typical_sizes(extent, function) for extent in buffer.shape))


def _loops(function: Any) -> dict[str, float]:
    """How many blocks there are, and the extents of the one that does most."""
    blocks = find_blocks(tvm.s_tir.Schedule(function))
    largest = max(blocks, key=lambda stage: sum(log2(max(1, int(extent))) for extent in stage.extents))
    spatial = [int(largest.extents[i]) for i in largest.spatial if largest.extents[i] > 1]
    reduced = [int(largest.extents[i]) for i in sorted(largest.reduced) if largest.extents[i] > 1]
    extents = {f"spatial {n}": log2(extent) for n, extent in enumerate(reversed(spatial[-_EXTENTS:]))}
    extents.update({f"reduced {n}": log2(extent) for n, extent in enumerate(reversed(reduced[-_EXTENTS:]))})
    reductions = sum(bool(block.reduced) for block in blocks)
    return {**extents, "blocks": float(len(blocks)), "reductions": float(reductions)}
