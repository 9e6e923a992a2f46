"""A plan as C: `eqfuse_model.h`, `eqfuse_model.c`, and the weights as a file with the stub that links it in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, singledispatch
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from ..plan.arena import Arena, align, lives_of, plan_arena
from ..plan.plan import Buffer, Call, Callback, Choose, Copy, Measure, Plan, PlanError, Step
from ..plan.size_code import SizeCode
from ..plan.sizes import c_expression
from ..plan.templates import HEADER, MEASURE, SOURCE, literal, table


@singledispatch
def emit_step(step: Step, sizes: SizeCode, first: int) -> str:
    """The statement of a step whose arguments begin at that place of the context's."""
    raise TypeError(type(step).__name__)


@emit_step.register
def _(step: Call, sizes: SizeCode, first: int) -> str:
    """A special kernel if the sizes are its own, else the one for all calls."""
    count = len(step.inputs) + len(step.outputs)
    texts, place = [], first + count
    for special in step.special:
        is_size = " && ".join(f"context->{sizes.variables[name]} == {size}" for name, size in special.sizes)
        texts.append(f"if ({is_size}) {{ {_call(special.kernel, place, count)} }} else ")
        place += count
    return "".join([*texts, _call(step.kernel, first, count)])


def _call(kernel: str, first: int, count: int) -> str:
    return f"if ((status = eqfuse_call(__tvm_ffi_{kernel}, context->arguments + {first}, {count}))) return status;"


@emit_step.register
def _(step: Callback, sizes: SizeCode, first: int) -> str:
    count = len(step.inputs) + len(step.outputs)
    called = f"eqfuse_call_back(context, {step.number}, context->arguments + {first}, {count})"
    return f"if ((status = {called})) return status;"


@emit_step.register
def _(step: Copy, sizes: SizeCode, first: int) -> str:
    return f"eqfuse_copy(&context->tensors[{step.source}], &context->tensors[{step.result}]);"


@emit_step.register
def _(step: Choose, sizes: SizeCode, first: int) -> str:
    chosen = f"{_truth(step.condition)} ? {step.then} : {step.otherwise}"
    return f"eqfuse_copy(&context->tensors[{chosen}], &context->tensors[{step.result}]);"


def emit_condition(conditions: Iterable[tuple[int, bool]]) -> str:
    """The head of a branch."""
    return f"if ({' && '.join(('' if when else '!') + _truth(buffer) for buffer, when in conditions)}) {{"


def _truth(buffer: int) -> str:
    return f"*(const _Bool *)context->tensors[{buffer}].data"


@emit_step.register
def _(step: Measure, sizes: SizeCode, first: int) -> str:
    """Later statements see the size; extents that were as large as its bound get what it says."""
    measured = [measure.name for measure in sizes.plan.measures]
    later = measured[measured.index(step.name) + 1 :]
    value = f"((const int64_t *)context->tensors[{step.source}].data)[{step.element}]"
    size = sizes.variables[step.name]
    bound = "INT64_MAX" if step.bound is None else c_expression(step.bound, sizes.variables)
    extend = sizes.extend({step.name}, set(sizes.plan.symbols) - set(later))
    return MEASURE.format(name=literal(step.name), value=value, bound=bound, size=size, extend=extend)


MAXIMUM_STEPS = 65533
"""Steps are regions 1 to 65533 for the counting plugin."""
BLOCK_BYTES = 1 << 24
"""How much of the weights is written at once: whole huge pages. The system keeps a file in memory in the pieces that it
was written in: a model that reads 18 MB of weights took 1.02 to 1.09 times as long if each was written by itself
(AMD Zen 5)."""


def weight_offsets(plan: Plan) -> dict[int, int]:
    """Where each weight begins in weights.bin, in bytes."""
    sizes = (align(plan.buffers[index].size) for index in plan.weights)
    return dict(zip(plan.weights, accumulate(sizes, initial=0), strict=False))


def weight_bytes(plan: Plan) -> int:
    """The size of weights.bin."""
    return sum(align(plan.buffers[index].size) for index in plan.weights)


def write_weights(plan: Plan, arrays: Mapping[int, NDArray[np.generic]], path: Path) -> None:
    """Write the weights, by buffer, as the generated C reads them. Raises PlanError if they do not fit, OSError."""
    with path.open("wb") as file:
        blocks = _Blocks(file)
        for index in plan.weights:
            buffer, array = plan.buffers[index], arrays.get(index)
            if array is None or array.dtype.name != buffer.dtype or array.shape != buffer.shape:
                got = "nothing" if array is None else f"{array.dtype.name} {array.shape}"
                raise PlanError(f"plan: weight {index} ({buffer.name}): is {buffer.dtype} {buffer.shape}, not {got}")
            blocks.append(np.ascontiguousarray(array).tobytes())
            blocks.append(bytes(align(buffer.size) - buffer.size))
        blocks.flush()


@dataclass(frozen=True)
class _Blocks:
    """Writes a file in blocks of `BLOCK_BYTES` bytes, whatever the sizes of the parts that it gets."""

    file: BinaryIO
    pending: bytearray = field(default_factory=bytearray)

    def append(self, data: bytes) -> None:
        """Write the blocks that are full, and keep the rest."""
        rest = memoryview(data)
        while rest:
            free = BLOCK_BYTES - len(self.pending)
            self.pending.extend(rest[:free])
            rest = rest[free:]
            if len(self.pending) == BLOCK_BYTES:
                self.flush()

    def flush(self) -> None:
        """Write the rest."""
        self.file.write(self.pending)
        self.pending.clear()


