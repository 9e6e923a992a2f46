"""What a compiled model does at run time: steps in order, on numbered buffers. No code, no addresses."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import msgspec

from ...ir.size_relations import MOST_ELEMENTS, Relation
from ...ir.sizes import Size
from ...support.errors import EqfuseError
from ..base.elements import ELEMENT_TYPES, ElementType
from .sizes import Demand, Solution, names_in, solve_sizes

CALLBACK = "eqfuse.fallback."
"""The prefix of the names of callbacks, before their numbers."""
LOOP = "loop_"
"""The prefix of the names of plain loops; those of kernels begin otherwise."""
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class PlanError(EqfuseError):
    """A plan that no run could follow."""


@dataclass(frozen=True)
class Buffer:
    """A dense tensor, row by row. The name is the model's for inputs and outputs, free for the others.

    Extents that are a `Size` are known at the call: their symbols follow from the shapes of the inputs, or from a step
    `Measure` before the first one that uses the buffer; then the memory is as large as the symbol's bound demands, and
    grows if it has none.
    """

    name: str
    dtype: str
    shape: tuple[int | Size, ...]

    @property
    def element(self) -> ElementType:
        """Its element type in C and DLPack."""
        return ELEMENT_TYPES[self.dtype]

    @property
    def is_static(self) -> bool:
        """Whether all extents are numbers."""
        return all(isinstance(extent, int) for extent in self.shape)

    @property
    def elements(self) -> int:
        """Elements of a static buffer."""
        return math.prod(extent for extent in self.shape if isinstance(extent, int))

    @property
    def size(self) -> int:
        """Bytes of a static buffer."""
        return self.elements * self.element.bits // 8


class SpecialCall(msgspec.Struct, frozen=True):
    """The kernel for calls with these `sizes`, by name; it has inputs of its own."""

    sizes: tuple[tuple[str, int], ...]
    kernel: str
    inputs: tuple[int, ...]


class Call(msgspec.Struct, frozen=True, tag="call"):
    """One kernel on buffers: TVM's packed function of that name takes the inputs, then the outputs.

    `operators` are the types of the model's operators that it computes, for people. If the sizes of a call are those of
    one of the `special` kernels, that one runs in its place. `called` are the kernels that it calls itself: a loop
    does. Of the outputs `parts` it fills some elements; other calls fill the rest.
    """

    kernel: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[str, ...] = ()
    special: tuple[SpecialCall, ...] = ()
    called: tuple[str, ...] = ()
    parts: tuple[int, ...] = ()

    @property
    def arguments(self) -> tuple[int, ...]:
        """The buffers that it is called with, and then those that each special one is."""
        own = ((*special.inputs, *self.outputs) for special in self.special)
        return (*self.inputs, *self.outputs, *(b for each in own for b in each))


class Callback(msgspec.Struct, frozen=True, tag="callback"):
    """Operators that the host program runs for the model, by their `number`: it is given the inputs and the outputs."""

    number: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[str, ...] = ()

    @property
    def arguments(self) -> tuple[int, ...]:
        """The buffers that it is called with."""
        return (*self.inputs, *self.outputs)


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


class Choose(msgspec.Struct, frozen=True, tag="choose"):
    """The bytes of the buffer `then` if the truth value `condition` is true, else those of `otherwise`."""

    condition: int
    then: int
    otherwise: int
    result: int

    @property
    def inputs(self) -> tuple[int, ...]:
        return (self.condition, self.then, self.otherwise)

    @property
    def outputs(self) -> tuple[int, ...]:
        return (self.result,)


@dataclass(frozen=True)
class Branch:
    """Steps from `first` to before `end` that run only if each of some buffers has a given truth value."""

    first: int
    end: int
    conditions: tuple[tuple[int, bool], ...]


class Measure(msgspec.Struct, frozen=True, tag="measure"):
    """A size that an earlier step computed: the symbol `name` is an element of an int64 buffer, from 0 to `bound`.

    Buffers of the earlier step whose extents have the symbol are as large as the bound until here, and as large as it
    says from here on; so are their views. The bound is made of symbols that are known earlier. Without one the buffers
    are outputs of the model in memory that the earlier step gets itself, and that no other step reads.
    """

    name: str
    source: int
    element: int
    bound: Size | None

    @property
    def inputs(self) -> tuple[int, ...]:
        return (self.source,)

    @property
    def outputs(self) -> tuple[int, ...]:
        return ()


Step = Call | Callback | Copy | Choose | Measure
"""Each has `inputs`, the buffers that it reads, and `outputs`, those that it fills."""


@dataclass(frozen=True)
class View:
    """A buffer that is another one under another shape: a Reshape that moves no byte."""

    buffer: int
    of: int


@dataclass(frozen=True)
class Requirement:
    """A relation that has to hold; `operator` is for people. With `conditions` it has to hold only if each of these
    buffers has the truth value that is given: then in each branch under them."""

    relation: Relation
    operator: str
    conditions: tuple[tuple[int, bool], ...] = ()

    @property
    def text(self) -> str:
        """The message if it does not hold."""
        return f"{self.operator}: {self.relation.text} for these shapes of the inputs"


@dataclass(frozen=True)
class Plan:
    """Steps in running order; buffers by index; which of them the caller provides, receives, and the weights.

    Invariants (PlanError): every index exists; each buffer that is no view comes from exactly one place (the caller,
    the weights, one step, or calls that fill parts of it) and before it is read; the caller's outputs come from steps
    and share no bytes; a view has the type and size of the buffer that it views, which is no view of a later line;
    branches do not overlap.
    """

    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    weights: tuple[int, ...]
    views: tuple[View, ...] = ()
    branches: tuple[Branch, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    """The requirements for the sizes of a call, as far as they follow from the shapes of its inputs."""

    def __post_init__(self) -> None:
        for index, buffer in enumerate(self.buffers):
            where = f"plan: buffer {index} ({buffer.name})"
            if buffer.dtype not in ELEMENT_TYPES:
                raise PlanError(f"{where}: type {buffer.dtype!r} is none of {', '.join(ELEMENT_TYPES)}")
            if not all(isinstance(extent, Size) or extent >= 0 for extent in buffer.shape):
                raise PlanError(f"{where}: shape {buffer.shape} is not of sizes")
            if buffer.is_static and buffer.elements > MOST_ELEMENTS:
                raise PlanError(f"{where}: has {buffer.elements} elements; compiled code takes at most {MOST_ELEMENTS}")
        _check_views(self)
        _check_order(self)
        _check_outputs(self)
        _check_symbols(self)

    @cached_property
    def is_static(self) -> bool:
        """Whether all sizes are known before a call."""
        return not self.measures and all(buffer.is_static for buffer in self.buffers)

    @cached_property
    def solution(self) -> tuple[Solution | Demand, ...]:
        """How the sizes of a call follow from the shapes of its inputs. Raises ValueError with one that does not."""
        return tuple(solve_sizes([self.buffers[index].shape for index in self.inputs]))

    @cached_property
    def measures(self) -> tuple[Measure, ...]:
        """The steps from which sizes are known."""
        return tuple(step for step in self.steps if isinstance(step, Measure))

    @cached_property
    def growing(self) -> frozenset[int]:
        """The buffers whose memory grows."""
        unbounded = {measure.name for measure in self.measures if measure.bound is None}
        return frozenset(b for b, buffer in enumerate(self.buffers) if names_in(buffer.shape) & unbounded)

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """The names of the sizes of a call: those of the inputs' shapes, then those that steps measure."""
        solved = (step.name for step in self.solution if isinstance(step, Solution))
        return (*solved, *(measure.name for measure in self.measures))

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """The steps that are kernels."""
        return tuple(step for step in self.steps if isinstance(step, Call))

    @cached_property
    def kernels(self) -> tuple[str, ...]:
        """The different kernels, by first call."""
        own = (k for call in self.calls for k in (call.kernel, *(s.kernel for s in call.special), *call.called))
        return tuple(dict.fromkeys(own))

    @cached_property
    def step_names(self) -> tuple[str, ...]:
        """The name of each step: of the kernel, or `CALLBACK` and the number of the step that the host program runs."""
        return tuple(map(_name, self.steps))

    @cached_property
    def conditions(self) -> dict[int, tuple[int, ...]]:
        """The buffers that decide whether a step runs, for those in branches."""
        pairs = ((number, b) for b in self.branches for number in range(b.first, b.end))
        return {number: tuple(buffer for buffer, _ in branch.conditions) for number, branch in pairs}

    @cached_property
    def storage(self) -> tuple[int, ...]:
        """For each buffer the one whose bytes it has: itself, except for views."""
        storage = list(range(len(self.buffers)))
        for view in self.views:
            storage[view.buffer] = storage[view.of]
        return tuple(storage)

    def to_json(self) -> str:
        """The text of plan.json, which `from_json` reads."""
        return msgspec.json.encode(self).decode() + "\n"

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """The plan that `to_json` wrote. Raises PlanError if the text is something else."""
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.MsgspecError as error:
            raise PlanError(f"plan: is of another version ({error}); compile the model again") from None


