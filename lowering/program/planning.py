"""The plan of compiled kernels: ``CompiledKernels -> Plan, weights``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from ..base.interface import inputs_of, known_type
from ..kernels.branches import Choice, Guard, arrange
from ..kernels.compilation import CompiledKernels
from ..kernels.fallback import LoopCall, is_constant
from ..kernels.prim_funcs import Array, KernelCall, LoweredStep
from ..kernels.steps import InPlace
from ..kernels.steps import View as GraphView
from ..plan.plan import (
    Branch,
    Buffer,
    Call,
    Callback,
    Choose,
    Copy,
    Measure,
    Plan,
    Requirement,
    SpecialCall,
    Step,
    View,
)
from ..plan.sizes import extents_of
from .requirements import list_requirements


def plan_program(prepared: CompiledKernels) -> tuple[Plan, Mapping[int, Array]]:
    """The steps on numbered buffers, and the elements of the weights among these. Raises LoweringError."""
    builder = _Buffers(prepared)
    return builder.plan(), builder.weights


@dataclass
class _Buffers:
    """The numbered buffers of a plan: values of the graph, and constants as the kernels read them."""

    prepared: CompiledKernels
    buffers: list[Buffer] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    views: list[View] = field(default_factory=list)
    branches: list[Branch] = field(default_factory=list)
    weights: dict[int, Array] = field(default_factory=dict)
    numbers: dict[Any, int] = field(default_factory=dict)

    def plan(self) -> Plan:
        """All steps on buffers."""
        graph = self.prepared.graph
        values = {value.name: place for place, value in enumerate(graph.values)}
        inputs = []
        for port in inputs_of(self.prepared.weights.model):
            buffer = Buffer(port.name, port.dtype, extents_of(port.shape))
            inputs.append(self._add(values.get(port.name, port.name), buffer))
        for place, guards in arrange(graph, self.prepared.steps):
            begins = len(self.steps)
            self._add_step(self.prepared.steps[place], place)
            self._add_branch(begins, guards)
        names = [str(value.name) for value in self.prepared.weights.model.graph.outputs]
        given = set(inputs)  # and the storage of outputs so far
        outputs = []
        for name in names:
            read = self._read(values[name]) if name in values else self._read_by_name(name)
            outputs.append(self._output(name, read, given))
        buffers, steps, views = tuple(self.buffers), tuple(self.steps), tuple(self.views)
        branches = tuple(self.branches)
        required = tuple(self._requirement(*each) for each in list_requirements(graph))
        return Plan(buffers, steps, tuple(inputs), tuple(outputs), tuple(self.weights), views, branches, required)

    def _add_branch(self, first: int, guards: tuple[Guard, ...]) -> None:
        """The steps from the first one on run under these conditions, like those before them if they are the same."""
        if not guards or first == len(self.steps):
            return
        conditions = tuple((self._read(value), when) for value, when in guards)
        if self.branches and (self.branches[-1].end, self.branches[-1].conditions) == (first, conditions):
            first = self.branches.pop().first
        self.branches.append(Branch(first, len(self.steps), conditions))

    def _requirement(self, requirement: Requirement, guards: frozenset[Guard]) -> Requirement:
        """The requirement with its conditions; without any if no steps run under all of them."""
        conditions = tuple((self._read(value), when) for value, when in sorted(guards))
        is_in_branch = any(set(conditions) <= set(branch.conditions) for branch in self.branches)
        return replace(requirement, conditions=conditions) if is_in_branch else requirement

    def _special(self, step: KernelCall, place: int) -> Iterator[SpecialCall]:
        """The kernels that calls of certain sizes have in the place of this one."""
        for special in self.prepared.special:
            other = special.kernels.steps[place]
            fits = isinstance(other, KernelCall) and (other.inputs, other.outputs) == (step.inputs, step.outputs)
            if isinstance(other, KernelCall) and fits and other.symbol != step.symbol:
                arguments = (self._argument(other, n, special.kernels) for n in range(len(other.inputs)))
                yield SpecialCall(tuple(special.sizes.items()), other.symbol, tuple(arguments))

    def _add_step(self, step: LoweredStep, place: int) -> None:
        if isinstance(step, GraphView):
            source = self._read(step.source)
            self.views.append(View(self._add_value(step.result), source))
        elif isinstance(step, InPlace):
            for part in (value for value in step.outputs if value in self.prepared.places):
                self._add_value(part)
        elif isinstance(step, Choice):
            for ends in zip(step.then, step.otherwise, step.outputs, strict=True):
                then, otherwise = map(self._read, ends[:2])
                self.steps.append(Choose(self._read(step.condition), then, otherwise, self._add_value(ends[2])))
        elif isinstance(step, LoopCall):
            arguments = tuple(map(self._read, step.inputs))
            results = tuple(map(self._add_value, step.outputs))
            if step.bounds:
                results += (self._add(step.symbol + str(place), Buffer("sizes", "int64", (len(step.bounds),))),)
            self.steps.append(Call(step.symbol, arguments, results, step.operators, called=step.called))
            for element, (name, bound) in enumerate(step.bounds.items()):
                self.steps.append(Measure(name, results[-1], element, bound))
        elif isinstance(step, KernelCall):
            arguments = tuple(self._argument(step, n, self.prepared) for n in range(len(step.inputs)))
            operators = tuple(self.prepared.graph.operators[member].op for member in step.members)
            outputs = tuple(map(self._add_value, step.outputs))
            parts = tuple(self.numbers[value] for value in step.outputs if value in self.prepared.places)
            self.steps.append(Call(step.symbol, arguments, outputs, operators, parts=parts))
            self.steps[-1] = msgspec.structs.replace(self.steps[-1], special=tuple(self._special(step, place)))
        else:
            count = sum(isinstance(earlier, Callback) for earlier in self.steps)
            inputs = tuple(map(self._read, step.inputs))
            self.steps.append(Callback(count, inputs, tuple(map(self._add_value, step.outputs)), step.operators))

    def _add(self, key: object, buffer: Buffer) -> int:
        self.numbers[key] = len(self.buffers)
        self.buffers.append(buffer)
        return self.numbers[key]

    def _add_value(self, value: int) -> int:
        """The buffer of a value that a step makes: that of the tensor which it is a part of, if it is one."""
        if place := self.prepared.places.get(value):
            is_stored = is_constant(self.prepared.graph, place.whole, self.prepared.weights.model)
            is_there = is_stored or place.whole in self.numbers
            self.numbers[value] = self._read(place.whole) if is_there else self._add_value(place.whole)
            return self.numbers[value]
        type_, name = known_type(self.prepared.graph, value), self.prepared.graph.values[value].name
        return self._add(value, Buffer(name, type_.dtype, extents_of(self.prepared.stored_shape(value))))

    def _read(self, value: int) -> int:
        if value not in self.numbers:
            self._constant(value, self.prepared.weights[self.prepared.graph.values[value].name])
        return self.numbers[value]

    def _read_by_name(self, name: str) -> int:
        """A value that no operator reads or makes: an input, or a constant."""
        if name not in self.numbers:
            self._constant(name, self.prepared.weights[name])
        return self.numbers[name]

    def _argument(self, call: KernelCall, position: int, kernels: CompiledKernels) -> int:
        value = call.inputs[position]
        packing = kernels.packing(call, position)
        if not packing or not is_constant(self.prepared.graph, value, self.prepared.weights.model):
            return self._read(value)
        key = (value, packing)
        if key not in self.numbers:
            self._constant(key, kernels.constant(call, position))
        return self.numbers[key]

    def _constant(self, key: object, array: Array) -> None:
        number = self._add(key, Buffer(f"weight_{len(self.buffers)}", array.dtype.name, array.shape))
        self.weights[number] = array

    def _output(self, name: str, read: int, given: set[int]) -> int:
        """The buffer of an output: the value's own, or a copy if others have its bytes."""
        storage = read
        for view in reversed(self.views):
            storage = view.of if view.buffer == storage else storage
        if storage in given or storage in self.weights:
            source = self.buffers[read]
            copy = self._add(("output", name), Buffer(name, source.dtype, source.shape))
            self.steps.append(Copy(read, copy))
            return copy
        given.add(storage)
        return read
