"""The blocks of a function as schedule rules see them: iterators, reads, writes, and the value of an element."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import tvm_ffi
from tvm import ir, s_tir, tirx

from ...compute.integers import is_arithmetic
from .extents import extent_of
from .nodes import Buffer, Expression, Variable

REDUCTION = 2
"""`IterVar.CommReduce`: the kind of an iterator that a block sums (or takes the maximum of) over."""
FUNCTION = "main"
"""The name under which a schedule holds its only function."""
PARTS = "eqfuse.parts"
"""Attribute of a function: the parameters that are columns of wider tensors, so that their rows lie apart, by name, and
how many elements the rows of the wider ones have."""


@dataclass(frozen=True)
class BufferAccess:
    """One buffer that a block reads or writes, and for each dimension the iterators in its index."""

    buffer: Buffer
    shape: tuple[int, ...]
    indices: tuple[Expression, ...]
    iterators: tuple[frozenset[int], ...]
    steps: tuple[frozenset[int], ...] = ()
    """For each dimension the iterators that are a term of the index: one more of them is the next place."""
    is_computed: bool = False
    """Whether a place along some dimension is computed, so that its index says nothing of the iterators in it."""
    is_part: bool = False
    """Whether the buffer is listed in the attribute PARTS."""

    @property
    def name(self) -> str:
        """The buffer's name, which is unique in a function."""
        return str(self.buffer.name)

    @property
    def used(self) -> frozenset[int]:
        """All iterators of the index."""
        return frozenset().union(*self.iterators)

    def dimension_of(self, iterator: int) -> int:
        """The first dimension whose index has the iterator."""
        return next(d for d, used in enumerate(self.iterators) if iterator in used)

    def is_unit_stride(self, iterator: int) -> bool:
        """Whether one more of the iterator is the next element in memory."""
        if self._is_flattened_by(iterator):
            return True
        long = [d for d, extent in enumerate(self.shape) if extent != 1]
        last = long[-1] if long else len(self.shape) - 1
        if last < 0 or [d for d, used in enumerate(self.iterators) if iterator in used] != [last]:
            return False
        return iterator in self.steps[last]

    def _is_flattened_by(self, iterator: int) -> bool:
        """Whether the last two indices are iterator // width and iterator % width."""
        if len(self.indices) < 2 or any(iterator in used for used in self.iterators[:-2]):
            return False
        row, column = self.indices[-2:]
        divided = isinstance(row, tirx.FloorDiv) and isinstance(column, tirx.FloorMod)
        alone = self.iterators[-2:] == (frozenset({iterator}),) * 2
        fixed = divided and isinstance(row.b, tirx.IntImm) and isinstance(column.b, tirx.IntImm)
        return bool(fixed and alone and isinstance(row.a, tirx.Var) and int(row.b) == int(column.b) == self.shape[-1])


@dataclass(frozen=True)
class BlockInfo:
    """A block: the `extents` of its iterators, which of them are `reduced`, its accesses (as reads, not its output)."""

    block: Any
    extents: tuple[int, ...]
    reduced: frozenset[int]
    reads: tuple[BufferAccess, ...]
    writes: tuple[BufferAccess, ...]
    value: Any
    variables: tuple[Variable, ...] = ()
    """The iterators as indices and value have them."""

    @property
    def write(self) -> BufferAccess:
        """The access that it writes; of a block with several results, the first one."""
        return self.writes[0]

    @property
    def name(self) -> str:
        """The buffer that it writes, which is unique in a function."""
        return self.write.name

    @property
    def spatial(self) -> tuple[int, ...]:
        """The iterators that are not reduced, in order."""
        return tuple(i for i in range(len(self.extents)) if i not in self.reduced)

    @property
    def depth(self) -> int:
        """The number of steps of its reduction."""
        return prod(self.extents[i] for i in self.reduced)

    def read_of(self, producer: BlockInfo) -> BufferAccess:
        """How it reads the output of another block."""
        return next(read for read in self.reads if read.name == producer.name)

    def operands(self, iterator: int) -> tuple[BufferAccess, ...]:
        """The reads whose index has the iterator."""
        return tuple(read for read in self.reads if iterator in read.used)

    def is_pointwise(self) -> bool:
        """Whether each element of the output is written at exactly the block's iterators, and none is reduced."""
        return not self.reduced and all(len(i) <= 1 for i in self.write.iterators)

    def is_product_sum(self) -> bool:
        """Whether it adds products of two different buffers to its output: a matrix product or a convolution."""
        if not self.reduced or len(self.reads) != 2:
            return False
        value = self.value
        return isinstance(value, tirx.Add) and any(isinstance(side, tirx.Mul) for side in (value.a, value.b))

    def is_cheap(self) -> bool:
        """Whether it may be computed again at every use: it has no selections (padding) and no functions."""
        return not any(isinstance(part, ir.Call) and not is_arithmetic(part) for part in walk(self.value))

    def is_selective(self) -> bool:
        """Whether it computes some elements from others than the rest, as padding does."""
        return any(map(is_selection, walk(self.value)))


Inspected = dict[Any, "BlockInfo"]
"""Descriptions of the blocks of schedules of one function, by their statements, which never change."""


