"""The work of an operator on the units of an accelerator, matrix products and operations of vectors, and its seconds on
the cores of one cluster.

A core is charged its part of the work on each of its units as the tiles of programs are (docs/dsa.md): matrix products
by the cycles of a systolic array, all other work by elements per cycle. Units work as a pipeline, so the
slowest counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from math import prod

from ..ir.operation import Operation
from ..ir.operators import PRODUCTS, RECURRENT, VIEWS
from ..ir.operators.linear import is_convolution
from ..ir.operators.quantization import INTEGER_PRODUCTS
from ..ir.operators.recurrent import GATES
from .dsa_device import ComputeUnit, DsaDevice, UnitKind
from .systolic import Product, best_dataflow

MOVES = frozenset(
    {
        "Transpose", "Slice", "Concat", "Gather", "Split", "Pad", "Expand", "Tile", "DepthToSpace", "SpaceToDepth",
        "GatherND", "GatherElements", "ScatterND", "ScatterElements", "Cast",
    }
)  # fmt: skip
"""Operators that only move elements: part of how others are read and written, unless there are no others."""

_FACTORS: Mapping[str, int] = {
    **dict.fromkeys(("Div", "Reciprocal", "Sqrt", "Mod"), 4),
    **dict.fromkeys(("Exp", "Log", "Sin", "Cos", "Elu", "Celu", "Selu"), 4),
    **dict.fromkeys(("Tanh", "Erf", "Sigmoid", "Softplus", "Swish", "Tan", "Atan", "Sinh", "Cosh"), 8),
    **dict.fromkeys(("Gelu", "Mish", "Pow", "Asin", "Acos", "Asinh", "Acosh", "Atanh"), 12),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), 2),
    **dict.fromkeys(("HardSwish", "HardSigmoid", "Softsign", "Clip", "ThresholdedRelu", "BatchNormalization"), 2),
}
"""Vector operations per element made, 1 if not listed. A division or root is a first estimate and three steps of
refinement, a QuantizeLinear a product and a rounding that saturates, an exponential or logarithm a polynomial of degree
four, a Tanh or Erf both of these, a Gelu more of them.
"""
_PER_INPUT: Mapping[str, int] = {
    "Softmax": 8,
    "LogSoftmax": 7,
    "Hardmax": 3,
    "LayerNormalization": 7,
    "InstanceNormalization": 7,
    "GroupNormalization": 7,
    "RMSNormalization": 4,
    "LRN": 16,
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceSumSquare"), 2),
    "ReduceLogSumExp": 6,
}
"""Vector operations per element read: a Softmax takes the largest (1), a difference (1), an exponential (4), a sum (1)
and a product (1); a normalisation two sums with their differences and squares (4) and scales and shifts (3).
"""
_GATE = 10
"""Vector operations for an element of a gate of a recurrent network: a Tanh or Sigmoid, a product and a sum."""


def product_of(operation: Operation) -> Product | None:
    """The matrix product that an operation is, a convolution as im2col, a recurrent network as a product for each step;
    None if it is none or a size is not known."""
    left, right, result = operation.operand(0).dimensions, operation.operand(1).dimensions, operation.output.dimensions
    if operation.op in RECURRENT:
        return _steps(operation)
    if operation.op not in PRODUCTS or not left or not right or not operation.output.elements:
        return None
    group, eight_bits = operation.group, operation.op in INTEGER_PRODUCTS
    if is_convolution(operation.op):
        return Product(result[0] * prod(result[2:]), right[0] // group, prod(right[1:]), group, eight_bits)
    if operation.op == "ConvTranspose":
        return Product(left[0] * prod(left[2:]), prod(right[1:]), right[0] // group, group)
    if operation.op == "Gemm":
        return Product(result[0], result[1], left[0] if operation.integer("transA", 0) else left[1])
    return _matmul(left, right, eight_bits)


def _steps(operation: Operation) -> Product | None:
    """Each step multiplies its inputs and the state before it by the weights of all gates."""
    inputs, weights, state = (operation.operand(n).dimensions for n in range(3))
    if len(inputs) != 3 or len(weights) != 3 or len(state) != 3:
        return None
    return Product(inputs[1], weights[1], weights[2] + state[2], inputs[0] * weights[0])


def _matmul(left: tuple[int, ...], right: tuple[int, ...], eight_bits: bool) -> Product:
    """All rows are of one product if they share the right operand."""
    left = left if len(left) > 1 else (1, *left)
    right = right if len(right) > 1 else (*right, 1)
    rows, columns, depth = left[-2], right[-1], left[-1]
    shared = prod(right[:-2]) == 1
    batch = prod(left[:-2]) if shared else prod(_broadcast(left[:-2], right[:-2]))
    if shared:
        return Product(batch * rows, columns, depth, 1, eight_bits)
    return Product(rows, columns, depth, batch, eight_bits)


def _broadcast(first: tuple[int, ...], second: tuple[int, ...]) -> Iterable[int]:
    rank = max(len(first), len(second))
    pairs = zip((1,) * (rank - len(first)) + first, (1,) * (rank - len(second)) + second, strict=True)
    return (max(a, b) for a, b in pairs)


def vector_operations(operation: Operation) -> int:
    """Element operations of an operation, beside what it multiplies; moving elements counts nothing here."""
    op, made = operation.op, operation.output.elements
    if op in VIEWS or op in MOVES or op == "Dropout":
        return 0
    if op in RECURRENT:
        return _GATE * GATES[op] * made
    if op in PRODUCTS:
        return _epilogue(operation) * made
    if op in _SPECIAL:
        return _SPECIAL[op](operation, made)
    if op in _PER_INPUT or op.startswith(("Reduce", "Arg", "Global")) or op == "CumSum":
        return _PER_INPUT.get(op, 1) * operation.operand(0).elements
    return _FACTORS.get(op, 1) * made


def _epilogue(operation: Operation) -> int:
    """A bias, a factor."""
    return int(operation.operand(2).elements > 0) + int(operation.attributes.get("alpha", 1.0) != 1.0)


def _pool(operation: Operation, made: int) -> int:
    return made * (prod(operation.integers("kernel_shape")) + (operation.op == "AveragePool"))


_TAPS = {"linear": 2, "cubic": 4}


def _resize(operation: Operation, made: int) -> int:
    """A multiplication and an addition for each element that one shows."""
    before, after = operation.operand(0).dimensions, operation.output.dimensions
    taps = _TAPS.get(str(operation.attributes.get("mode", "nearest")), 0)
    return made * max(1, 2 * taps ** sum(n != m for n, m in zip(before, after, strict=False)) if taps else 1)


def _fold(operation: Operation, made: int) -> int:
    """Several operands, two at a time."""
    return made * max(1, len(operation.operands) - 1)


_SPECIAL: Mapping[str, Callable[[Operation, int], int]] = {
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool"), _pool),
    **dict.fromkeys(("Sum", "Mean", "Min", "Max"), _fold),
    "Resize": _resize,
}


# --- seconds on a cluster


def unit_seconds(operation: Operation, cluster: DsaDevice) -> float:
    """Time of the busiest units for one run of an operator that all cores share evenly; 0 for one that only moves
    elements."""
    product, elements = product_of(operation), vector_operations(operation)
    cycles = _vector_cycles(elements, cluster)
    if product is not None:
        waits = operation.op in RECURRENT  # each step for the one before it
        cycles = max(cycles, _shared_cycles(product, cluster, 1 if waits else product.count))
    return cycles / cluster.clock


@lru_cache(maxsize=1 << 14)
def _shared_cycles(product: Product, cluster: DsaDevice, apart: int) -> float:
    """Cycles of a product whose rows, columns and `apart` copies the cores share, by the unit that takes the fewest."""
    others = [unit for unit in cluster.units if unit.kind != "matrix"]
    rates = (unit.operations * unit.rate(product.eight_bits) * cluster.count(unit) for unit in others)
    rate = max(rates, default=0)
    cycles = [product.macs / rate] if rate else []
    for unit in cluster.units:
        if unit.kind == "matrix":
            cycles.append(min(best_dataflow(unit, part)[0] for part in _parts(product, cluster.count(unit), apart)))
    return min(cycles)


def _parts(product: Product, count: int, apart: int) -> list[Product]:
    """The largest part of a product that is divided into `count` parts, in each way that there is."""
    copies = min(count, apart)
    ways = [(rows, count // copies // rows) for rows in range(1, count // copies + 1)]
    return [
        Product(
            -(-product.m // rows), -(-product.n // columns), product.k, -(-product.count // copies), product.eight_bits
        )
        for rows, columns in ways
    ]


def _vector_cycles(elements: int, cluster: DsaDevice) -> float:
    order: tuple[UnitKind, ...] = ("vector", "vector_mac", "matrix")
    unit: ComputeUnit = next(unit for kind in order for unit in cluster.units if unit.kind == kind)
    return elements / (unit.operations * cluster.count(unit))
