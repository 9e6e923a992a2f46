"""Seconds of one operator on one core: the roofline of a device, with measured kernel efficiencies.

After Williams, Waterman and Patterson, "Roofline" (CACM 2009): the maximum of the time to compute and the time to move
the bytes at the bandwidth of the smallest cache that holds them, plus the launch of a kernel. ``kernels.toml`` has the
share of the device's peak that kernels of each class reach.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from math import prod
from pathlib import Path

from ..ir.operation import Operation
from ..ir.operators import CONVOLUTIONS, FILTERS, OPERATORS, PRODUCTS, REDUCTIONS
from ..ir.operators.linear import depth, is_convolution
from ..ir.operators.pooling import window_size
from ..ir.types import TensorType
from .device import Device
from .flops import flops
from .traffic import UNMOVED, traffic

KERNELS = Path(__file__).parent / "kernels.toml"
_BIASED = frozenset(name for name in PRODUCTS if len(OPERATORS[name].operands) > 2)
"""Products that add a small third operand to their result. It streams from its own cache level, not with the others."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One entry of ``kernels.toml``. `unit` is its section; `depth` counts for products only."""

    unit: str
    value: float
    depth: float = 0.0


@cache
def kernels() -> dict[str, Kernel]:
    """Every entry of the table, by operator or ``operator.variant``."""
    sections = tomllib.loads(KERNELS.read_text(encoding="utf-8"))
    products = sections.pop("product")
    table = {name: Kernel("product", row["efficiency"], row["depth"]) for name, row in products.items()}
    return table | {name: Kernel(unit, value) for unit, rows in sections.items() for name, value in rows.items()}


def seconds(operation: Operation, device: Device) -> float:
    """Time of one run of `operation` on one core of `device`, finite and at least 0.

    A chain of binary Concats costs as much as one n-ary Concat: each link pays the bytes and runs that it adds.
    """
    if operation.op in UNMOVED:
        return device.view_overhead
    move, copy = _move(operation, device), copy_seconds(operation, device)
    busy = move + copy if copy else max(compute_seconds(operation, device), move)
    return busy + device.launch_overhead if operation.starts_kernel else busy


def compute_seconds(operation: Operation, device: Device) -> float:
    """Time of the arithmetic alone, as if the data were in registers; 0 for operators that only move data."""
    seconds = device.unit_seconds(operation)
    if seconds is not None:
        return seconds
    kernel = _kernel(operation)
    return 0.0 if operation.op in UNMOVED or kernel.unit == "run" else _compute(operation, kernel, device)


def copy_seconds(operation: Operation, device: Device) -> float:
    """Time of a data movement beyond its bytes, in proportion to its contiguous runs; 0 for other operators."""
    kernel = _kernel(operation)
    if not device.moves_by_loops or operation.op in UNMOVED or kernel.unit != "run":
        return 0.0
    return _RUNS[operation.op](operation) * kernel.value / device.clock


def _kernel(operation: Operation) -> Kernel:
    table, op = kernels(), operation.op
    variant = _VARIANTS[op](operation) if op in _VARIANTS else ""
    return table.get(f"{op}.{variant}") or table.get(op) or table["default"]


def _move(operation: Operation, device: Device) -> float:
    total = traffic(operation).total
    if operation.starts_kernel:
        bias = operation.operand(2).bytes if operation.op in _BIASED else 0
        streamed = total - bias
        return streamed / device.bandwidth(streamed) + (bias / device.bandwidth(bias) if bias else 0.0)
    links = [2 * o.bytes for o, more in zip(operation.operands, operation.continued, strict=False) if more]
    total += sum(links)
    return max(0.0, total / device.bandwidth(total) - sum([b / device.bandwidth(b) for b in links]))


def _compute(operation: Operation, kernel: Kernel, device: Device) -> float:
    if kernel.unit == "product":
        return flops(operation) / (device.peak_flops * _efficiency(operation, kernel, device.lanes))
    steps = _steps(operation) * kernel.value
    return steps / device.clock if kernel.unit == "scalar" else 2.0 * steps / device.peak_flops


def _steps(operation: Operation) -> int:
    if operation.op in ("MaxPool", "AveragePool", "LpPool"):
        return operation.output.elements * window_size(operation)
    return operation.largest


def _efficiency(operation: Operation, kernel: Kernel, lanes: int) -> float:
    weight = operation.operand(1).dimensions
    length = depth(operation) if kernel.depth else 1
    reached = kernel.value * length / (length + kernel.depth)
    if operation.op not in CONVOLUTIONS:
        columns = operation.output.dimensions
        return reached * (max(0.25, _lane_share(columns[-1], lanes)) if columns else 1.0)
    if len(weight) < 2 or (operation.group > 1 and weight[1] == 1):
        return reached
    outputs = weight[0] // operation.group if is_convolution(operation.op) else weight[1]
    inputs = weight[1] if is_convolution(operation.op) else weight[0] // operation.group
    return reached * max(0.25, _lane_share(outputs, lanes)) * max(0.5, _lane_share(inputs, lanes))