def find_blocks(schedule: s_tir.Schedule, inspected: Inspected | None = None) -> list[BlockInfo]:
    """The blocks of the function, producers before consumers."""
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    return [inspect_block(schedule, block, inspected) for block in blocks]


def inspect_block(schedule: s_tir.Schedule, block: Any, inspected: Inspected | None = None) -> BlockInfo:
    """The description of one block; one that was `inspected` is described as before."""
    statement = schedule.get(block)
    if inspected is not None and statement in inspected:
        return replace(inspected[statement], block=block)
    function = schedule.mod[FUNCTION]
    variables = [i.var for i in statement.iter_vars]
    numbers = {variable: number for number, variable in enumerate(variables)}
    extents = tuple(extent_of(i.dom.extent, function) for i in statement.iter_vars)
    reduced = frozenset(n for n, i in enumerate(statement.iter_vars) if i.iter_type == REDUCTION)
    widths = _widths_around(function)
    writes = tuple(_inspect_access(region, numbers, function, widths) for region in statement.writes)
    reads = [_inspect_access(region, numbers, function, widths) for region in statement.reads]
    value = getattr(statement.body, "value", None)
    others = tuple(r for r in reads if r.name != writes[0].name)
    info = BlockInfo(block, extents, reduced, others, writes, value, tuple(variables))
    if inspected is not None:
        inspected[statement] = info
    return info


def _inspect_access(
    region: Any, variables: Mapping[Variable, int], function: Any, widths: Mapping[str, int]
) -> BufferAccess:
    def numbers(parts: Iterable[Any]) -> frozenset[int]:
        return frozenset(variables[part] for part in parts if isinstance(part, tirx.Var) and part in variables)

    indices = tuple(r.min for r in region.region)
    iterators = tuple(numbers(walk(index)) for index in indices)
    shape = tuple(extent_of(extent, function) for extent in region.source.shape)
    steps = tuple(numbers(_summands(index)) for index in indices)
    is_computed = not all(isinstance(r.extent, tirx.IntImm) and int(r.extent) == 1 for r in region.region)
    is_part = str(region.source.name) in widths
    return BufferAccess(region.source, shape, indices, iterators, steps, is_computed, is_part)


def element_bytes(buffer: Buffer) -> int:
    """Bytes of an element of a buffer."""
    return (tvm_ffi.dtype(str(buffer.dtype)).bits + 7) // 8


def _widths_around(function: tirx.PrimFunc) -> Mapping[str, int]:
    return {str(name): int(width) for name, width in (function.attrs or {}).get(PARTS, {}).items()}


def shape_in_memory(function: tirx.PrimFunc, buffer: Buffer) -> list[Any]:
    """The shape that says how far apart elements of a buffer are: of a part, that of the tensor it is a part of."""
    width = _widths_around(function).get(str(buffer.name))
    return list(buffer.shape) if width is None else [*buffer.shape[:-1], tirx.const(width, "int32")]


def _summands(index: Expression) -> Iterator[Expression]:
    """The terms of a sum that are not subtracted."""
    if isinstance(index, tirx.Add | tirx.Sub):
        yield from _summands(index.a)
        yield from _summands(index.b) if isinstance(index, tirx.Add) else ()
    else:
        yield index


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and all parts of it, depth first."""
    pending = [expression]
    while pending:
        part = pending.pop()
        yield part
        if isinstance(part, tirx.Var | tirx.IntImm):
            continue
        if isinstance(part, ir.TensorLoad):
            parts: list[Any] = list(part.indices)
        elif hasattr(part, "args"):
            parts = list(part.args)
        else:
            names = ("a", "b", "condition", "true_value", "false_value", "value", "body")
            parts = [getattr(part, name) for name in names if hasattr(part, name)]
        pending.extend(reversed(parts))


def uses(expression: Expression, variables: Iterable[Variable]) -> bool:
    """Whether any of the variables is a part of the expression."""
    used = [part for part in walk(expression) if isinstance(part, tirx.Var)]
    return any(part.same_as(variable) for part in used for variable in variables)


def is_selection(expression: Expression) -> bool:
    """Whether the expression is a call of ``if_then_else``."""
    return isinstance(expression, ir.Call) and "if_then_else" in str(expression.op)


def is_zero(expression: Expression) -> bool:
    """Whether the expression is the float 0."""
    return isinstance(expression, tirx.FloatImm) and float(expression.value) == 0.0


def find_consumers(blocks: Iterable[BlockInfo], producer: BlockInfo) -> list[BlockInfo]:
    """The blocks that read the output of `producer`."""
    return [block for block in blocks if any(read.name == producer.name for read in block.reads)]


def parameter_index(function: tirx.PrimFunc, buffer: Buffer) -> int | None:
    """The number of the parameter that the buffer is; None for an intermediate result."""
    return next((n for n, p in enumerate(function.params) if p.same_as(buffer)), None)


def index_map(function: Callable[..., list[Any]], count: int) -> Any:
    """The function of `count` indices as TVM takes it for a block, whose indices have 32 bits."""
    return tirx.IndexMap.from_func(function, count, index_dtype="int32")
