"""Matrix products and the operators between them as one kernel: intensive fusion (AGO, section III-B).

    {MatMul, Mul, Add} {Softmax} {MatMul}    =>    {MatMul, Mul, Add, Softmax, MatMul}

A chain starts with a product and ends with another or with a normalisation; a product that ends one can start the
next. All readers of the first one's result, direct or through others, are in the chain, so that nothing in it has to
be stored, and each block of the kernel does the same tile of rows. Transpositions of the products' operands, and the
operators behind the last one, belong to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, prod

from ....ir.operators import ELEMENTWISE, MATRIX_PRODUCTS, VIEWS
from ....ir.operators.quantization import CONVERSIONS
from ....ir.types import BYTES
from .operator_set import OperatorSet, roofline
from .row_chain import ROW_WISE, is_along_rows
from .template import Template

_BY_ROWS = 1.02
"""How many times as long arithmetic takes in tiles of rows: chains that save nothing else were measured at 1.01 to 1.02
of their parts (AMD Zen 5)."""
_BY_KEYS = 0.95
"""The same for attention by blocks of keys, whose scores stay in a near cache (0.85 for 512 to 2,048 keys on Zen 3)."""
_EXPOSED = 0.4
"""The part of the time to read keys and values again that nothing hides, if they are read block by block."""
KEY_BLOCK = 256
"""Keys of a block of attention, about, which there has to be more than one of
(`lowering/schedules/intensive/flash_attention.py`)."""
LEAST_ROWS = 8
"""The fewest rows of a tile that reaches the speed of arithmetic."""
_FLOAT_BYTES = 4


@dataclass(frozen=True)
class _Link:
    """Operators from a product to the next product or the normalisation behind it, ascending, both with them."""

    operators: OperatorSet

    @property
    def first(self) -> int:
        return self.operators.members[0]

    @property
    def last(self) -> int:
        return self.operators.members[-1]

    def result(self, member: int) -> tuple[int, ...]:
        """The shape of the first output of an operator."""
        return self.operators.within.shape(self.operators.graph.operators[member].outputs[0])

    @property
    def rows(self) -> tuple[int, ...]:
        """The shape of the rows that both ends have."""
        return self.result(self.first)

    @property
    def copies(self) -> int:
        """Matrices that it computes."""
        return prod(self.rows[:-2])

    @property
    def keys(self) -> int | None:
        """Keys of a block, if the link is attention to several blocks of them."""
        size, ops = self.rows[-1], [self.operators.graph.operators[m].op for m in self.operators.anchors]
        if len(ops) != 3 or ops[1] != "Softmax" or ops[2] not in MATRIX_PRODUCTS:
            return None
        return KEY_BLOCK if size > KEY_BLOCK else None

    @property
    def handed(self) -> int:
        """Bytes of a row that the anchor ops hand to the next at a time: in attention, those of a block of keys."""
        return _FLOAT_BYTES * (self.keys or self.rows[-1]) * max(1, len(self.operators.anchors) - 1)

    @property
    def fitting(self) -> int:
        """Rows of which half of the second cache holds the handed bytes."""
        return self.operators.device.second_cache // 2 // max(1, self.handed)

    def reread_seconds(self) -> float:
        """Seconds to read the other operands for each tile of a thread, beyond those to read its share of them once.

        Each tile of rows reads weights, keys and values again if the second cache does not hold them.
        """
        within, device = self.operators.within, self.operators.device
        threads, tiles = within.threads, self.copies * ceil(self.rows[-2] / self.fitting)
        products = (o for m in self.operators.members if (o := self.operators.graph.operators[m]).op in MATRIX_PRODUCTS)
        shapes = [within.shape(v) for v in dict.fromkeys(v for o in products for v in o.inputs[1:2]) if v is not None]
        size = sum(_FLOAT_BYTES * prod(shape) for shape in shapes)
        whole = size // self.copies if all(len(shape) > 2 for shape in shapes) else size
        if whole <= device.second_cache:
            return 0.0
        again = (ceil(max(tiles, threads) / threads) * whole - size / threads) / device.bandwidth(whole)
        return again if self.keys is None else _EXPOSED * again


def _accepts(operators: OperatorSet) -> str | None:
    if len(operators.anchors) < 2 or operators.graph.operators[operators.anchors[0]].op not in MATRIX_PRODUCTS:
        return "they are no product and other reductions"
    links = _links(operators)
    if links is None:
        return "a product's rows are not all that the next reduction reads"
    core = {m for link in links for m in link.operators.members}
    rest = operators.inside - core
    following = {links[-1].last}
    for member in operators.members:
        if not following.isdisjoint(operators.graph.predecessors[member]):
            following.add(member)
    if not _keeps_axes(operators, sorted(following - core)) or len(operators.outputs) != 1:
        return "an operator behind the chain mixes its axes"
    if not all(_is_transposed_operand(operators, core, m) for m in rest - following):
        return "an operator in front of the chain is not transposed for it alone"
    least = operators.within.threads
    for link in links:
        if link.fitting < min(link.rows[-2], LEAST_ROWS) or link.copies * ceil(link.rows[-2] / LEAST_ROWS) < least:
            return "there are no tiles of rows for the cache and all threads"
    return None


def _links(operators: OperatorSet) -> list[_Link] | None:
    """The chain from anchor op to anchor op, without row-wise ones between two products; None if there is none."""
    ops = operators.graph.operators
    ends = [m for m in operators.anchors if ops[m].op in MATRIX_PRODUCTS or m == operators.anchors[-1]]
    if any(ops[m].op not in MATRIX_PRODUCTS | ROW_WISE for m in operators.anchors):
        return None
    links = [_link(operators, first, last) for first, last in pairwise(ends)]
    return [link for link in links if link is not None] if None not in links else None


def _link(operators: OperatorSet, first: int, last: int) -> _Link | None:
    """The operators from one anchor op to another, if nothing else reads the values in front of the last."""
    graph = operators.graph
    members, todo = {first}, [first]
    while todo:
        values = graph.operators[todo.pop()].outputs
        if any(graph.values[value].is_output for value in values):
            return None
        for user in {user for value in values for user in graph.consumers[value]} - members - {last}:
            if user not in operators.inside or not _keeps_rows(operators, user):
                return None
            members.add(user)
            todo.append(user)
    if max(members) > last:
        return None
    link = _Link(operators.part({*members, last}))
    ends_in_rows = graph.operators[last].op in MATRIX_PRODUCTS or is_along_rows(operators, last)
    return link if _is_plain(link.operators) and ends_in_rows and _reads_rows(link) else None


def _keeps_rows(operators: OperatorSet, member: int) -> bool:
    """Whether each row (the last axis) of the result comes from the same row of the operands."""
    op = operators.graph.operators[member].op
    return is_along_rows(operators, member) if op in ROW_WISE else op in ELEMENTWISE


def _is_plain(operators: OperatorSet) -> bool:
    """Whether all of it is in float32, of static shapes, and known to the rules. Bytes may stand between the operators
    that make them of floats and turn them back."""
    ops = [operators.graph.operators[m] for m in operators.members]
    types = [
        (operators.graph.values[v].type, operator.op in CONVERSIONS)
        for operator in ops for v in (*operator.inputs, *operator.outputs[:1]) if v is not None
    ]  # fmt: skip
    is_float = all(
        t is not None and t.is_static and (t.dtype == "float32" or (converts and t.dtype in BYTES))
        for t, converts in types
    )
    return is_float and not any(operator.is_opaque for operator in ops)


def _reads_rows(link: _Link) -> bool:
    """Whether the last operator reads rows of the first, each of them once, and all between have their shape."""
    graph = link.operators.graph
    operator, before = graph.operators[link.last], link.operators.members[:-1]
    computed = {v for m in before for v in graph.operators[m].outputs}
    if operator.inputs[0] not in computed or not computed.isdisjoint(operator.inputs[1:]):
        return False
    rows, result = link.rows, link.result(link.last)
    if len(rows) < 2 or {link.result(m) for m in before} != {rows} or operator.attributes.get("transA", 0):
        return False
    return len(result) == len(rows) and result[:-1] == rows[:-1]


def _is_transposed_operand(operators: OperatorSet, core: set[int], member: int) -> bool:
    """Whether a product of the chain alone reads this transposition: of its second operand if rows stay rows."""
    graph = operators.graph
    operator, readers = graph.operators[member], graph.successors[member]
    if operator.op != "Transpose" or len(readers) != 1 or graph.values[operator.outputs[0]].is_output:
        return False
    (reader,) = readers
    perm, product = operator.attributes.get("perm", ()), graph.operators[reader]
    keeps_last = isinstance(perm, tuple) and bool(perm) and perm[-1] == len(perm) - 1
    if reader not in core or product.op not in MATRIX_PRODUCTS or operator.outputs[0] not in product.inputs[:2]:
        return False
    return keeps_last or product.inputs[0] == operator.outputs[0]


def _keeps_axes(operators: OperatorSet, members: Iterable[int]) -> bool:
    """Whether the operators keep axes apart: element by element, transposed, and last, perhaps, viewed otherwise."""
    viewed = False
    for op in (operators.graph.operators[member].op for member in members):
        keeps = op == "Transpose" or op in ELEMENTWISE
        if op in VIEWS:
            viewed = True
        elif viewed or not keeps:
            return False
    return True


def _cost(operators: OperatorSet) -> float:
    """As of any kernel, with the bytes that tiles read again; and arithmetic takes a little longer."""
    links = _links(operators) or []
    again = sum(link.reread_seconds() for link in links)
    arithmetic = (_BY_ROWS if any(link.keys is None for link in links) else _BY_KEYS) * operators.arithmetic
    return roofline(arithmetic, operators.moving) + operators.waiting(arithmetic) + operators.copying + again


PRODUCT_CHAIN = Template("product_chain", _accepts, _cost, rule="product_chain")
