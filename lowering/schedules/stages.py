"""What a rule needs to know of a PrimFunc: its blocks ("stages"), told apart by their iterators, reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tvm import ir, s_tir, tirx

REDUCTION = 2
"""`IterVar.CommReduce`: the kind of an iterator that a block sums (or takes the maximum of) over."""
FUNCTION = "main"
"""The name under which a schedule holds its only function."""


@dataclass(frozen=True)
class Access:
    """One buffer that a block reads or writes, and for each dimension the iterators in its index."""

    buffer: Any
    indices: tuple[Any, ...]
    iterators: tuple[frozenset[int], ...]
    steps: tuple[frozenset[int], ...] = ()
    """Those of them that are a term of the index by themselves, so that one more is the next place."""

    @property
    def name(self) -> str:
        return str(self.buffer.name)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(int(extent) for extent in self.buffer.shape)

    def used(self) -> frozenset[int]:
        """All iterators of the index."""
        return frozenset().union(*self.iterators)


@dataclass(frozen=True)
class Stage:
    """A block: `extents` of its iterators, which of them are `reduced`, and its accesses (its own output left out)."""

    block: Any
    extents: tuple[int, ...]
    reduced: frozenset[int]
    reads: tuple[Access, ...]
    write: Access
    value: Any

    @property
    def spatial(self) -> tuple[int, ...]:
        """The iterators that are not reduced, in order."""
        return tuple(i for i in range(len(self.extents)) if i not in self.reduced)

    def has_booleans(self) -> bool:
        """Whether it reads or writes booleans: TVM loads a vector of them as bits, where memory has bytes."""
        return any(str(access.buffer.dtype) == "bool" for access in (*self.reads, self.write))

    def is_pointwise(self) -> bool:
        """Whether each element of the output is written at exactly the block's iterators, and none is reduced."""
        return not self.reduced and all(len(i) <= 1 for i in self.write.iterators)


def stages(schedule: s_tir.Schedule) -> list[Stage]:
    """The blocks of the function, producers before consumers."""
    return [stage(schedule, block) for block in schedule.get_child_blocks(schedule.get_sblock("root"))]


def stage(schedule: s_tir.Schedule, block: Any) -> Stage:
    """Looks at one block."""
    statement = schedule.get(block)
    variables = [i.var for i in statement.iter_vars]
    extents = tuple(int(i.dom.extent) for i in statement.iter_vars)
    reduced = frozenset(n for n, i in enumerate(statement.iter_vars) if i.iter_type == REDUCTION)
    write = _access(statement.writes[0], variables)
    reads = [_access(region, variables) for region in statement.reads]
    value = getattr(statement.body, "value", None)
    return Stage(block, extents, reduced, tuple(r for r in reads if r.name != write.name), write, value)


def _access(region: Any, variables: list[Any]) -> Access:
    indices = tuple(r.min for r in region.region)
    used = tuple(frozenset(_used(index, variables)) for index in indices)
    return Access(region.source, indices, used, tuple(frozenset(_terms(index, variables)) for index in indices))


def _terms(index: Any, variables: list[Any]) -> Iterator[int]:
    """The iterators that are terms of a sum."""
    if isinstance(index, tirx.Add):
        yield from _terms(index.a, variables)
        yield from _terms(index.b, variables)
    elif isinstance(index, tirx.Sub):
        yield from _terms(index.a, variables)
    elif isinstance(index, tirx.Var):
        yield from (n for n, variable in enumerate(variables) if variable.same_as(index))


def _used(expression: Any, variables: list[Any]) -> Iterator[int]:
    for leaf in walk(expression):
        if isinstance(leaf, tirx.Var):
            yield from (n for n, variable in enumerate(variables) if variable.same_as(leaf))


def walk(expression: Any) -> Iterator[Any]:
    """The expression and all parts of it, depth first."""
    yield expression
    for part in children(expression):
        yield from walk(part)


def children(expression: Any) -> Iterable[Any]:
    """The direct parts of an expression: operands, arguments, indices."""
    if isinstance(expression, ir.TensorLoad):
        return list(expression.indices)
    if hasattr(expression, "args"):
        return list(expression.args)
    names = ("a", "b", "condition", "true_value", "false_value", "value", "body")
    return [getattr(expression, name) for name in names if hasattr(expression, name)]


def may_inline(all_stages: list[Stage], producer: Stage) -> bool:
    """Whether TVM can inline the block: an expression that names its parts (`Let`) may have one place only."""
    if not any(isinstance(part, tirx.Let) for part in walk(producer.value)):
        return True
    readers = consumers(all_stages, producer)
    loads = [p for s in readers for p in walk(s.value) if isinstance(p, ir.TensorLoad)]
    return sum(str(load.source.name) == producer.write.name for load in loads) <= 1


def is_product_sum(stage: Stage) -> bool:
    """Whether the block adds products of two different buffers to its output: a matmul or a convolution."""
    if not stage.reduced or len(stage.reads) != 2:
        return False
    value = stage.value
    return isinstance(value, tirx.Add) and any(isinstance(side, tirx.Mul) for side in (value.a, value.b))


def index_map(function: Callable[..., list[Any]], count: int) -> Any:
    """The function of `count` indices as TVM takes it for a block, whose indices have 32 bits."""
    return tirx.IndexMap.from_func(function, count, index_dtype="int32")


def is_parameter(function: tirx.PrimFunc, buffer: Any) -> bool:
    """Whether the buffer comes from outside."""
    return parameter_index(function, buffer) is not None


def parameter_index(function: tirx.PrimFunc, buffer: Any) -> int | None:
    """Which parameter the buffer is."""
    return next((n for n, p in enumerate(function.params) if p.same_as(buffer)), None)


def consumers(all_stages: list[Stage], producer: Stage) -> list[Stage]:
    """The blocks that read what `producer` writes."""
    return [s for s in all_stages if any(r.name == producer.write.name for r in s.reads)]


def is_unit_stride(access: Access, iterator: int) -> bool:
    """Whether one more of the iterator is the next element in memory."""
    if _is_flat(access, iterator):
        return True
    long = [d for d, extent in enumerate(access.shape) if extent != 1]
    last = long[-1] if long else len(access.shape) - 1
    if last < 0 or [d for d, used in enumerate(access.iterators) if iterator in used] != [last]:
        return False
    return iterator in access.steps[last]


def _is_flat(access: Access, iterator: int) -> bool:
    """Whether the last two indices are iterator // width and iterator % width."""
    if len(access.indices) < 2 or any(iterator in used for used in access.iterators[:-2]):
        return False
    row, column = access.indices[-2:]
    width = access.shape[-1]
    divided = isinstance(row, tirx.FloorDiv) and isinstance(column, tirx.FloorMod)
    alone = access.iterators[-2:] == (frozenset({iterator}),) * 2
    return bool(divided and alone and isinstance(row.a, tirx.Var) and int(row.b) == int(column.b) == width)