def _name(step: Step) -> str:
    if isinstance(step, Call):
        return step.kernel
    return f"{CALLBACK}{step.number}" if isinstance(step, Callback) else type(step).__name__.lower()


def _check_views(plan: Plan) -> None:
    viewed: set[int] = set()
    for number, view in enumerate(plan.views):
        for index in (view.buffer, view.of):
            _check_index(plan, index, f"view {number}")
        mine, theirs = plan.buffers[view.buffer], plan.buffers[view.of]
        is_alike = not (mine.is_static and theirs.is_static) or mine.size == theirs.size
        if mine.dtype != theirs.dtype or not is_alike:
            raise PlanError(f"plan: view {number}: buffer {view.buffer} has not the type and size of {view.of}")
        if view.buffer in viewed or view.buffer == view.of:
            raise PlanError(f"plan: view {number}: buffer {view.buffer} is viewed or a view already")
        viewed |= {view.buffer, view.of}


def _check_order(plan: Plan) -> None:
    filled: set[int] = set()
    partly: set[int] = set()
    _fill(plan, filled, (*plan.inputs, *plan.weights), "inputs and weights")
    for number, step in enumerate(plan.steps):
        where = f"step {number} ({step.kernel if isinstance(step, Call) else type(step).__name__.lower()})"
        if isinstance(step, Call) and not IDENTIFIER.fullmatch(step.kernel):
            raise PlanError(f"plan: {where}: the kernel's name must be a C identifier")
        special = step.special if isinstance(step, Call) else ()
        for index in (*step.inputs, *(index for each in special for index in each.inputs)):
            _check_index(plan, index, where)
            if plan.storage[index] not in filled:
                raise PlanError(f"plan: {where}: reads buffer {index}, which nothing filled before")
        for index in plan.conditions.get(number, ()):
            if plan.storage[index] not in filled or plan.buffers[index].dtype != "bool":
                raise PlanError(f"plan: {where}: depends on buffer {index}, which is no truth value by then")
        parts = set(step.parts) if isinstance(step, Call) else set()
        whole = (index for index in step.outputs if index not in parts)
        _fill(plan, filled, (*whole, *sorted(parts - partly)), where)
        partly |= parts


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


