"""Models run as one unscheduled kernel each, and what ONNX Runtime says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import onnx
import onnxruntime
import tvm
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from eqfuse.engine.onnx.model import read
from eqfuse.engine.onnx.runtime_values import open_session
from eqfuse.engine.onnx.typing import tensor_type
from eqfuse.engine.operator_graph import operator_graph
from eqfuse.engine.shapes.inference import infer
from eqfuse.ir.graph import OperatorGraph
from eqfuse.ir.types import TensorType
from eqfuse.lowering.base.weights import Weights
from eqfuse.lowering.kernels.build import build
from eqfuse.lowering.kernels.prim_funcs import KernelFunction, lower_kernel

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Call:
    """A model, and a value for each of its inputs."""

    model: onnx.ModelProto
    feeds: Mapping[str, Array]

    @cached_property
    def graph(self) -> OperatorGraph:
        model = read(self.model)
        graph = operator_graph(model, infer(model))
        values = (v if v.type is not None else replace(v, type=self._declared.get(v.name)) for v in graph.values)
        return OperatorGraph(graph.operators, tuple(values))

    @property
    def _declared(self) -> dict[str, TensorType]:
        """What the model says of its outputs: ONNX infers no type for GroupNormalization."""
        types = {o.name: tensor_type(o.type) for o in self.model.graph.output}
        return {name: type_ for name, type_ in types.items() if type_ is not None}

    @property
    def values(self) -> dict[str, Array]:
        """Everything that is known before a run, by name."""
        weights = Weights(read(self.model))
        constants = {v.name: weights[v.name] for v in self.graph.values if v.is_constant and v.name not in self.feeds}
        return {**constants, **self.feeds}


def in_tvm(calls: Sequence[Call], immediates: bool = False) -> list[dict[str, Array]]:
    """The outputs of each model by name; all of them are compiled at once.

    `immediates`: constants of one element are written into the code.
    """
    graphs = [call.graph for call in calls]
    functions = [
        lower_kernel(graph, range(len(graph)), f"call{n}", _constants(graph, call) if immediates else None)
        for n, (graph, call) in enumerate(zip(graphs, calls, strict=True))
    ]
    module = tvm.IRModule({f"call{n}": f.prim_func for n, f in enumerate(functions)})
    library = build(module, tvm.target.Target("llvm"))
    triples = enumerate(zip(graphs, functions, calls, strict=True))
    return [_run(library[f"call{n}"], graph, function, call) for n, (graph, function, call) in triples]


def _constants(graph: OperatorGraph, call: Call) -> dict[int, Array]:
    values = call.values
    return {n: values[v.name] for n, v in enumerate(graph.values) if v.is_constant}


def _run(compiled: Any, graph: OperatorGraph, function: KernelFunction, call: Call) -> dict[str, Array]:
    values = call.values
    inputs = [tvm.runtime.tensor(np.array(values[graph.values[v].name], order="C")) for v in function.inputs]
    types: list[Any] = [graph.values[v].type for v in function.outputs]
    outputs = [tvm.runtime.tensor(np.empty(t.shape, t.dtype)) for t in types]
    compiled(*inputs, *outputs)
    return {graph.values[v].name: o.numpy() for v, o in zip(function.outputs, outputs, strict=True)}


def in_onnx_runtime(call: Call) -> dict[str, Array]:
    """The outputs of a model by name; by ONNX's reference if the runtime has no kernel."""
    names = [o.name for o in call.model.graph.output]
    try:
        session = open_session(call.model)
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        results = ReferenceEvaluator(call.model).run(None, dict(call.feeds))
    else:
        results = session.run(None, dict(call.feeds))
    return dict(zip(names, map(np.asarray, results), strict=True))


def assert_as_onnx_runtime(
    calls: Sequence[Call], relative: float = 1e-5, absolute: float = 1e-6, immediates: bool = False
) -> None:
    """Types and shapes are equal, elements within rounding."""
    for call, results in zip(calls, in_tvm(calls, immediates), strict=True):
        expected = in_onnx_runtime(call)
        assert results.keys() == expected.keys()
        for name, wanted in expected.items():
            assert (results[name].dtype, results[name].shape) == (wanted.dtype, wanted.shape)
            exact = wanted.dtype.kind != "f"
            bounds = (0.0, 0.0) if exact else (relative, absolute)
            np.testing.assert_allclose(results[name], wanted, *bounds, err_msg=str(call.model.graph.node))


def single(op: str, operands: Mapping[str, Array | None], weights: Sequence[str] = (), **attributes: Any) -> Call:
    """A model of one node. `operands` are its inputs in order, those named in `weights` are constants.

    The attribute ``outputs`` is the number of outputs.
    """
    outputs = [f"y{i}" for i in range(attributes.pop("outputs", 1))]
    node = helper.make_node(op, [n if a is not None else "" for n, a in operands.items()], outputs, **attributes)
    return model_of([node], {n: a for n, a in operands.items() if a is not None}, weights, outputs)


def model_of(
    nodes: Sequence[onnx.NodeProto], values: Mapping[str, Array], weights: Sequence[str], outputs: Sequence[str]
) -> Call:
    """A model of these nodes; of `values` those named in `weights` are constants, the others inputs."""
    feeds = {name: array for name, array in values.items() if name not in weights}
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()
    ]
    constants = [numpy_helper.from_array(values[name], name) for name in weights]
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(list(nodes), "model", inputs, results, constants)
    opsets = [helper.make_opsetid("", 24)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return Call(infer_types(model), feeds)


def infer_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the types of its outputs."""
    results = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    for output in results.graph.output:
        if not output.type.HasField("tensor_type"):  # GroupNormalization, of which ONNX does not tell
            output.type.CopyFrom(results.graph.input[0].type)
    return results
