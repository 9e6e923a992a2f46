"""Compiled kernels as a C project for another machine: ``CompiledKernels -> Plan``, see lowering/arm."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .arm.plan import Buffer, Plan
from .arm.plan import Call as BufferCall
from .arm.plan import View as BufferView
from .arm.project import write_project
from .errors import LoweringError
from .interface import Port, inputs_of, static_type
from .kernels.compilation import CompiledKernels
from .kernels.fallback import is_constant
from .kernels.prim_funcs import Array, KernelCall
from .kernels.steps import View


def write_c_project(prepared: CompiledKernels, folder: Path) -> None:
    """Write sources, weights and kernels into `folder`. Raises EqfuseError where the plan is none that C can run."""
    builder = _Buffers(prepared)
    plan = builder.plan()
    write_project(folder, plan, builder.weights, list(prepared.objects.values()))


@dataclass
class _Buffers:
    """The numbered buffers of a plan: values of the graph, and constants as the kernels read them."""

    prepared: CompiledKernels
    buffers: list[Buffer] = field(default_factory=list)
    weights: dict[int, Array] = field(default_factory=dict)
    numbers: dict[Any, int] = field(default_factory=dict)

    def plan(self) -> Plan:
        """All steps on buffers."""
        inputs = tuple(self._input(port) for port in inputs_of(self.prepared.weights.model))
        calls: list[BufferCall] = []
        views: list[BufferView] = []
        for step in self.prepared.steps:
            if isinstance(step, View):
                views.append(BufferView(self._add_value(step.result), self._read(step.source)))
            elif isinstance(step, KernelCall):
                arguments = tuple(self._argument(step, position) for position in range(len(step.inputs)))
                operators = tuple(self.prepared.graph.operators[member].op for member in step.members)
                calls.append(BufferCall(step.symbol, arguments, tuple(map(self._add_value, step.outputs)), operators))
            else:
                raise LoweringError(f"{', '.join(step.operators)}: only ONNX Runtime can run it ({step.reason})")
        outputs = tuple(self._output(str(value.name)) for value in self.prepared.weights.model.graph.outputs)
        return Plan(tuple(self.buffers), tuple(calls), inputs, outputs, tuple(self.weights), tuple(views))

    def _add(self, key: object, buffer: Buffer) -> int:
        self.numbers[key] = len(self.buffers)
        self.buffers.append(buffer)
        return self.numbers[key]

    def _input(self, port: Port) -> int:
        values = {value.name: number for number, value in enumerate(self.prepared.graph.values)}
        return self._add(values.get(port.name, port.name), Buffer(port.name, port.dtype, port.shape))

    def _add_value(self, value: int) -> int:
        type_, name = static_type(self.prepared.graph, value), self.prepared.graph.values[value].name
        return self._add(value, Buffer(name, type_.dtype, self.prepared.stored_shape(value)))

    def _read(self, value: int) -> int:
        if value not in self.numbers:
            self._constant(value, self.prepared.weights[self.prepared.graph.values[value].name])
        return self.numbers[value]

    def _argument(self, call: KernelCall, position: int) -> int:
        value = call.inputs[position]
        packing = self.prepared.packing(call, position)
        if not packing or not is_constant(self.prepared.graph, value, self.prepared.weights.model):
            return self._read(value)
        key = (value, packing)
        if key not in self.numbers:
            self._constant(key, self.prepared.constant(call, position))
        return self.numbers[key]

    def _constant(self, key: object, array: Array) -> None:
        number = self._add(key, Buffer(f"weight_{len(self.buffers)}", array.dtype.name, array.shape))
        self.weights[number] = array

    def _output(self, name: str) -> int:
        number = next((n for n, value in enumerate(self.prepared.graph.values) if value.name == name), None)
        if number is None or number not in self.numbers:
            raise LoweringError(f"output {name!r} is computed by no kernel; a C project cannot give it")
        return self.numbers[number]