def _check_symbols(plan: Plan) -> None:
    try:
        solved = {step.name for step in plan.solution if isinstance(step, Solution)}
    except ValueError as error:
        raise PlanError(f"plan: the size {error} of an input does not follow from the shapes of the inputs") from None
    for measure in plan.measures:
        if measure.name in solved or not (measure.bound is None or measure.bound.names() <= solved):
            raise PlanError(f"plan: the size {measure.name} is measured twice, or its bound is not known before")
        buffer = plan.buffers[measure.source]
        if buffer.dtype != "int64" or not buffer.is_static or not 0 <= measure.element < buffer.size // 8:
            raise PlanError(f"plan: the size {measure.name} is no element of a buffer of int64")
        solved.add(measure.name)
    for index, buffer in enumerate(plan.buffers):
        if not names_in(buffer.shape) <= solved:
            unknown = min(names_in(buffer.shape) - solved)
            raise PlanError(f"plan: buffer {index} ({buffer.name}): the size {unknown} is not known at the call")
    read = {plan.storage[index] for step in plan.steps for index in step.inputs}
    if plan.growing & read or not plan.growing <= set(plan.outputs):
        raise PlanError("plan: a buffer whose size has no bound is more than an output")
    for index in plan.weights:
        if not plan.buffers[index].is_static:
            raise PlanError(f"plan: weight {index} ({plan.buffers[index].name}): its shape is not of numbers")
