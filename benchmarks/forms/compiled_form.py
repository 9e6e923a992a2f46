"""A form of a kernel, compiled as it would be if the partition chose just this kernel, and run in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import tvm

from eqfuse.costmodels.flops import flops
from eqfuse.engine.onnx.model import read
from eqfuse.engine.operator_graph import operator_graph
from eqfuse.engine.shapes.inference import infer
from eqfuse.ir.graph import OperatorGraph
from eqfuse.ir.sizes import NO_SIZES
from eqfuse.lowering.base.decisions import Trace
from eqfuse.lowering.base.target import Target
from eqfuse.lowering.base.weights import Weights
from eqfuse.lowering.kernels.build import build
from eqfuse.lowering.kernels.channels_last import from_last, last_shape, to_last
from eqfuse.lowering.kernels.map_copies import copy_maps
from eqfuse.lowering.kernels.prim_funcs import DistinctKernels, KernelCall, LoweredStep
from eqfuse.lowering.kernels.steps import View, steps
from eqfuse.lowering.kernels.table import roofline
from eqfuse.lowering.schedules import Scheduled, list_candidates

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class BoundKernel:
    """A kernel with what it is called with; `run` calls it."""

    operators: tuple[str, ...]
    rule: str
    roofline: float
    run: Callable[[], Any]


@dataclass(frozen=True)
class CompiledForm:
    """The kernels of a form in running order; `results` are the arrays that they fill, by the names of outputs."""

    kernels: tuple[BoundKernel, ...]
    results: Callable[[], dict[str, Array]]

    def run(self) -> None:
        """Call every kernel once."""
        for kernel in self.kernels:
            kernel.run()

    @property
    def roofline(self) -> float:
        """Seconds below which the device cannot run these kernels."""
        return sum(kernel.roofline for kernel in self.kernels)


@dataclass(frozen=True)
class FormKernels:
    """The kernels of a form, compiled for every call; `bind` gives them inputs of certain sizes."""

    distinct: DistinctKernels
    steps: tuple[LoweredStep, ...]
    built: Mapping[str, tuple[Any, Scheduled]]
    weights: Weights
    target: Target
    outputs: tuple[str, ...]

    def bind(self, feeds: Mapping[str, Array], sizes: Mapping[str, int] = NO_SIZES) -> CompiledForm:
        """The kernels with inputs; `sizes` are those of the dynamic dimensions. They are run once."""
        memory = _Memory(replace(self.distinct, graph=self.distinct.graph.at_sizes(sizes)), dict(feeds))
        kernels = []
        for step in self.steps:
            if isinstance(step, View):
                memory.view(step)
            elif isinstance(step, KernelCall):
                kernels.append(_bind(step, *self.built[step.symbol], memory, self.weights, self.target))
            else:
                raise ValueError(f"operators {step.members} are no kernel")
        form = CompiledForm(tuple(kernels), lambda: {name: memory.read(name) for name in self.outputs})
        form.run()
        return form


def compile_form(
    model: onnx.ModelProto, ahead: int, target: Target, sizes: Mapping[str, int] = NO_SIZES
) -> FormKernels:
    """The first `ahead` operators as one kernel, and all others as another one; `sizes` are typical ones of free
    dimensions.

    Maps of the caller are copied, as in a compiled model. Raises LoweringError for an operator without a lowering.
    """
    source = read(model)
    whole = operator_graph(source, infer(source), sizes, for_kernels=True).at_call
    groups = [tuple(range(ahead)), tuple(range(ahead, len(whole)))]
    graph, groups = copy_maps(whole, [group for group in groups if group])  # type: ignore[assignment]
    weights = Weights(source)
    distinct = DistinctKernels.of(graph, groups, weights)
    lowered = tuple(distinct.lower_step(step) for step in steps(distinct.graph, groups))
    built = {name: _build(function, target) for name, function in distinct.functions.items()}
    outputs = tuple(output.name for output in model.graph.output)
    return FormKernels(distinct, lowered, built, weights, target, outputs)


def in_onnx_runtime(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> tuple[Callable[[], Any], dict[str, Array]]:
    """A call that runs the model on one thread, inputs and outputs bound; and its results."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = 1, 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in model.graph.output]
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_cpu_input(name, array)
    for name in names:
        binding.bind_output(name, "cpu")
    expected = dict(zip(names, session.run(names, dict(feeds)), strict=True))
    return lambda: session.run_with_iobinding(binding), expected


