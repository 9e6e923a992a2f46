"""Operator weights of AGO (Xu et al., INFOCOM 2023), Eq. (1): how hard the loop nest of an operator is to tune.

``w = c * prod(log2(s) for s in loops) + b``, with the extents s of the spatial and reduction loops of an operator.

The paper prints neither the base of the logarithm nor c and b (its Fig. 8, which they are fitted to, is an image of
tuning budgets), but in section VI.B figures of MobileViT that depend on them: 259 sub-graphs of mean weight 138, or
82 of mean 437, so a total weight of 35,742 or 35,834; a median of 23; and 105 of the 259 (41 %) lighter than 20.
They are fitted to these, on MobileViT-S for a 256 x 256 image, batch 1, with each operator a sub-graph:

- The base is 2. With it a loop of two iterations leaves the product as it is, whereas with e or 10 it would make
  a deeper nest lighter; and of 2, e, 4 and 10 it comes nearest to the spread of Relay's weights (Jain's index 0.19;
  0.26 with 2, 0.34 with e, 0.39 with 4, 0.51 with 10).
- ``b = 1``: any b from 0 to 2 does as well. It keeps the weight of an operator without loops above 0.
- ``c = 0.275`` from the total. The 575 operators of the TorchScript export weigh 35,770 in all (35,788 is midway
  between the paper's two figures), with a median of 26.0 and 240 (42 %) below 20; the 395 of the dynamo export, which
  computes no shapes at run time, 35,524, with a median of 37.9 and 60 (15 %) below 20.

The fit is rough, for the paper's graph is not this one: the size of its model (XXS, XS or S) and its decomposition
into operators of TVM are not printed. Only the total is met by construction; the share below 20 is met in a graph of
which 180 operators compute shapes, and missed in the other. Only weights in proportion to each other, and to the
thresholds, mean anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import log2, prod

from ....ir.graph import OperatorGraph
from ....ir.operation import Extent, Operation
from ....ir.operators import FILTERS, GLOBAL_POOLS, POOLS, SCHEMAS
from ....ir.operators.linear import depth

SLOPE = 0.275
"""c of Eq. (1)."""

BIAS = 1.0
"""b of Eq. (1)."""

THRESHOLD = 600.0
"""Td of Algorithm 1, which the paper does not print: it divides a MobileViT into as many sub-graphs as in the paper.

The paper's have: 82, mean weight 437, median 350, Jain's index 0.55. With it the 395 operators of the dynamo export of
MobileViT-S make 81, none lighter than 20, of mean 439, median 478 and index 0.87. The 575 of the TorchScript export
make 135, index 0.53: each of their 36 Shape operators stays alone, being opaque, and separates its readers. Were
they not opaque it would be 82, of mean 436, median 471 and index 0.87.
"""

_FILTERS = {**FILTERS, "DeformConv": 1}
COMPLEX = frozenset({*_FILTERS, *(row.name for row in SCHEMAS.values() if row.category == "linear")})
"""Operators that reduce two operands over a common loop: what AGO calls complex (section II)."""

_POOLS = POOLS | {"LpPool"}
_OVER_INPUT = GLOBAL_POOLS | frozenset({"GlobalLpPool", "ArgMax", "ArgMin", "TopK", "Split"})


def loops(operation: Operation) -> tuple[int, ...]:
    """Extents of the loop nest of `operation`, outermost first, spatial loops before those of the reduction.

    A loop of extent 1 (or 0) is no loop: it is left out, for it leaves a tuner no choice, and its logarithm would
    make the product of Eq. (1) zero.
    """
    return tuple(size for size in _nest(operation) if size > 1)


def weight(operation: Operation) -> float:
    """Eq. (1) of `operation`; the product over no loops is 1."""
    return SLOPE * prod(map(log2, loops(operation))) + BIAS


def weights(graph: OperatorGraph, members: Iterable[int] | None = None) -> tuple[float, ...]:
    """Eq. (1) of every operator, or of `members`, in their order."""
    operations = graph.operations
    return tuple(weight(operations[i]) for i in (range(len(graph)) if members is None else members))


def _nest(operation: Operation) -> tuple[int, ...]:
    op, output = operation.op, _dimensions(operation.output)
    if op in _FILTERS:
        return output + operation.operand(_FILTERS[op]).dimensions[1:]
    if op == "ConvTranspose":
        kernel = operation.operand(1).dimensions
        return (*output, *(size // operation.group for size in kernel[:1]), *kernel[2:])
    if op == "Einsum":
        return _indices(operation) or output
    if op in COMPLEX:
        return (*output, depth(operation))
    if op in _POOLS:
        return output + _window(operation)
    if op in _OVER_INPUT or op.startswith("Reduce"):
        return _dimensions(operation.operand(0))
    return output


def _dimensions(tensor: Extent) -> tuple[int, ...]:
    """The dimensions; all elements in one loop if the rank is unknown."""
    return tensor.dimensions or (tensor.elements,)


def _window(operation: Operation) -> tuple[int, ...]:
    """A kernel that is larger than the input covers the input."""
    kernel, sides = operation.integers("kernel_shape"), operation.operand(0).dimensions[2:]
    return tuple(map(min, kernel, sides)) if len(sides) == len(kernel) else kernel


def _indices(operation: Operation) -> tuple[int, ...]:
    """The extents of all indices of an Einsum; () if its equation has an ellipsis, which names none."""
    equation = str(operation.attributes.get("equation", "...")).replace(" ", "")
    if "." in equation:
        return ()
    terms = equation.partition("->")[0].split(",")
    pairs = (zip(term, o.dimensions, strict=False) for term, o in zip(terms, operation.operands, strict=False))
    return tuple(dict(pair for term in pairs for pair in term).values())
