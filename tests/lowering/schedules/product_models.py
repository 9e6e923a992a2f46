"""Models with two products or with a product and a normalisation, each of them one kernel; and how it is run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import tvm
from onnx import helper, numpy_helper
from tvm import s_tir

from eqfuse.costmodels.device import Device
from eqfuse.lowering.base.decisions import Decisions, Trace
from eqfuse.lowering.kernels.prim_funcs import lower_kernel
from eqfuse.lowering.schedules import Draft, Scheduled, apply_rule, mark_constants
from eqfuse.lowering.schedules.intensive.product_chain import product_chain

from ..small_models import expected, graph_of, model, random_inputs, weights
from .functions import HOST, execute

Array = np.ndarray[Any, Any]
Node = onnx.NodeProto
node = helper.make_node


@dataclass(frozen=True)
class Case:
    """A model of one output; all of it is one kernel."""

    model: onnx.ModelProto

    @cached_property
    def kernel(self) -> tuple[Any, list[Array]]:
        """The function, its constants marked, and the arrays for its parameters."""
        graph = graph_of(self.model)
        stored = {i.name: np.array(numpy_helper.to_array(i)) for i in self.model.graph.initializer}
        values = {**stored, **random_inputs(self.model, seed=1)}
        single = {name for name, array in stored.items() if array.size == 1}
        scalars = {n: stored[v.name] for n, v in enumerate(graph.values) if v.name in single}
        function = lower_kernel(graph, range(len(graph)), "main", scalars)
        (output,) = (graph.values[v].extent.dimensions for v in function.outputs)
        constants = tuple(n for n, v in enumerate(function.inputs) if graph.values[v].is_constant)
        arrays = [values[graph.values[v].name] for v in function.inputs]
        return mark_constants(function.prim_func, constants), [*arrays, np.full(output, np.nan, np.float32)]

    def schedule(self, threads: int = 1, device: Device = HOST, wanted: Decisions = MappingProxyType({})) -> Scheduled:
        """The kernel by the rule, with these decisions."""
        scheduled = apply_rule(product_chain, Draft.of(self.kernel[0], device, threads, Trace(wanted)))
        assert scheduled is not None
        return scheduled

    def run(self, threads: int = 1, device: Device = HOST) -> Array:
        """The output of the scheduled kernel, run on this machine whatever the device of the schedule."""
        return np.array(execute(self.schedule(threads, device), self.kernel[1]))

    def reference(self) -> Array:
        """The output of ONNX Runtime."""
        (output,) = expected(self.model, random_inputs(self.model, seed=1)).values()
        return output


def kept_bytes(scheduled: Scheduled) -> int:
    """Bytes of all buffers of the lowered function."""
    passes = s_tir.transform
    lowered = tvm.transform.Sequential(
        [
            passes.LowerInitBlock(), passes.PlanAndUpdateBufferAllocationLocation(), passes.ConvertBlocksToOpaque(),
            passes.CompactBufferAllocation(), passes.LowerOpaqueBlock(),
        ]
    )(scheduled.schedule.mod)  # fmt: skip
    return sum(int(size) for size in s_tir.analysis.calculate_allocated_bytes(lowered["main"])["main"].values())


def attention(heads: int, rows: int, keys: int, size: int, mask: bool = True) -> Case:
    """softmax(Q K / 8 + mask) V, the heads one after the other in each row of the output."""
    nodes = [
        node("MatMul", ["q", "k"], ["s"]),
        node("Mul", ["s", "c"], ["t"]),
        *([node("Add", ["t", "mask"], ["u"])] if mask else []),
        node("Softmax", ["u" if mask else "t"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["o"]),
        node("Transpose", ["o"], ["y"], perm=[0, 2, 1, 3]),
    ]
    inputs = {"q": (1, heads, rows, size), "k": (1, heads, size, keys), "v": (1, heads, keys, size)}
    masks = {"mask": (1, 1, 1, keys)} if mask else {}
    outputs = {"y": (1, rows, heads, size)}
    return Case(model(nodes, {**inputs, **masks}, outputs, c=np.array(0.125, np.float32)))


def perceptron(rows: int, size: int, hidden: int, *, norm: bool = False) -> Case:
    """x W1 + b1, swish by its parts, times W2 + b2, and with `norm` a residual and a normalisation."""
    nodes = [
        node("MatMul", ["x", "w1"], ["a"]),
        node("Add", ["a", "b1"], ["b"]),
        node("Sigmoid", ["b"], ["g"]),
        node("Mul", ["b", "g"], ["h"]),
        node("MatMul", ["h", "w2"], ["c"]),
        node("Add", ["c", "b2"], ["d" if norm else "y"]),
    ]
    stored = {"w1": weights(size, hidden), "b1": weights(hidden), "w2": weights(hidden, size), "b2": weights(size)}
    if norm:
        nodes += _add_and_normalise("d", "r")
        stored |= {"gain": weights(size), "shift": weights(size)}
    residual = {"r": (1, rows, size)} if norm else {}
    return Case(model(nodes, {"x": (1, rows, size), **residual}, {"y": (1, rows, size)}, **stored))


def _add_and_normalise(value: str, residual: str) -> list[Node]:
    return [
        node("Add", [value, residual], ["sum"]),
        node("LayerNormalization", ["sum", "gain", "shift"], ["y"], axis=-1),
    ]


def projection(rows: int, depth: int, size: int) -> Case:
    """A product, a residual and a normalisation."""
    nodes = [node("MatMul", ["x", "w"], ["a"]), *_add_and_normalise("a", "r")]
    stored = {"w": weights(depth, size), "gain": weights(size), "shift": weights(size)}
    return Case(model(nodes, {"x": (1, rows, depth), "r": (1, rows, size)}, {"y": (1, rows, size)}, **stored))


def norm_between(rows: int, depth: int, middle: int, size: int) -> Case:
    """A product, a normalisation, a product."""
    nodes = [
        node("MatMul", ["x", "w1"], ["a"]),
        node("LayerNormalization", ["a", "gain", "shift"], ["b"], axis=-1),
        node("MatMul", ["b", "w2"], ["y"]),
    ]
    stored = {"w1": weights(depth, middle), "gain": weights(middle), "shift": weights(middle)}
    return Case(model(nodes, {"x": (rows, depth)}, {"y": (rows, size)}, w2=weights(middle, size), **stored))


def two_products(rows: int, depth: int, middle: int, size: int, batch: tuple[int, ...] = ()) -> Case:
    """A product of three matrices, all of them inputs."""
    nodes = [node("MatMul", ["a", "b"], ["ab"]), node("MatMul", ["ab", "c"], ["y"])]
    inputs = {"a": (*batch, rows, depth), "b": (*batch, depth, middle), "c": (*batch, middle, size)}
    return Case(model(nodes, inputs, {"y": (*batch, rows, size)}))


def two_gemms(rows: int, depth: int, middle: int, size: int) -> Case:
    """Gemm with flipped weights, tanh, Gemm."""
    nodes = [
        node("Gemm", ["x", "w1", "b1"], ["a"], transB=1),
        node("Tanh", ["a"], ["h"]),
        node("Gemm", ["h", "w2", "b2"], ["y"], alpha=0.5),
    ]
    stored = {"w1": weights(middle, depth), "b1": weights(middle), "w2": weights(middle, size), "b2": weights(size)}
    return Case(model(nodes, {"x": (rows, depth)}, {"y": (rows, size)}, **stored))
