"""One shared library from compiled kernels: a Relax function that calls them, with the weights as constants.

Relax plans the memory of intermediate values and turns views into the same memory under another shape. What ONNX
Runtime runs is called by a global name, under which the runner registers it.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tvm
from tvm import relax

from ..support.scratch import scratch_folder
from .errors import LoweringError
from .interface import inputs_of, static_type
from .kernels.compilation import CompiledKernels
from .kernels.fallback import FUNCTION, Fallback, is_constant
from .kernels.prim_funcs import KernelCall
from .kernels.steps import View
from .linking import Linker
from .target import Target


def link(prepared: CompiledKernels, target: Target, library: Path) -> None:
    """Write the library.

    The function `main` goes from the model's inputs, in order, to a tuple of its outputs.
    """
    executable = tvm.compile(_Main(prepared).module(), target=tvm.target.Target(target.description))
    try:
        with scratch_folder("link") as scratch:
            addons = [*prepared.objects.values(), Linker.of(platform.machine()).thread_pool(Path(scratch))]
            executable.export_library(str(library), addons=list(map(str, addons)))
    except RuntimeError as error:
        reason = " ".join(str(error).split())[-200:]
        raise LoweringError(f"{library.name}: the linker failed; choose a folder with room: {reason}") from None


@dataclass
class _Main:
    """Builds the Relax function that runs the steps."""

    prepared: CompiledKernels
    variables: dict[int, Any] = field(default_factory=dict)
    constants: dict[Any, Any] = field(default_factory=dict)
    fallbacks: int = 0

    def module(self) -> Any:
        """The module with the function `main`."""
        parameters = self._parameters()
        self._load_constants()
        builder = relax.BlockBuilder()
        with builder.function("main", list(parameters.values())):
            with builder.dataflow():
                for step in self.prepared.steps:
                    self._emit(builder, step)
                names = [str(value.name) for value in self.prepared.weights.model.graph.outputs]
                result = builder.emit_output(relax.Tuple([self._output(name, parameters) for name in names]))
            builder.emit_func_output(result)
        return builder.get()

    def _parameters(self) -> dict[str, Any]:
        numbers = {value.name: number for number, value in enumerate(self.prepared.graph.values)}
        parameters: dict[str, Any] = {}
        for position, port in enumerate(inputs_of(self.prepared.weights.model)):
            parameters[port.name] = relax.Var(f"input_{position}", relax.TensorType(port.shape, port.dtype))
            if port.name in numbers:
                self.variables[numbers[port.name]] = parameters[port.name]
        return parameters

    def _load_constants(self) -> None:
        """All at once, for one that cannot be computed ends it all, and TVM complains of a builder that is left."""
        for step in self.prepared.steps:
            values = (step.source,) if isinstance(step, View) else step.inputs
            for position, value in enumerate(values):
                if is_constant(self.prepared.graph, value, self.prepared.weights.model):
                    if isinstance(step, KernelCall):
                        self._argument(step, position)
                    else:
                        self._value(value)

    def _emit(self, builder: Any, step: View | KernelCall | Fallback) -> None:
        if isinstance(step, View):
            self._emit_view(builder, step)
        elif isinstance(step, KernelCall):
            arguments = [self._argument(step, position) for position in range(len(step.inputs))]
            self._emit_call(builder, step.symbol, arguments, step.outputs)
        else:
            arguments = [self._value(value) for value in step.inputs]
            self._emit_call(builder, f"{FUNCTION}{self.fallbacks}", arguments, step.outputs)
            self.fallbacks += 1

    def _emit_view(self, builder: Any, view: View) -> None:
        shape = self.prepared.stored_shape(view.result)
        source = self._value(view.source)
        same = shape == self.prepared.stored_shape(view.source)
        self.variables[view.result] = source if same else builder.emit(relax.op.reshape(source, shape))

    def _emit_call(self, builder: Any, name: str, arguments: list[Any], outputs: tuple[int, ...]) -> None:
        """A call that fills memory which the caller provides."""
        types = [self._type(value) for value in outputs]
        if len(types) == 1:
            self.variables[outputs[0]] = builder.emit(relax.call_dps_packed(name, arguments, types[0]))
            return
        results = builder.emit(relax.call_dps_packed(name, arguments, types))
        for position, value in enumerate(outputs):
            self.variables[value] = builder.emit(relax.TupleGetItem(results, position))

    def _type(self, value: int) -> Any:
        return relax.TensorType(self.prepared.stored_shape(value), static_type(self.prepared.graph, value).dtype)

    def _argument(self, call: KernelCall, position: int) -> Any:
        value = call.inputs[position]
        if not is_constant(self.prepared.graph, value, self.prepared.weights.model):
            return self.variables[value]
        key = (value, self.prepared.packing(call, position))
        if key not in self.constants:
            self.constants[key] = _constant(self.prepared.constant(call, position))
        return self.constants[key]

    def _value(self, value: int) -> Any:
        """A value of the graph; a constant in its own layout."""
        if value in self.variables:
            return self.variables[value]
        return self._constant(self.prepared.graph.values[value].name)

    def _constant(self, name: str) -> Any:
        if name not in self.constants:
            self.constants[name] = _constant(self.prepared.weights[name])
        return self.constants[name]

    def _output(self, name: str, parameters: Mapping[str, Any]) -> Any:
        if name in parameters:
            return parameters[name]
        values = enumerate(self.prepared.graph.values)
        number = next((number for number, value in values if value.name == name), None)
        return self._constant(name) if number is None else self._value(number)


def _constant(array: Any) -> Any:
    """The array in its own element type: of an array, relax.const would make 32-bit numbers out of 64-bit ones."""
    return relax.const(tvm.runtime.tensor(array))