def header(plan: Plan) -> str:
    """The text of `eqfuse_model.h`."""
    lines = [f"   inputs[{i}]  {_describe(plan.buffers[b])}" for i, b in enumerate(plan.inputs)]
    lines += [f"   outputs[{i}] {_describe(plan.buffers[b])}" for i, b in enumerate(plan.outputs)]
    return HEADER.format(
        description="\n".join(f" *{line}" for line in lines),
        arena=arena_text(plan),
        weights=weight_bytes(plan),
        inputs=len(plan.inputs),
        outputs=len(plan.outputs),
    )


def arena_text(plan: Plan) -> str:
    """The memory of a context for intermediates: ``4096 bytes``."""
    return f"{plan_arena(plan).size} bytes" if plan.is_static else "as many bytes as the shapes of the inputs demand"


def _describe(buffer: Buffer) -> str:
    """The name may be anything: it must not end the comment."""
    size = f"{buffer.size} bytes" if buffer.is_static else "known at the call"
    text = f"{buffer.name}: {buffer.dtype} {' x '.join(map(str, buffer.shape)) or 'scalar'}, {size}"
    return text.replace("*/", "*?").replace("\n", " ")


def _memory(plan: Plan, output: int) -> str:
    return "EQFUSE_GROWING" if output in plan.growing else "EQFUSE_PORT"


def source(plan: Plan) -> str:
    """The text of `eqfuse_model.c`. Raises PlanError for more steps than can be told apart."""
    if len(plan.steps) > MAXIMUM_STEPS:
        raise PlanError(f"plan: {len(plan.steps)} steps; at most {MAXIMUM_STEPS} can be told apart")
    return _Source(plan).text()


@dataclass(frozen=True)
class _Source:
    """The texts of the generated tables and functions."""

    plan: Plan

    @cached_property
    def sizes(self) -> SizeCode:
        """The code that depends on the shapes of a call."""
        return SizeCode(self.plan)

    @cached_property
    def arguments(self) -> list[tuple[int, ...]]:
        """The buffers that each step is called with."""
        return [s.arguments if isinstance(s, Call | Callback) else () for s in self.plan.steps]

    def text(self) -> str:
        plan = self.plan
        ports = {plan.storage[b]: port for port, b in enumerate((*plan.inputs, *plan.outputs))}
        arena = plan_arena(plan) if plan.is_static else Arena({life.buffer: 0 for life in lives_of(plan)}, 0)
        places = {b: (offset, "EQFUSE_ARENA") for b, offset in arena.offsets.items()}
        places |= {b: (offset, "EQFUSE_WEIGHTS") for b, offset in weight_offsets(plan).items()}
        places |= {b: (port, _memory(plan, b)) for b, port in ports.items()}
        firsts = accumulate(map(len, self.arguments), initial=0)
        bound = [b for b, storage in enumerate(plan.storage) if storage in ports and b not in plan.growing]
        return SOURCE.format(
            kernels="\n".join(
                f"int __tvm_ffi_{name}(void *, const eqfuse_argument *, int32_t, eqfuse_argument *);"
                for name in plan.kernels
            ),
            extents=table(e if isinstance(e, int) else -1 for buffer in plan.buffers for e in buffer.shape),
            buffers="\n".join(self._buffer(b, *places[storage]) for b, storage in enumerate(plan.storage)),
            arguments=table(b for arguments in self.arguments for b in arguments),
            bound=table(bound),
            port_buffers=table((*plan.inputs, *plan.outputs)),
            inputs=self._ports(plan.inputs),
            outputs=self._ports(plan.outputs),
            sizes=self.sizes.functions(),
            steps="\n".join(self._steps(firsts)),
            counts={
                "inputs": len(plan.inputs),
                "outputs": len(plan.outputs),
                "buffers": len(plan.buffers),
                "extents": self.sizes.first_extents[-1],
                "arguments": sum(map(len, self.arguments)),
                "bound": len(bound),
            },
            arena=arena.size,
            weights=weight_bytes(plan),
            of_sizes=self.sizes.fields(),
        )

    def _steps(self, firsts: Iterable[int]) -> Iterator[str]:
        """The statements, each step's arguments beginning at that place."""
        heads = {
            branch.first: "\n".join(
                [f"    {emit_condition(branch.conditions)}", *self.sizes.branch_requirements(branch)]
            )
            for branch in self.plan.branches
        }
        ends = {branch.end for branch in self.plan.branches}
        for number, (step, first) in enumerate(zip(self.plan.steps, firsts, strict=False)):
            if number in heads:
                yield heads[number]
            yield f"    EQFUSE_STEP({number});\n    {emit_step(step, self.sizes, first)}"
            if number + 1 in ends:
                yield "    }"

    def _buffer(self, index: int, place: int, memory: str) -> str:
        buffer = self.plan.buffers[index]
        rank, first = len(buffer.shape), self.sizes.first_extents[index]
        return f"    {{{place}, {rank}, {first}, {memory}, {buffer.element.code}, {buffer.element.bits}}},"

    def _ports(self, ports: Iterable[int]) -> str:
        lines = []
        for b in ports:
            buffer, size = self.plan.buffers[b], self.plan.buffers[b].size if self.plan.buffers[b].is_static else 0
            shape = f"{len(buffer.shape)}, extents + {self.sizes.first_extents[b]}, {size}"
            lines.append(f'    {{{literal(buffer.name)}, "{buffer.element.descriptor}", {shape}}},')
        return "\n".join([*lines, "    {0},"])