def _lane_share(channels: int, lanes: int) -> float:
    """Share of the vector lanes that `channels` fill."""
    return channels / (-(-channels // lanes) * lanes) if channels > 0 else 1.0


def is_depthwise(operation: Operation) -> bool:
    """Whether an operation is a convolution of single channels."""
    return is_convolution(operation.op) and _conv_variant(operation) == "depthwise"


def _conv_variant(operation: Operation) -> str:
    if operation.group == 1:
        return ""
    weight = operation.operand(1).dimensions
    return "depthwise" if len(weight) > 1 and weight[1] == 1 else "grouped"


def _sign_variant(*types: TensorType | None) -> str:
    """By the first of these types, if one is known."""
    return "signed" if types and types[0] is not None and types[0].dtype == "int8" else ""


def _reduce_variant(operation: Operation) -> str:
    """By whether the last axis stays. ONNX Runtime adds rows up as vectors, if neighbouring axes are reduced between
    others."""
    dimensions = operation.operand(0).dimensions
    rank = len(dimensions)
    axes = sorted(axis % rank for axis in operation.integers("axes")) if rank else []
    if not axes or axes[-1] == rank - 1:
        return ""
    groups, row = prod(dimensions[: axes[0]]), prod(dimensions[axes[-1] + 1 :])
    are_neighbours = axes == list(range(axes[0], axes[-1] + 1))
    by_rows = operation.op in _BY_ROWS and are_neighbours and min(groups, row) >= _LEAST_ROWS
    return "grouped" if by_rows else "strided"


_BY_ROWS = frozenset({"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"})
_LEAST_ROWS = 8
"""Groups, and elements of a row, from which on that is so."""


def _softmax_variant(operation: Operation) -> str:
    rank = len(operation.operand(0).dimensions)
    return "strided" if operation.integer("axis", -1) not in (-1, rank - 1) else ""


def _pow_variant(operation: Operation) -> str:
    is_scalar = operation.operand(1).elements == 1
    return "constant" if is_scalar and len(operation.constant) > 1 and operation.constant[1] else ""


def _transpose_variant(operation: Operation) -> str:
    length, single = _transposition(operation.operand(0).dimensions, operation.integers("perm"))
    return "single" if single and length == 1 else ""


def _slice_variant(operation: Operation) -> str:
    return "strided" if any(step != 1 for step in operation.integers("steps")) else ""


_VARIANTS: dict[str, Callable[[Operation], str]] = {
    **dict.fromkeys(FILTERS, _conv_variant),
    "QuantizeLinear": lambda operation: _sign_variant(operation.output_type),
    "MatMulInteger": lambda operation: _sign_variant(*operation.types),
    "Transpose": _transpose_variant,
    "Softmax": _softmax_variant,
    "LogSoftmax": _softmax_variant,
    "Pow": _pow_variant,
    "FastGelu": lambda operation: "bias" if operation.operand(1).elements else "",
    "MultiHeadAttention": lambda operation: "masked" if operation.operand(5).elements else "",
    "Resize": lambda operation: str(operation.attributes.get("mode", "nearest")),
    "Slice": _slice_variant,
    **dict.fromkeys(REDUCTIONS, _reduce_variant),
}


@lru_cache(maxsize=1 << 14)
def _transposition(dimensions: tuple[int, ...], perm: tuple[int, ...]) -> tuple[int, bool]:
    """Elements of a contiguous run, and whether it moves a single axis.

    Axes of size 1 count as others do: the runtime looks at the order of all axes (9,600 elements, the two axes around
    one of size 1 exchanged: 44 us, alone 5), unless they are the only ones that move.
    """
    rank = len(dimensions)
    order = list(perm if sorted(perm) == list(range(rank)) else reversed(range(rank)))
    long = [axis for axis in order if dimensions[axis] != 1]
    if long == sorted(long):
        return prod(dimensions), True
    still = list(range(rank))
    length = 1
    while order[-1] == still[-1]:
        length *= dimensions[order.pop()]
        still.pop()
    return length, any([a for a in order if a != moved] == [a for a in still if a != moved] for moved in order)


def _transpose_runs(operation: Operation) -> int:
    length, _ = _transposition(operation.operand(0).dimensions, operation.integers("perm"))
    return operation.output.elements // max(1, length)


def _slice_runs(operation: Operation) -> int:
    before, after = operation.operand(0).dimensions, operation.output.dimensions
    length = 1
    for axis in range(len(after) - 1, -1, -1):
        if len(before) == len(after) and before[axis] != after[axis]:
            steps = dict(zip(operation.integers("axes"), operation.integers("steps"), strict=False))
            length *= after[axis] if steps.get(axis, 1) == 1 else 1
            break
        length *= after[axis]
    return operation.output.elements // max(1, length)


def _gather_runs(operation: Operation) -> int:
    data = operation.operand(0).dimensions
    axis = operation.integer("axis", 0) % max(1, len(data))
    return operation.output.elements // max(1, prod(data[axis + 1 :]))


def _joint_runs(operation: Operation) -> int:
    """Contiguous rows of a Concat's new operands, or of a Split's results."""
    rows = 0
    continued = operation.continued + (0,) * len(operation.operands)
    for operand, more in zip(operation.operands, continued, strict=False):
        axis = operation.integer("axis", 0) % max(1, len(operand.dimensions))
        rows += 0 if more else prod(operand.dimensions[:axis])
    return rows * max(1, len(operation.integers("split")))


def _pad_runs(operation: Operation) -> int:
    dimensions = operation.output.dimensions
    return operation.output.elements // max(1, dimensions[-1]) if dimensions else 1


_RUNS: dict[str, Callable[[Operation], int]] = {
    "Transpose": _transpose_runs,
    "Slice": _slice_runs,
    "Gather": _gather_runs,
    "Concat": _joint_runs,
    "Split": _joint_runs,
    "Pad": _pad_runs,
}
