"""Which matrix products become one kernel, with all between them (AGO, section III-B), where the device model says so.

    {MatMul, Mul, Add} {Softmax} {MatMul}    =>    {MatMul, Mul, Add, Softmax, MatMul}

A pattern names the operator that starts a chain, what may stand between, and the operator that ends it. All that reads
the first one's result, directly or through others, is in the chain, so that nothing in it has to be stored, and each
block of the kernel does the same tile of rows: there is a schedule for such kernels (schedules/product_chain.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from math import ceil, prod

from ...costmodels.device import Device
from ...costmodels.flops import flops
from ...engine.summary import VIEWS
from ...ir.graph import OperatorGraph
from ...ir.operators import OPERATORS
from ...support.directed_graphs import CycleError, connected_components, topological_order

Members = tuple[int, ...]
"""Operators of one kernel, ascending."""
PRODUCTS = frozenset({"MatMul", "Gemm"})
ROW_WISE = frozenset({"Softmax", "LayerNormalization", "RMSNormalization"})
WORTH = 0.01
"""What is saved has to be at least this share of the time for arithmetic: both are estimates."""
LEAST_ROWS = 8
"""A tile of fewer rows than this does not reach the speed of arithmetic."""
_FLOAT = "float32"


@dataclass(frozen=True)
class Chain:
    """Operators from `first` to `last` (ascending, both with them): all that depends on the first, before the last."""

    graph: OperatorGraph
    members: Members

    @property
    def first(self) -> int:
        """The complex operator that starts it."""
        return self.members[0]

    @property
    def last(self) -> int:
        """The operator that ends it."""
        return self.members[-1]

    def shape(self, value: int) -> tuple[int, ...]:
        """The shape of a value, which is static."""
        return self.graph.values[value].extent.dimensions

    def result(self, member: int) -> tuple[int, ...]:
        """The shape of what an operator makes."""
        return self.shape(self.graph.operators[member].outputs[0])


@dataclass(frozen=True)
class Pattern:
    """Chains of one kind: the operators at its ends and between them, what else must hold, and whether it pays.

    `fits` is about the structure, `pays` about time on a device with a number of threads.
    """

    name: str
    first: frozenset[str]
    between: Callable[[OperatorGraph, int], bool]
    last: frozenset[str]
    fits: Callable[[Chain], bool]
    pays: Callable[[Chain, Device, int], bool]

    def match(self, graph: OperatorGraph, first: int, inside: Collection[int]) -> Chain | None:
        """The chain that starts with that operator and stays `inside`; None where there is none."""
        if first not in inside or graph.operators[first].op not in self.first:
            return None
        members, last = {first}, None
        todo = [first]
        while todo:
            for user in self._users(graph, todo.pop()):
                if user in members or user == last:
                    continue
                if user not in inside:
                    return None
                if graph.operators[user].op in self.last:
                    if last is not None:
                        return None
                    last = user
                elif self.between(graph, user):
                    members.add(user)
                    todo.append(user)
                else:
                    return None
        if last is None or max(members) > last or any(_is_output(graph, m) for m in members):
            return None
        chain = Chain(graph, (*sorted(members), last))
        return chain if _is_plain(chain) and self.fits(chain) else None

    def _users(self, graph: OperatorGraph, member: int) -> Iterable[int]:
        return (user for value in graph.operators[member].outputs for user in graph.consumers[value])


def _is_output(graph: OperatorGraph, member: int) -> bool:
    return any(graph.values[value].is_output for value in graph.operators[member].outputs)


def _is_plain(chain: Chain) -> bool:
    """Whether all of it is in float32, of static shapes, and known to the rules."""
    graph = chain.graph
    used = {v for m in chain.members for v in (*graph.operators[m].inputs, *graph.operators[m].outputs[:1])}
    types = [graph.values[v].type for v in used if v is not None]
    known = all(t is not None and t.is_static and t.dtype == _FLOAT for t in types)
    return known and not any(graph.operators[m].is_opaque for m in chain.members)


# --- chains of matrix products


def keeps_rows(graph: OperatorGraph, member: int) -> bool:
    """Whether each row (the last axis) of the result comes from the same row of the operands."""
    operator = graph.operators[member]
    signature = OPERATORS.get(operator.op)
    if operator.op in ROW_WISE:
        return _is_along_rows(graph, member)
    return signature is not None and signature.category.startswith("elementwise")


def _is_along_rows(graph: OperatorGraph, member: int) -> bool:
    operator = graph.operators[member]
    rank = len(graph.values[operator.outputs[0]].extent.dimensions)
    axis = dict(operator.attributes).get("axis", -1)
    return isinstance(axis, int) and axis % rank == rank - 1


def _reads_rows(chain: Chain) -> bool:
    """Whether the last operator reads rows of the first, each of them once, and all between have their shape."""
    graph, operator = chain.graph, chain.graph.operators[chain.last]
    made = {v for m in chain.members[:-1] for v in graph.operators[m].outputs}
    if operator.inputs[0] not in made or not made.isdisjoint(operator.inputs[1:]):
        return False
    rows, alike = chain.result(chain.first), {chain.result(m) for m in chain.members[:-1]}
    if len(rows) < 2 or alike != {rows} or dict(operator.attributes).get("transA", 0):
        return False
    return len(chain.result(chain.last)) == len(rows) and chain.result(chain.last)[:-1] == rows[:-1]


def _ends_in_rows(chain: Chain) -> bool:
    return _is_along_rows(chain.graph, chain.last) and _reads_rows(chain)


def pays(chain: Chain, device: Device, threads: int) -> bool:
    """Whether what is saved takes longer than what is read again, and is worth it.

    Saved are one launch for each anchor op but the first, and writing and reading what they hand over. Read again by
    each tile of rows, where the second cache does not hold them, are the other operands of the products: weights, keys
    and values. A tile has to fit half of that cache, and there have to be tiles for all threads.
    """
    graph = chain.graph
    rows, width = chain.result(chain.first)[-2:]
    anchors = [m for m in chain.members if graph.operators[m].op in PRODUCTS | ROW_WISE]
    copies = prod(chain.result(chain.first)[:-2])
    second = device.second_cache
    fitting = second // 2 // (4 * width * max(1, len(anchors) - 1))
    if fitting < min(rows, LEAST_ROWS) or copies * ceil(rows / LEAST_ROWS) < threads:
        return False
    handed = 4 * prod(chain.result(chain.first)) * (len(anchors) - 1)
    saved = (len(anchors) - 1) * device.launch_overhead + 2 * handed / device.bandwidth(handed)
    busy = sum(flops(graph.operations[m]) for m in anchors) / device.peak_flops
    return saved >= _read_again(chain, copies * ceil(rows / fitting), device, threads) + WORTH * busy


def _read_again(chain: Chain, tiles: int, device: Device, threads: int) -> float:
    """Seconds to read the other operands for each tile of a thread, without the time to read its share of them once."""
    graph = chain.graph
    others = {
        value
        for member in chain.members
        if graph.operators[member].op in PRODUCTS
        for value in graph.operators[member].inputs[1:2]
        if value is not None
    }
    size = sum(4 * prod(chain.shape(value)) for value in others)
    copies = prod(chain.result(chain.first)[:-2])
    whole = size // copies if all(len(chain.shape(v)) > 2 for v in others) else size
    if whole <= device.second_cache:
        return 0.0
    return (ceil(max(tiles, threads) / threads) * whole - size / threads) / device.bandwidth(whole)


PATTERNS: tuple[Pattern, ...] = (
    Pattern("products", PRODUCTS, keeps_rows, PRODUCTS, _reads_rows, pays),
    Pattern("product and normalisation", PRODUCTS, keeps_rows, ROW_WISE, _ends_in_rows, pays),
)
"""In the order in which they are tried; an operator can end one chain and start the next."""


# --- kernels


def with_chains(
    graph: OperatorGraph,
    kernels: Iterable[Sequence[int]],
    device: Device,
    threads: int,
    fits: Callable[[Members], bool],
) -> tuple[Members, ...]:
    """The kernels with those of each chain made one, in an order in which they can run.

    Of the kernels of a chain, transpositions of the products' operands and what follows the last operator come along;
    the rest are kernels of their own. An operator is in at most one chain of a pattern. `fits` is asked about the
    operators of a kernel: whether there is a schedule for them.
    """
    joined = [tuple(sorted(kernel)) for kernel in kernels]
    inside = {member for kernel in joined for member in kernel}
    for pattern in PATTERNS:
        taken: set[int] = set()
        for first in sorted(inside):
            chain = pattern.match(graph, first, inside)
            if chain is None or not taken.isdisjoint(chain.members) or _is_joined(chain, joined):
                continue
            whole = _whole(chain, joined) if pattern.pays(chain, device, threads) else None
            if whole is not None and fits(whole) and (new := _with(graph, joined, whole)) is not None:
                joined = new
                taken.update(chain.members)
    return tuple(joined)


def _is_joined(chain: Chain, kernels: Iterable[Members]) -> bool:
    return any(set(kernel).issuperset(chain.members) for kernel in kernels)


def _whole(chain: Chain, kernels: list[Members]) -> Members | None:
    """The operators of the kernel for a chain; None where what follows it in its last kernel cannot come along."""
    graph, core = chain.graph, set(chain.members)
    hosts = [kernel for kernel in kernels if not core.isdisjoint(kernel)]
    for host in hosts:
        core |= _earlier(graph, host, chain)
    core |= _transpositions(graph, core, {m for host in hosts for m in host})
    (tail,) = (host for host in hosts if chain.last in host)
    following = _following(graph, chain.last, tail)
    if len(_leaving(graph, core | following)) != 1:
        return tuple(sorted(core))
    return tuple(sorted(core | following)) if _keeps_axes(graph, sorted(following - core)) else None


def _with(graph: OperatorGraph, kernels: list[Members], whole: Members) -> list[Members] | None:
    """The kernels with that one, and with what is left of others; None where they could not run one by one."""
    hosts = [kernel for kernel in kernels if not set(whole).isdisjoint(kernel)]
    apart = ({m: graph.successors[m] for m in host if m not in whole} for host in hosts)
    rest = [tuple(sorted(part)) for readers in apart for part in connected_components(readers)]
    return in_order(graph, [*(kernel for kernel in kernels if kernel not in hosts), *rest, whole])


def _earlier(graph: OperatorGraph, host: Members, chain: Chain) -> set[int]:
    """All operators of a kernel that is a chain already, and that this one continues."""
    anchors = [m for m in host if graph.operators[m].op in PRODUCTS | ROW_WISE]
    return set(host) if chain.first in host and len(anchors) > 1 else set()


def _transpositions(graph: OperatorGraph, core: set[int], near: set[int]) -> set[int]:
    """Transpositions that only a product of the chain reads; of its second operand if rows stay rows in memory."""
    found: set[int] = set()
    for member in core:
        if graph.operators[member].op not in PRODUCTS:
            continue
        for position, value in enumerate(graph.operators[member].inputs[:2]):
            source = None if value is None else graph.values[value].producer
            if source is None or source not in near - core or graph.operators[source].op != "Transpose":
                continue
            perm = dict(graph.operators[source].attributes).get("perm", ())
            keeps_last = isinstance(perm, tuple) and bool(perm) and perm[-1] == len(perm) - 1
            if _leaving(graph, {source, member}) == list(graph.operators[member].outputs) and (
                position == 0 or keeps_last
            ):
                found.add(source)
    return found


def _keeps_axes(graph: OperatorGraph, members: Iterable[int]) -> bool:
    """Whether the operators keep axes apart: element by element, transposed, and last, perhaps, viewed otherwise."""
    viewed = False
    for member in members:
        operator = graph.operators[member]
        known = OPERATORS.get(operator.op)
        if operator.op in VIEWS:
            viewed = True
        elif viewed or known is None or not (known.category.startswith("elementwise") or operator.op == "Transpose"):
            return False
    return True


def _following(graph: OperatorGraph, member: int, kernel: Members) -> set[int]:
    """Operators of the kernel that need this one."""
    found = {member}
    for other in sorted(kernel):
        if not found.isdisjoint(graph.predecessors[other]):
            found.add(other)
    return found


def _leaving(graph: OperatorGraph, members: set[int]) -> list[int]:
    """Values that the operators make and others read, or whoever runs the graph."""
    made = [value for member in sorted(members) for value in graph.operators[member].outputs]
    return [v for v in made if graph.values[v].is_output or not members.issuperset(graph.consumers[v])]


def in_order(graph: OperatorGraph, kernels: Sequence[Members]) -> list[Members] | None:
    """Kernels after those they read from, otherwise as their first operators come; None where that cannot be."""
    home = {member: kernel for kernel in kernels for member in kernel}
    readers = {k: {home[s] for m in k for s in graph.successors[m] if s in home} - {k} for k in kernels}
    try:
        return topological_order(readers, key=tuple)
    except CycleError:
        return None
