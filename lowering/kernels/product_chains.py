"""Which matrix products become one kernel, with all between them (AGO, section III-B), where the device model says so.

    {MatMul, Mul, Add} {Softmax} {MatMul}    =>    {MatMul, Mul, Add, Softmax, MatMul}

A chain starts with a product and ends with another or with a normalisation. All that reads the first one's result,
directly or through others, is in the chain, so that nothing in it has to be stored, and each block of the kernel does
the same tile of rows: there is a schedule for such kernels (schedules/intensive/product_chain.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from math import ceil, prod

from ...costmodels.device import Device
from ...costmodels.flops import flops
from ...engine.summary import VIEWS
from ...extract.partition.kernels import Members
from ...ir.graph import OperatorGraph
from ...ir.operators import ELEMENTWISE
from ...support.directed_graphs import CycleError, connected_components, topological_order
from .prim_funcs import list_outputs

PRODUCTS = frozenset({"MatMul", "Gemm"})
ROW_WISE = frozenset({"Softmax", "LayerNormalization", "RMSNormalization"})
_ANCHORS = PRODUCTS | ROW_WISE
ENDS = (PRODUCTS, ROW_WISE)
"""Operators that end a chain, in the order in which they are tried; one can end a chain and start the next."""
WORTH = 0.01
"""The saving has to be at least this share of the time for arithmetic: both are estimates."""
LEAST_ROWS = 8
"""A tile of fewer rows than this does not reach the speed of arithmetic."""
_FLOAT_BYTES = 4


@dataclass(frozen=True)
class OperatorChain:
    """Operators from `first` to `last` (ascending, both with them): all that depends on the first, before the last."""

    graph: OperatorGraph
    members: Members

    @property
    def first(self) -> int:
        """The product that starts it."""
        return self.members[0]

    @property
    def last(self) -> int:
        """The operator that ends it."""
        return self.members[-1]

    def shape(self, value: int) -> tuple[int, ...]:
        """The shape of a value, which is static."""
        return self.graph.values[value].extent.dimensions

    def result(self, member: int) -> tuple[int, ...]:
        """The shape of the first output of an operator."""
        return self.shape(self.graph.operators[member].outputs[0])


def find_chain(
    graph: OperatorGraph, first: int, inside: Collection[int], ends: frozenset[str]
) -> OperatorChain | None:
    """The chain from that operator to one of `ends` that stays `inside`; None where there is none."""
    if first not in inside or graph.operators[first].op not in PRODUCTS:
        return None
    members, last, todo = {first}, None, [first]
    while todo:
        for user in (user for value in graph.operators[todo.pop()].outputs for user in graph.consumers[value]):
            if user in members or user == last:
                continue
            if user not in inside:
                return None
            if graph.operators[user].op in ends:
                if last is not None:
                    return None
                last = user
            elif _keeps_rows(graph, user):
                members.add(user)
                todo.append(user)
            else:
                return None
    outputs = (value for member in members for value in graph.operators[member].outputs)
    if last is None or max(members) > last or any(graph.values[value].is_output for value in outputs):
        return None
    chain = OperatorChain(graph, (*sorted(members), last))
    ends_in_rows = graph.operators[last].op not in ROW_WISE or _is_along_rows(graph, last)
    return chain if _is_plain(chain) and ends_in_rows and _reads_rows(chain) else None


def _is_plain(chain: OperatorChain) -> bool:
    """Whether all of it is in float32, of static shapes, and known to the rules."""
    operators = [chain.graph.operators[m] for m in chain.members]
    used = {v for operator in operators for v in (*operator.inputs, *operator.outputs[:1]) if v is not None}
    types = [chain.graph.values[v].type for v in used]
    is_float = all(t is not None and t.is_static and t.dtype == "float32" for t in types)
    return is_float and not any(operator.is_opaque for operator in operators)


def _keeps_rows(graph: OperatorGraph, member: int) -> bool:
    """Whether each row (the last axis) of the result comes from the same row of the operands."""
    op = graph.operators[member].op
    if op in ROW_WISE:
        return _is_along_rows(graph, member)
    return op in ELEMENTWISE


def _is_along_rows(graph: OperatorGraph, member: int) -> bool:
    operator = graph.operators[member]
    rank = len(graph.values[operator.outputs[0]].extent.dimensions)
    axis = dict(operator.attributes).get("axis", -1)
    return isinstance(axis, int) and axis % rank == rank - 1


def _reads_rows(chain: OperatorChain) -> bool:
    """Whether the last operator reads rows of the first, each of them once, and all between have their shape."""
    graph, operator = chain.graph, chain.graph.operators[chain.last]
    computed = {v for m in chain.members[:-1] for v in graph.operators[m].outputs}
    if operator.inputs[0] not in computed or not computed.isdisjoint(operator.inputs[1:]):
        return False
    rows, shapes = chain.result(chain.first), {chain.result(m) for m in chain.members[:-1]}
    if len(rows) < 2 or shapes != {rows} or dict(operator.attributes).get("transA", 0):
        return False
    return len(chain.result(chain.last)) == len(rows) and chain.result(chain.last)[:-1] == rows[:-1]


# --- whether it pays


def saves_time(chain: OperatorChain, device: Device, threads: int) -> bool:
    """Whether the chain saves more time than it takes to read operands again, by enough to be worth it.

    Saved are one launch for each anchor op but the first, and writing and reading what they hand over. Read again by
    each tile of rows, where the second cache does not hold them, are the other operands of the products: weights, keys
    and values. A tile has to fit half of that cache, and there have to be tiles for all threads.
    """
    graph = chain.graph
    rows, width = chain.result(chain.first)[-2:]
    anchors = [m for m in chain.members if graph.operators[m].op in _ANCHORS]
    copies = prod(chain.result(chain.first)[:-2])
    fitting = device.second_cache // 2 // (_FLOAT_BYTES * width * max(1, len(anchors) - 1))
    if fitting < min(rows, LEAST_ROWS) or copies * ceil(rows / LEAST_ROWS) < threads:
        return False
    handed = _FLOAT_BYTES * prod(chain.result(chain.first)) * (len(anchors) - 1)
    saved = (len(anchors) - 1) * device.launch_overhead + 2 * handed / device.bandwidth(handed)
    busy = sum(flops(graph.operations[m]) for m in anchors) / device.peak_flops
    return saved >= _reread_seconds(chain, copies * ceil(rows / fitting), device, threads) + WORTH * busy


def _reread_seconds(chain: OperatorChain, tiles: int, device: Device, threads: int) -> float:
    """Seconds to read the other operands for each tile of a thread, without the time to read its share of them once."""
    products = (operator for m in chain.members if (operator := chain.graph.operators[m]).op in PRODUCTS)
    others = {value for product in products for value in product.inputs[1:2] if value is not None}
    size = sum(_FLOAT_BYTES * prod(chain.shape(value)) for value in others)
    copies = prod(chain.result(chain.first)[:-2])
    whole = size // copies if all(len(chain.shape(v)) > 2 for v in others) else size
    if whole <= device.second_cache:
        return 0.0
    return (ceil(max(tiles, threads) / threads) * whole - size / threads) / device.bandwidth(whole)


# --- kernels


def join_chains(
    graph: OperatorGraph,
    kernels: Iterable[Sequence[int]],
    device: Device,
    threads: int,
    fits: Callable[[Members], bool],
) -> tuple[Members, ...]:
    """The kernels with those of each chain made one, in an order in which they can run.

    Of the kernels of a chain, transpositions of the products' operands and what follows the last operator come along;
    the rest are kernels of their own. An operator is in at most one chain for each kind of end. `fits` is asked about
    the operators of a kernel: whether there is a schedule for them.
    """
    joined = [tuple(sorted(kernel)) for kernel in kernels]
    inside = {member for kernel in joined for member in kernel}
    for ends in ENDS:
        taken: set[int] = set()
        for first in sorted(inside):
            chain = find_chain(graph, first, inside, ends)
            if chain is None or not taken.isdisjoint(chain.members) or not saves_time(chain, device, threads):
                continue
            if any(set(kernel).issuperset(chain.members) for kernel in joined):
                continue
            whole = _extend_chain(chain, joined)
            if whole is not None and fits(whole) and (new := _make_one(graph, joined, whole)) is not None:
                joined = new
                taken.update(chain.members)
    return tuple(joined)


def _extend_chain(chain: OperatorChain, kernels: list[Members]) -> Members | None:
    """The operators of the kernel for a chain; None where those after it in its last kernel cannot come along."""
    graph, core = chain.graph, set(chain.members)
    hosts = [kernel for kernel in kernels if not core.isdisjoint(kernel)]
    for host in hosts:  # all operators of a kernel that is a chain already, and that this one continues
        if chain.first in host and sum(graph.operators[m].op in _ANCHORS for m in host) > 1:
            core.update(host)
    core |= _find_transpositions(graph, core, {m for host in hosts for m in host})
    (tail,) = (host for host in hosts if chain.last in host)
    following = {chain.last}
    for member in sorted(tail):
        if not following.isdisjoint(graph.predecessors[member]):
            following.add(member)
    if len(list_outputs(graph, core | following)) != 1:
        return tuple(sorted(core))
    return tuple(sorted(core | following)) if _keeps_axes(graph, sorted(following - core)) else None


def _make_one(graph: OperatorGraph, kernels: list[Members], whole: Members) -> list[Members] | None:
    """The kernels with that one, and with the rests of others; None where they could not run one by one."""
    hosts = [kernel for kernel in kernels if not set(whole).isdisjoint(kernel)]
    apart = ({m: graph.successors[m] for m in host if m not in whole} for host in hosts)
    rest = [tuple(sorted(part)) for readers in apart for part in connected_components(readers)]
    return order_kernels(graph, [*(kernel for kernel in kernels if kernel not in hosts), *rest, whole])


def _find_transpositions(graph: OperatorGraph, core: set[int], near: set[int]) -> set[int]:
    """Transpositions that only a product of the chain reads; of its second operand if rows stay rows in memory."""
    transpositions: set[int] = set()
    for member in (m for m in core if graph.operators[m].op in PRODUCTS):
        for position, value in enumerate(graph.operators[member].inputs[:2]):
            source = None if value is None else graph.values[value].producer
            if source is None or source not in near - core or graph.operators[source].op != "Transpose":
                continue
            perm = dict(graph.operators[source].attributes).get("perm", ())
            keeps_last = isinstance(perm, tuple) and bool(perm) and perm[-1] == len(perm) - 1
            alone = list_outputs(graph, {source, member}) == tuple(graph.operators[member].outputs)
            if alone and (position == 0 or keeps_last):
                transpositions.add(source)
    return transpositions


def _keeps_axes(graph: OperatorGraph, members: Iterable[int]) -> bool:
    """Whether the operators keep axes apart: element by element, transposed, and last, perhaps, viewed otherwise."""
    viewed = False
    for op in (graph.operators[member].op for member in members):
        keeps = op == "Transpose" or op in ELEMENTWISE
        if op in VIEWS:
            viewed = True
        elif viewed or not keeps:
            return False
    return True


def order_kernels(graph: OperatorGraph, kernels: Sequence[Members]) -> list[Members] | None:
    """Kernels after those they read from, otherwise as their first operators come; None where that cannot be."""
    home = {member: kernel for kernel in kernels for member in kernel}
    readers = {k: {home[s] for m in k for s in graph.successors[m] if s in home} - {k} for k in kernels}
    try:
        return topological_order(readers, key=tuple)
    except CycleError:
        return None
