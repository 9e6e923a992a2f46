"""What a compiled model does at run time: steps in order, on numbered buffers. No code, no addresses."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import msgspec

from ...errors import EqfuseError

CALLBACK = "eqfuse.fallback."
"""What the names of callbacks begin with, before their numbers."""
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class PlanError(EqfuseError):
    """A plan that no run could follow."""


@dataclass(frozen=True)
class ElementType:
    """One element: numpy's `.npy` descriptor, and DLPack's type code and bits."""

    descriptor: str
    code: int
    bits: int


ELEMENT_TYPES = {
    "float64": ElementType("<f8", 2, 64),
    "float32": ElementType("<f4", 2, 32),
    "float16": ElementType("<f2", 2, 16),
    "int64": ElementType("<i8", 0, 64),
    "int32": ElementType("<i4", 0, 32),
    "int16": ElementType("<i2", 0, 16),
    "int8": ElementType("|i1", 0, 8),
    "uint64": ElementType("<u8", 1, 64),
    "uint32": ElementType("<u4", 1, 32),
    "uint16": ElementType("<u2", 1, 16),
    "uint8": ElementType("|u1", 1, 8),
    "bool": ElementType("|b1", 6, 8),
}


@dataclass(frozen=True)
class Buffer:
    """A dense tensor, row by row. The name is the model's for inputs and outputs, free for the others."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def element(self) -> ElementType:
        return ELEMENT_TYPES[self.dtype]

    @property
    def size(self) -> int:
        """Bytes."""
        return math.prod(self.shape) * self.element.bits // 8


class Call(msgspec.Struct, frozen=True, tag="call"):
    """One kernel on buffers: TVM's packed function of that name takes the inputs, then the outputs.

    `operators` are the types of the model's operators that it computes, for people.
    """

    kernel: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[str, ...] = ()


class Callback(msgspec.Struct, frozen=True, tag="callback"):
    """Operators that the host program runs for the model, by their `number`: it is given the inputs and the outputs."""

    number: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[str, ...] = ()


class Copy(msgspec.Struct, frozen=True, tag="copy"):
    """The bytes of one buffer in another one: an output that is an input, a constant or another output."""

    source: int
    result: int

    @property
    def inputs(self) -> tuple[int, ...]:
        return (self.source,)

    @property
    def outputs(self) -> tuple[int, ...]:
        return (self.result,)


Step = Call | Callback | Copy
"""Each has `inputs`, the buffers that it reads, and `outputs`, those that it fills."""


@dataclass(frozen=True)
class View:
    """A buffer that is another one under another shape: a Reshape that moves no byte."""

    buffer: int
    of: int


@dataclass(frozen=True)
class Plan:
    """Steps in running order; buffers by index; which of them the caller provides, receives, and the weights.

    Invariants (PlanError): every index exists; each buffer that is no view comes from exactly one place (the caller,
    the weights or one step) and before it is read; the caller's outputs come from steps and share no bytes; a view has
    the type and size of the buffer that it views, which is no view of a later line.
    """

    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    weights: tuple[int, ...]
    views: tuple[View, ...] = ()

    def __post_init__(self) -> None:
        for index, buffer in enumerate(self.buffers):
            where = f"plan: buffer {index} ({buffer.name})"
            if buffer.dtype not in ELEMENT_TYPES:
                raise PlanError(f"{where}: type {buffer.dtype!r} is none of {', '.join(ELEMENT_TYPES)}")
            if not all(isinstance(extent, int) and extent >= 0 for extent in buffer.shape):
                raise PlanError(f"{where}: shape {buffer.shape} is not of sizes")
        _check_views(self)
        _check_order(self)
        _check_outputs(self)

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """The steps that are kernels."""
        return tuple(step for step in self.steps if isinstance(step, Call))

    @cached_property
    def kernels(self) -> tuple[str, ...]:
        """The different kernels, by first call."""
        return tuple(dict.fromkeys(call.kernel for call in self.calls))

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """The name of each step: of the kernel, or `CALLBACK` and the number of what the host program runs."""
        return tuple(map(_symbol, self.steps))

    @cached_property
    def storage(self) -> tuple[int, ...]:
        """For each buffer the one whose bytes it has: itself, except for views."""
        storage = list(range(len(self.buffers)))
        for view in self.views:
            storage[view.buffer] = storage[view.of]
        return tuple(storage)

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode() + "\n"

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """The plan that `to_json` wrote. Raises PlanError where the text is something else."""
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.MsgspecError as error:
            raise PlanError(f"plan: is of another version ({error}); compile the model again") from None


def _symbol(step: Step) -> str:
    if isinstance(step, Call):
        return step.kernel
    return f"{CALLBACK}{step.number}" if isinstance(step, Callback) else "copy"


def _check_views(plan: Plan) -> None:
    for number, view in enumerate(plan.views):
        for index in (view.buffer, view.of):
            _check_index(plan, index, f"view {number}")
        mine, theirs = plan.buffers[view.buffer], plan.buffers[view.of]
        if (mine.dtype, mine.size) != (theirs.dtype, theirs.size):
            raise PlanError(f"plan: view {number}: buffer {view.buffer} has not the type and size of {view.of}")
        if view.buffer in (view.of, *(v.buffer for v in plan.views[:number]), *(v.of for v in plan.views[:number])):
            raise PlanError(f"plan: view {number}: buffer {view.buffer} is viewed or a view already")


def _check_order(plan: Plan) -> None:
    filled: set[int] = set()
    _fill(plan, filled, (*plan.inputs, *plan.weights), "inputs and weights")
    for number, step in enumerate(plan.steps):
        where = f"step {number} ({step.kernel if isinstance(step, Call) else type(step).__name__.lower()})"
        if isinstance(step, Call) and not IDENTIFIER.fullmatch(step.kernel):
            raise PlanError(f"plan: {where}: the kernel's name must be a C identifier")
        for index in step.inputs:
            _check_index(plan, index, where)
            if plan.storage[index] not in filled:
                raise PlanError(f"plan: {where}: reads buffer {index}, which nothing filled before")
        _fill(plan, filled, step.outputs, where)


def _fill(plan: Plan, filled: set[int], indices: Iterable[int], where: str) -> None:
    for index in indices:
        _check_index(plan, index, where)
        if plan.storage[index] != index:
            raise PlanError(f"plan: {where}: buffer {index} ({plan.buffers[index].name}) is a view; fill what it views")
        if index in filled:
            raise PlanError(f"plan: {where}: buffer {index} ({plan.buffers[index].name}) is filled a second time")
        filled.add(index)


def _check_index(plan: Plan, index: int, where: str) -> None:
    if not 0 <= index < len(plan.buffers):
        raise PlanError(f"plan: {where}: buffer {index} does not exist; there are {len(plan.buffers)}")


def _check_outputs(plan: Plan) -> None:
    computed = {index for step in plan.steps for index in step.outputs}
    for index in plan.outputs:
        _check_index(plan, index, "outputs")
    storage = [plan.storage[index] for index in plan.outputs]
    for index, source in zip(plan.outputs, storage, strict=True):
        if source not in computed or storage.count(source) > 1:
            raise PlanError(
                f"plan: output buffer {index} must be filled by a step, and share its bytes with no other"
            )
