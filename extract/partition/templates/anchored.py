"""Kernels of one anchor op, with operators in front of it that need no recomputation, and operators behind it."""

from __future__ import annotations

from collections.abc import Callable

from ....ir.operators import GLOBAL_POOLS, MATRIX_PRODUCTS, POOLS, PRODUCTS, RECURRENT, VIEWS
from ....ir.operators.linear import is_convolution
from .operator_set import OperatorSet
from .row_chain import is_along_rows
from .template import LOOPS, Template

_PICKS = frozenset({"Slice", "Split", "Gather", "Pad", "Tile"})
_REORDERS = VIEWS | {"Transpose", "DepthToSpace", "SpaceToDepth"}
_POOLINGS = POOLS | GLOBAL_POOLS
_COLUMN_CYCLES, _STRADDLING_CYCLES, _SPLIT_CYCLES = 1.0, 3.0, 0.25
"""Cycles to write an element of a matrix product if rows become columns (0.9 to 1.0, AMD Zen 5), if vectors are
not part of the runs that stay together (0.9 to 4.4), and if they are, but rows are longer (0.27)."""


def is_depthwise(operators: OperatorSet, member: int) -> bool:
    """Whether an operator is a convolution of single channels."""
    operator = operators.graph.operators[member]
    if not is_convolution(operator.op) or operator.is_opaque:
        return False
    weights = operators.within.shape(operator.inputs[1])
    return len(weights) > 1 and operator.attributes.get("group", 1) == weights[0] and weights[1] == 1


def why_not_one_anchor(operators: OperatorSet) -> str | None:
    """Why operators have no kernel around one anchor op; None if they have."""
    if len(operators.anchors) != 1:
        return f"{len(operators.anchors)} of them reduce"
    if len(operators.members) > 1 and "Concat" in operators.names:
        return "a Concat writes the joined tensor by itself"
    if any(operators.graph.values[v].producer not in operators.behind for v in operators.outputs):
        return "a value in front of the anchor op is read elsewhere"
    if _grows(operators):
        return "an operator behind the anchor op has more elements than its result"
    if _cuts(operators):
        return "an operator behind the anchor op takes parts of its result"
    return LOOPS if operators.buffers is None else None


def split_at_anchors(operators: OperatorSet) -> list[OperatorSet]:
    """The operators from each anchor op to the next, the first with the operators in front of it."""
    parts: list[OperatorSet] = []
    rest = set(operators.inside)
    for anchor in reversed(operators.anchors[1:]):
        behind = {anchor}
        for member in operators.members:
            if member in rest and not behind.isdisjoint(operators.graph.predecessors[member]):
                behind.add(member)
        parts.insert(0, operators.part(behind))
        rest -= behind
    return [operators.part(rest), *parts]


def _cuts(operators: OperatorSet) -> bool:
    """Whether an operator behind the anchor op picks elements, or computes with transposed ones: from memory."""
    behind = [operators.graph.operators[m].op for m in sorted(operators.behind)]
    if not _PICKS.isdisjoint(behind):
        return True
    moves = [op in _REORDERS for op in behind]
    return True in moves and not all(moves[moves.index(True) :])


def _grows(operators: OperatorSet) -> bool:
    """Whether an operator behind an anchor op makes more elements than it, other than by reading its rows once more."""
    (anchor,) = operators.anchors
    if _is_row_wise(operators, anchor) and is_along_rows(operators, anchor):
        return False
    elements = [operators.graph.operations[m].output.elements for m in operators.behind]
    return max(elements) > operators.graph.operations[anchor].output.elements


def _is_product(operators: OperatorSet, member: int) -> bool:
    return operators.graph.operators[member].op in PRODUCTS and not is_depthwise(operators, member)


def _is_window(operators: OperatorSet, member: int) -> bool:
    return operators.graph.operators[member].op in _POOLINGS or is_depthwise(operators, member)


def _is_row_wise(operators: OperatorSet, member: int) -> bool:
    is_other = _is_product(operators, member) or _is_window(operators, member)
    return not is_other and operators.graph.operators[member].op not in RECURRENT


def _product_cost(operators: OperatorSet) -> float:
    """As of any kernel, with the time to write rows of a matrix product elsewhere, element by element."""
    graph, device = operators.graph, operators.device
    (anchor,) = operators.anchors
    if not device.moves_by_loops or graph.operators[anchor].op not in MATRIX_PRODUCTS:
        return operators.seconds
    columns = graph.operations[anchor].output.dimensions[-1:]
    cycles = 0.0
    for move in (graph.operations[m] for m in operators.behind if graph.operators[m].op == "Transpose"):
        perm, result = move.integers("perm"), move.output
        if perm and perm[-1] != len(perm) - 1:
            cycles += _COLUMN_CYCLES * result.elements
        elif result.dimensions and result.dimensions[-1] % device.lanes:
            cycles += _STRADDLING_CYCLES * result.elements
        elif result.dimensions[-1:] != columns:
            cycles += _SPLIT_CYCLES * result.elements
    return operators.seconds + cycles / device.clock


def _around(
    name: str,
    is_anchor: Callable[[OperatorSet, int], bool],
    cost: Callable[[OperatorSet], float] = lambda operators: operators.seconds,
) -> Template:
    """The template of kernels around one operator of a kind."""

    def accepts(operators: OperatorSet) -> str | None:
        if len(operators.anchors) == 1 and not is_anchor(operators, operators.anchors[0]):
            return "the one that reduces is of another kind"
        return why_not_one_anchor(operators)

    return Template(name, accepts, cost)


PRODUCT = _around("product", _is_product, _product_cost)
"""Matrix products and convolutions of several channels."""
WINDOW = _around("window", _is_window)
"""Reductions channel by channel: depthwise convolutions and pooling."""
ROWS = _around("rows", _is_row_wise)
"""Softmax, normalisations, and reductions over axes."""
