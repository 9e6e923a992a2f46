"""A schedule in the making: everything that a rule works on and is given, in one object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import tvm
from tvm import ir, s_tir, tirx

from ....costmodels.device import Device
from ...base.decisions import Trace
from .blocks import (
    FUNCTION,
    BlockInfo,
    BufferAccess,
    Inspected,
    find_blocks,
    find_consumers,
    inspect_block,
    parameter_index,
    walk,
)
from .extents import extent_of, is_symbolic
from .nodes import Statement
from .packing import Packing

CONSTANTS = "eqfuse.constants"
"""Attribute of a function: the indices of the parameters that are constants (topi sets TVM's own attribute at will)."""
BOOLEANS = "eqfuse.booleans"
"""Attribute of a function: the places of the parameters that are bytes in it, and booleans to whoever calls it."""
EXACT_PAIRS = "eqfuse.exact_pairs"
"""Attribute of a function: sums of two products of a byte and of neighbours in its signed constants fit 16 bits."""
STAYS = "eqfuse.stays"
"""Annotation of a block that is not written wherever its output is read."""
PAIRED = "eqfuse.paired"
"""Annotation of a block that puts pairs of elements side by side (`pairs.py`): it is a stage by itself."""
BETWEEN = "eqfuse.between"
"""Attribute of a stage of a function: the indices of the parameters that are buffers inside of the whole function."""
MOST_REPEATED = 500
"""Parts of an expression that is inlined into several places: some fifty operators, which LLVM computes once."""


@dataclass(frozen=True)
class Scheduled:
    """A scheduled function, the constants to repack for it, and the rule that made it.

    Parameters keep their order; a repacked one has the shape that its `packed_shape` gives.
    """

    schedule: s_tir.Schedule
    repack: tuple[Packing, ...] = ()
    rule: str = ""


@dataclass(frozen=True)
class Draft:
    """TVM's schedule of one function, which rules change in place; the device and threads it is for; its decisions."""

    schedule: s_tir.Schedule
    device: Device
    threads: int = 1
    trace: Trace = field(default_factory=Trace)
    inspected: Inspected = field(default_factory=dict, repr=False, compare=False)
    lengths: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Expressions by their texts, for annotations: TVM takes texts and numbers there."""
    _found: list[tuple[tirx.PrimFunc, list[BlockInfo]]] = field(default_factory=list, repr=False, compare=False)
    """The blocks that were found last, and the function that they are of: one that anyone holds is never changed."""

    @staticmethod
    def of(
        function: tirx.PrimFunc, device: Device, threads: int = 1, trace: Trace | None = None,
        inspected: Inspected | None = None,
    ) -> Draft:
        """An unchanged schedule of a function; without a `trace` the device model decides everything.

        Drafts of the same function, or of parts of it, may share what is `inspected`.
        """
        draft = Draft(s_tir.Schedule(function), device, threads, trace or Trace())
        return draft if inspected is None else replace(draft, inspected=inspected)

    @property
    def function(self) -> tirx.PrimFunc:
        """The function as it is now."""
        return self.schedule.mod[FUNCTION]

    def copy(self) -> Draft:
        """A draft that can be changed without changing this one; it shares the trace."""
        return replace(self, schedule=self.schedule.copy(), _found=[])

    def with_body(self, body: Statement) -> Draft:
        """A draft of the function with another body. Blocks and loops of this one are not valid in it."""
        module = tvm.IRModule({FUNCTION: self.function.with_body(body)})
        return replace(self, schedule=s_tir.Schedule(module), _found=[])

    def with_attribute(self, name: str, value: Any) -> Draft:
        """A draft of the function with an attribute. Blocks and loops of this one are not valid in it."""
        module = tvm.IRModule({FUNCTION: self.function.with_attr(name, value)})
        schedule = s_tir.Schedule(module)
        return replace(self, schedule=schedule, inspected={}, _found=[])  # extents depend on the sizes in it

    def for_rule(self, function: tirx.PrimFunc, trace: Trace) -> Draft:
        """A draft of the function that this one was made of, for another rule: this one if nothing changed it."""
        if self.function.same_as(function):
            return replace(self, trace=trace)
        return Draft.of(function, self.device, self.threads, trace, self.inspected)

    def serial(self) -> Draft:
        """The same draft for one thread: for what stands inside of loops that threads share already."""
        return replace(self, threads=1)

    def within(self, scope: str) -> Draft:
        """The same draft, whose decisions are named ``scope.site``."""
        return replace(self, trace=self.trace.within(scope))

    def blocks(self) -> list[BlockInfo]:
        """The blocks as they are now, producers before consumers."""
        function = self.function
        if not self._found or not self._found[0][0].same_as(function):
            self._found[:] = [(function, find_blocks(self.schedule, self.inspected))]
        return list(self._found[0][1])

    def blocks_in_turn(self) -> Iterator[BlockInfo]:
        """The blocks, each described when its turn comes: with what was inlined into it since the first one's."""
        return (self.inspect(block.block) for block in self.blocks())

    def inspect(self, block: Any) -> BlockInfo:
        """One block as it is now."""
        return inspect_block(self.schedule, block, self.inspected)

    def producer(self, read: BufferAccess) -> BlockInfo | None:
        """The block that computes an operand; None for a parameter."""
        return next((block for block in self.blocks() if block.name == read.name), None)

    def consumers(self, producer: BlockInfo) -> list[BlockInfo]:
        """The blocks that read the output of `producer`."""
        return find_consumers(self.blocks(), producer)

    def loops(self, block: BlockInfo) -> list[Any]:
        """The loops around a block, the outermost first."""
        return list(self.schedule.get_loops(block.block))

    def extent(self, loop: Any) -> int:
        """The number of iterations of a loop: a dynamic one is a `SymbolicExtent`."""
        number: int = extent_of(self.schedule.get(loop).extent, self.function)
        return number

    def fuse(self, loops: Sequence[Any]) -> Any:
        """One or more nested loops as one."""
        return self.schedule.fuse(*loops) if len(loops) > 1 else loops[0]

    def is_output(self, block: BlockInfo) -> bool:
        """Whether the block writes a parameter of the function."""
        return parameter_index(self.function, block.write.buffer) is not None

    def is_constant(self, access: BufferAccess) -> bool:
        """Whether the buffer is a parameter listed in the attribute CONSTANTS, and so free to be packed."""
        indices = (self.function.attrs or {}).get(CONSTANTS, ())
        return parameter_index(self.function, access.buffer) in {int(i) for i in indices}

    def parameters_outside(self) -> list[Any]:
        """The parameters that a caller of the whole function gives: those of a stage may be buffers inside of it."""
        between = {int(index) for index in (self.function.attrs or {}).get(BETWEEN, ())}
        return [buffer for index, buffer in enumerate(self.function.params) if index not in between]

    def may_inline(self, block: BlockInfo) -> bool:
        """Whether TVM can inline the block: no output, no reduction, nothing that STAYS; named parts (`Let`) go to one
        place only, and to several places at most MOST_REPEATED parts: an expression that is doubled again and again
        would grow without end."""
        if block.reduced or self.is_output(block) or STAYS in self.schedule.get(block.block).annotations:
            return False
        parts = (part for user in self.schedule.get_consumers(block.block) for part in self._written(user))
        if sum(isinstance(part, ir.TensorLoad) and str(part.source.name) == block.name for part in parts) <= 1:
            return True
        written = list(islice(self._written(block.block), MOST_REPEATED + 1))
        return len(written) <= MOST_REPEATED and not any(isinstance(part, tirx.Let) for part in written)

    def _written(self, block: Any) -> Iterator[Any]:
        """The parts of the expression that a block writes, with what was inlined into it since it was inspected."""
        return walk(getattr(self.schedule.get(block).body, "value", None))

    def is_paired(self, block: BlockInfo) -> bool:
        """Whether the block puts pairs of elements side by side."""
        return PAIRED in self.schedule.get(block.block).annotations

    def inline(self, block: BlockInfo) -> None:
        """Write the block's expression wherever its output is read."""
        self.schedule.compute_inline(block.block)

    def start_reduction(self, block: BlockInfo, loop: Any) -> None:
        """Write the first value of a reduction in front of the loop, if its length is dynamic: the first
        step of a loop that does not run cannot write it."""
        is_free = any(is_symbolic(block.extents[i]) for i in block.reduced)
        if is_free and self.schedule.get(block.block).init is not None:
            self.schedule.decompose_reduction(block.block, loop)

    def compute_at(self, block: Any, loop: Any) -> None:
        """Move a block into a loop; the loops of its own that have one iteration stay."""
        self.schedule.compute_at(block, loop, preserve_unit_loops=True)

    def unroll(self, *loops: Any) -> None:
        """Unroll loops."""
        for loop in loops:
            self.schedule.unroll(loop)

    def is_padding(self, block: BlockInfo, loop: Any) -> bool:
        """Whether the block is a padding that TVM can take apart at the loop: fill the border, then copy the inside."""
        return bool(self.schedule.can_decompose_padding(block.block, loop))