def draw_inputs(model: onnx.ModelProto) -> dict[str, Array]:
    """Standard normal numbers for every input; for booleans, whether they are above 0."""
    generator, feeds = np.random.default_rng(1), {}
    for port in model.graph.input:
        numbers = generator.standard_normal([d.dim_value for d in port.type.tensor_type.shape.dim])
        is_boolean = port.type.tensor_type.elem_type == onnx.TensorProto.BOOL
        feeds[port.name] = numbers > 0.0 if is_boolean else numbers.astype(np.float32)
    return feeds


def largest_difference(results: Mapping[str, Array], expected: Mapping[str, Array]) -> float:
    """Over all outputs, relative to the largest element of each; infinite if something is not a number."""
    differences = [
        float(np.abs(results[name].astype(np.float64) - wanted).max() / max(np.abs(wanted).max(), 1e-9))
        for name, wanted in expected.items()
    ]
    return max(np.inf if np.isnan(difference) else difference for difference in differences)


@dataclass(frozen=True)
class _Memory:
    """The values of a graph as TVM's tensors, in the layout in which kernels have them."""

    distinct: DistinctKernels
    feeds: dict[str, Array]
    _tensors: dict[int, Any] = field(default_factory=dict)

    def __getitem__(self, value: int) -> Any:
        if value not in self._tensors:
            described = self.distinct.graph.values[value]
            if described.producer is None:
                array = self.feeds[described.name]
                self._tensors[value] = tvm.runtime.tensor(to_last(array) if self._is_last(value) else array)
            else:
                assert described.type is not None
                missing = np.full(self._shape(value), np.nan).astype(described.type.dtype)
                self._tensors[value] = tvm.runtime.tensor(missing)
        return self._tensors[value]

    def view(self, step: View) -> None:
        """Let a value have the elements of another."""
        self._tensors[step.result] = self[step.source]._create_view(self._shape(step.result))

    def read(self, name: str) -> Array:
        """The elements of a value in ONNX's order."""
        values = self.distinct.graph.values
        value = next(number for number, described in enumerate(values) if described.name == name)
        array: Array = self[value].numpy()
        return from_last(array) if self._is_last(value) else array

    def _is_last(self, value: int) -> bool:
        return value in self.distinct.last

    def _shape(self, value: int) -> tuple[int, ...]:
        type_ = self.distinct.graph.values[value].type
        assert type_ is not None
        shape = tuple(int(extent) for extent in type_.shape or ())
        return last_shape(shape) if self._is_last(value) else shape


def _build(function: Any, target: Target) -> tuple[Any, Scheduled]:
    """The compiled function by the first schedule that TVM can make and compile, and this schedule."""
    host = tvm.target.Target(target.description)
    for candidate in list_candidates(function, target.device, target.threads, with_rules=True):
        try:
            scheduled = candidate(Trace())
            if scheduled is not None:
                (body,) = scheduled.schedule.mod.functions.values()
                named = tvm.IRModule({"main": body.with_attr("global_symbol", "main")})
                return build(named, host)["main"], scheduled
        except Exception:  # of many kinds; the next candidate is simpler
            continue
    raise ValueError("TVM compiles none of the schedules")


def _bind(
    call: KernelCall, compiled: Any, scheduled: Scheduled, memory: _Memory, weights: Weights, target: Target
) -> BoundKernel:
    graph: OperatorGraph = memory.distinct.graph

    def constant(position: int, value: int) -> Any:
        array = weights[graph.values[value].name]
        for repack in scheduled.repack:
            array = repack(array) if repack.parameter == position else array
        return tvm.runtime.tensor(array)

    def argument(position: int, value: int) -> Any:
        described = graph.values[value]
        given = described.producer is not None or described.name in memory.feeds
        return memory[value] if given else constant(position, value)

    arguments = [argument(n, v) for n, v in enumerate(call.inputs)] + [memory[v] for v in call.outputs]
    operations = [graph.operations[member] for member in call.members]
    moved = sum(graph.values[value].extent.bytes for value in dict.fromkeys((*call.inputs, *call.outputs)))
    least = roofline(sum(map(flops, operations)), moved, target.device, target.threads)
    return BoundKernel(tuple(o.op for o in operations), scheduled.rule, least, lambda: compiled(*arguments))
