"""Kernels: what may be one nest of loops, checked against what depends on what; and their costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from eqfuse.costmodels.choices import DEFAULT_DEVICE
from eqfuse.costmodels.device import load_device
from eqfuse.costmodels.fused import ANCHORS
from eqfuse.costmodels.scheduled import scheduled_seconds
from eqfuse.extract.partition.groups import unfused
from eqfuse.extract.partition.loops import Axes, Loops, Misaligned
from eqfuse.extract.partition.templates.kernel_graph import KernelGraph
from eqfuse.extract.partition.templates.kernels import KernelModel
from eqfuse.extract.partition.templates.operator_set import OperatorSet
from eqfuse.ir.graph import Operator, OperatorGraph, Value
from eqfuse.ir.operators import OPERATORS, Operand, evaluate
from eqfuse.ir.types import TensorType

from ..graphs import Builder

HOST = load_device(DEFAULT_DEVICE)


@dataclass
class Build(Builder):
    """A graph written down operator by operator, with numbers for every value."""

    arrays: list[Any] = field(default_factory=list)

    def source(self, *shape: int, constant: bool = False) -> int:
        self.arrays.append(np.random.default_rng(len(self.values)).uniform(0.5, 1.5, shape).astype(np.float32))
        return self.constant(*shape) if constant else self.input(*shape)

    def add(self, op: str, *inputs: int, **attributes: Any) -> int:
        self.arrays.append(self._evaluate(op, [self.arrays[i] for i in inputs], attributes))
        return self.node(op, inputs, [self.arrays[-1].shape], attributes)[0]

    def _evaluate(self, op: str, operands: list[Any], attributes: Mapping[str, Any]) -> Any:
        absent = sum(isinstance(a, Operand) for a in OPERATORS[op].arguments) - len(operands)
        return evaluate(op, [*operands, *[None] * absent, *attributes.values()])

    def replay(self, changed: int, array: Any) -> list[Any]:
        """All values once more, one of them given."""
        arrays = list(self.arrays)
        arrays[changed] = array
        for operator in self.operators:
            if operator.outputs[0] != changed:
                operands = [arrays[i] for i in operator.inputs if i is not None]
                arrays[operator.outputs[0]] = self._evaluate(operator.op, operands, operator.attributes)
        return arrays


def graph_of(make: Callable[[Build], int]) -> OperatorGraph:
    build = Build()
    make(build)
    return build.graph()


def everything(graph: OperatorGraph) -> tuple[int, ...]:
    return tuple(range(len(graph)))


# --- loops


def test_a_reshape_cuts_a_loop_for_all_values_that_share_it() -> None:
    loops = Loops()
    (rows, columns) = loops.axes((4, 12))
    heads = loops.regroup((rows, columns), (4, 3, 4))
    loops.complete(heads[2])
    assert loops.tile((rows, columns)) == 4
    assert [loops.size(a) for a in heads] == [4, 3, 4]


def test_loops_that_cannot_be_cut_alike_are_misaligned() -> None:
    loops = Loops()
    with pytest.raises(Misaligned):
        loops.regroup(loops.axes((6, 4)), (8, 3))


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.data())
def test_a_reshape_there_and_back_keeps_the_loops(extents: list[int], data: st.DataObject) -> None:
    loops = Loops()
    axes = loops.axes(extents)
    flat = loops.regroup(axes, (int(np.prod(extents)),))
    again = loops.regroup(flat, extents)
    assert [loops.resolve(a) for a in again] == [loops.resolve(a) for a in axes]


# --- what may be one kernel: nothing costly is computed for two tiles


def attention(build: Build) -> int:
    x = build.source(1, 6, 8)
    projected = [build.add("MatMul", x, build.source(8, 8, constant=True)) for _ in range(3)]
    heads = [build.add("Reshape", p, shape=(1, 6, 2, 4)) for p in projected]
    q, v = (build.add("Transpose", h, perm=(0, 2, 1, 3)) for h in (heads[0], heads[2]))
    k = build.add("Transpose", heads[1], perm=(0, 2, 3, 1))
    shares = build.add("Softmax", build.add("MatMul", q, k), axis=3)
    mixed = build.add("Transpose", build.add("MatMul", shares, v), perm=(0, 2, 1, 3))
    return build.add("Reshape", mixed, shape=(1, 6, 8))


def dense_then_norm(build: Build) -> int:
    x, residual = build.source(5, 6), build.source(5, 8)
    y = build.add("Add", build.add("MatMul", x, build.source(6, 8, constant=True)), residual)
    mean = build.add("ReduceMean", y, axes=(1,), keepdims=1)
    return build.add("MatMul", build.add("Sub", y, mean), build.source(8, 3, constant=True))


def pointwise_then_depthwise(build: Build) -> int:
    x = build.source(1, 4, 5, 5)
    wide = build.add("Relu", convolution(build, x, build.source(6, 4, 1, 1, constant=True), 0, 1))
    return convolution(build, wide, build.source(6, 1, 3, 3, constant=True), 1, 6)


def depthwise_then_pointwise(build: Build) -> int:
    x = build.source(1, 6, 5, 5)
    deep = build.add("Relu", convolution(build, x, build.source(6, 1, 3, 3, constant=True), 1, 6))
    return convolution(build, deep, build.source(4, 6, 1, 1, constant=True), 0, 1)


def squeeze_and_excite(build: Build) -> int:
    x = build.source(1, 4, 3, 3)
    deep = convolution(build, x, build.source(4, 1, 3, 3, constant=True), 1, 4)
    gate = build.add("Sigmoid", build.add("GlobalAveragePool", deep))
    return build.add("Mul", deep, gate)


def convolution(build: Build, x: int, weight: int, pad: int, group: int, stride: int = 1) -> int:
    kernel, strides = build.arrays[weight].shape[2:], (stride, stride)
    return build.add(
        "Conv", x, weight, kernel_shape=kernel, pads=(pad,) * 4, strides=strides, dilations=(1, 1), group=group
    )


def two_in_a_row(build: Build) -> int:
    x = build.source(6, 8)
    return build.add("MatMul", build.add("MatMul", x, build.source(8, 9)), build.source(9, 7))


def columns_after_rows(build: Build) -> int:
    """Softmax of rows, then a product that reads it from the right: all rows are needed for each of its columns."""
    shares = build.add("Softmax", build.source(6, 8), axis=1)
    return build.add("MatMul", build.source(5, 6), shares)


def gated_product(build: Build) -> int:
    gate = build.add("ReduceMax", build.source(1, 6), axes=(0,), keepdims=1)
    return build.add("MatMul", build.add("Mul", build.source(5, 6), gate), build.source(6, 3))


def pooled(build: Build) -> int:
    return build.add("GlobalAveragePool", convolution(build, build.source(1, 4, 3, 3), build.source(4, 1, 3, 3), 1, 4))


def product_of_products(build: Build) -> int:
    left, right = (build.add("MatMul", build.source(6, 6), build.source(6, 6)) for _ in range(2))
    return build.add("MatMul", left, right)


def shares_of_a_product(build: Build) -> int:
    return build.add("Softmax", build.add("MatMul", build.source(5, 6), build.source(6, 4)), axis=1)


def sum_of_a_product(build: Build) -> int:
    return build.add("ReduceSum", build.add("MatMul", build.source(5, 6), build.source(6, 4)), axes=(1,), keepdims=0)


def pooled_apart(build: Build) -> int:
    wide = convolution(build, build.source(1, 2, 4, 4), build.source(3, 2, 1, 1, constant=True), 0, 1)
    window = {"kernel_shape": (2, 2), "pads": (0,) * 4, "strides": (2, 2), "dilations": (1, 1)}
    return build.add("MaxPool", wide, **window, ceil_mode=0, storage_order=0)


def strided_pointwise(build: Build) -> int:
    wide = build.add("Relu", convolution(build, build.source(1, 2, 4, 4), build.source(3, 2, 1, 1), 0, 1))
    return convolution(build, wide, build.source(2, 3, 1, 1, constant=True), 0, 1, stride=2)


KERNELS = (
    attention, dense_then_norm, pointwise_then_depthwise, depthwise_then_pointwise, squeeze_and_excite, two_in_a_row,
    columns_after_rows, gated_product, pooled, product_of_products,
    shares_of_a_product, sum_of_a_product, pooled_apart, strided_pointwise,
)  # fmt: skip


EVERY_KERNEL = pytest.mark.parametrize("make", KERNELS, ids=[k.__name__ for k in KERNELS])


def as_one(graph: OperatorGraph) -> OperatorSet:
    return OperatorSet(KernelGraph(graph, HOST), everything(graph))


def cut_loops(operators: OperatorSet) -> tuple[Loops, set[int], Mapping[int, Axes]]:
    """The loops of the whole graph as one kernel, those that are cut into tiles, and the axes of its values."""
    loops, axes = operators.loops()
    return loops, set().union(*(loops.tiled(axes[v]) for v in operators.kept)), axes


@EVERY_KERNEL
def test_no_costly_element_is_needed_by_two_tiles(make: Any) -> None:
    build = Build()
    result = make(build)
    graph = build.graph()
    loops, cut, axes = cut_loops(as_one(graph))
    places = coordinates(loops, axes[result], build.arrays[result].shape)
    assert cut <= set(places), "a sum over a loop that is cut is complete only after the last tile"
    for value in (o.outputs[0] for o in graph.operators if o.op in ANCHORS):
        for element in range(build.arrays[value].size):
            changed = build.arrays[value].copy()
            changed.reshape(-1)[element] += np.float32(0.25)
            users = build.replay(value, changed)[result].reshape(-1) != build.arrays[result].reshape(-1)
            for loop in cut:
                assert len(set(places[loop][users])) <= 1, (value, loop)


def coordinates(loops: Loops, axes: Axes, shape: Sequence[int]) -> dict[int, Any]:
    """For each loop of a value, its counter at every element."""
    found: dict[int, Any] = {}
    for axis, index in zip(axes, np.indices(shape).reshape(len(shape), -1), strict=True):
        for loop in reversed(loops.resolve(axis)):
            extent = loops.size((loop,))
            found[loop] = index % extent
            index = index // extent
    return found


def test_attention_is_tiled_by_heads() -> None:
    loops, cut, _ = cut_loops(as_one(graph_of(attention)))
    assert sorted(loops.size((loop,)) for loop in cut) == [2]


@pytest.mark.parametrize(
    ("window", "pad", "is_kernel"), [(3, 1, False), (1, 0, True)], ids=["two windows", "a window and a pointwise one"]
)
def test_two_convolutions(window: int, pad: int, is_kernel: bool) -> None:
    graph = convolutions(16, window, pad)
    assert (as_one(graph).buffers is not None) == is_kernel


def convolutions(channels: int, window: int, pad: int) -> OperatorGraph:
    """A 3x3 convolution and one of the given window, written down without computing them."""
    shape = TensorType("float32", (1, channels, 28, 28))
    weights = [TensorType("float32", (channels, channels, k, k)) for k in (3, window)]
    values = (
        Value("x", shape), Value("w1", weights[0], None, True), Value("y", shape, 0),
        Value("w2", weights[1], None, True), Value("z", shape, 1, False, True),
    )  # fmt: skip
    settings = [{"kernel_shape": (k, k), "pads": (p,) * 4, "group": 1} for k, p in ((3, 1), (window, pad))]
    made = [Operator(f"c{i}", "Conv", s, (2 * i, 2 * i + 1), (2 * i + 2,)) for i, s in enumerate(settings)]
    return OperatorGraph(tuple(made), values)


# --- costs


@EVERY_KERNEL
def test_an_operator_costs_its_arithmetic_at_least_and_a_sub_graph_no_more_than_its_operators(make: Any) -> None:
    graph = graph_of(make)
    model = KernelModel(graph, HOST)
    apart = model.partition(unfused(graph))
    assert apart >= sum(scheduled_seconds(o, HOST) for o in graph.operations)
    assert model.group(everything(graph)) <= apart


def test_a_measured_kernel_costs_what_was_measured() -> None:
    graph = graph_of(two_in_a_row)
    assert KernelModel(graph, HOST, measured=lambda members: 42.0).kernel(everything(graph)) == 42.0


@settings(deadline=None)
@given(st.data())
def test_kernels_of_any_part_can_run_in_their_order(data: st.DataObject) -> None:
    graph = graph_of(data.draw(st.sampled_from(KERNELS)))
    members = tuple(m for m in everything(graph) if data.draw(st.booleans()))
    assume(members)
    kernels = KernelModel(graph, HOST).kernels(members)
    assert sorted(m for k in kernels for m in k) == list(members)
    ranks = {m: rank for rank, kernel in enumerate(kernels) for m in kernel}
    assert all(ranks[p] <= ranks[m] for m in members for p in graph.predecessors[m] if p in ranks)


def test_conventional_fusion_has_one_anchor_op() -> None:
    graph = graph_of(two_in_a_row)
    assert KernelModel(graph, HOST).kernel(everything(graph)) < inf
    assert KernelModel(graph, HOST, intensive=False).kernel(everything(graph)) == inf


def test_a_long_chain_is_several_kernels() -> None:
    """The cost of a kernel takes as long as it is large, and is asked for at every operator that joins."""
    build = Build()
    value = build.source(2)
    for _ in range(300):
        value = build.add("Relu", value)
    graph = build.graph()
    kernels = KernelModel(graph, HOST).kernels(everything(graph))
    assert sorted(len(kernel) for kernel in kernels) == [44, 256]


def test_after_the_deadline_no_operator_joins_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of a kernel takes as long to find as it has operators, of which there may be thousands."""
    build = Build()
    value = build.source(4, 8)
    for number in range(300):  # more than one kernel may have
        value = build.add("Neg" if number % 2 else "Abs", value)
    graph = build.graph(value)
    checks = iter(range(10))
    monkeypatch.setattr(f"{KernelModel.__module__}.is_over", lambda deadline: next(checks, None) is None)
    kernels = KernelModel(graph, HOST).kernels(tuple(range(300)), deadline=0.0)
    assert sorted(map(len, kernels)) == [1] * 290 + [10]
