"""Several operators as one function of TVM compute what ONNX Runtime computes, and say what they read and give."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from onnx import helper
from tvm.s_tir import Schedule

from eqfuse.ir.graph import OperatorGraph
from eqfuse.lowering.compute import ANCHOR, OPERATOR, NotLowered
from eqfuse.lowering.kernels.build import build
from eqfuse.lowering.kernels.prim_funcs import KernelFunction, lower_kernel

from ...ir.operators.onnx_answers import random_array
from ..in_tvm import Array, Call, assert_as_onnx_runtime, in_onnx_runtime, in_tvm, model_of, single

node = helper.make_node


def x(*shape: int, seed: int = 0) -> Array:
    return random_array(shape, "float32", seed)


def residual_block(name: str = "conv") -> Call:
    """Convolution, batch normalisation, Relu, and the sum with the input."""
    nodes = [
        node("Conv", ["x", "w"], ["c"], name=name, pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c", "scale", "shift", "mean", "variance"], ["n"], epsilon=1e-3),
        node("Relu", ["n"], ["r"]),
        node("Add", ["r", "x"], ["y"]),
    ]
    channel = {name: x(4, seed=i) for i, name in enumerate(("scale", "shift", "mean"))}
    weights = {"w": x(4, 4, 3, 3), **channel, "variance": np.abs(x(4, seed=3)) + 0.1}
    return model_of(nodes, {"x": x(1, 4, 6, 5), **weights}, list(weights), ["y"])


def attention() -> Call:
    """Scaled dot products of two heads, with a mask."""
    nodes = [
        node("Reshape", ["q", "split"], ["q4"]),
        node("Transpose", ["q4"], ["qh"], perm=[0, 2, 1, 3]),
        node("Reshape", ["k", "split"], ["k4"]),
        node("Transpose", ["k4"], ["kh"], perm=[0, 2, 3, 1]),
        node("Reshape", ["v", "split"], ["v4"]),
        node("Transpose", ["v4"], ["vh"], perm=[0, 2, 1, 3]),
        node("MatMul", ["qh", "kh"], ["products"]),
        node("Mul", ["products", "scale"], ["scaled"]),
        node("Where", ["mask", "scaled", "low"], ["masked"]),
        node("Softmax", ["masked"], ["weights"], axis=-1),
        node("MatMul", ["weights", "vh"], ["mixed"]),
        node("Transpose", ["mixed"], ["moved"], perm=[0, 2, 1, 3]),
        node("Reshape", ["moved", "join"], ["y"]),
    ]
    constants: dict[str, Any] = {
        "split": np.array([1, 5, 2, 4]),
        "join": np.array([1, 5, 8]),
        "scale": np.array(0.5, np.float32),
        "low": np.array([-np.inf], np.float32),
        "mask": np.tril(np.ones((1, 1, 5, 5), bool)),
    }
    values = {name: x(1, 5, 8, seed=i) for i, name in enumerate("qkv")}
    return model_of(nodes, {**values, **constants}, list(constants), ["y"])


def layer_normalisation() -> Call:
    """As PyTorch spells it out for old opsets."""
    nodes = [
        node("ReduceMean", ["x", "axes"], ["mean"]),
        node("Sub", ["x", "mean"], ["centred"]),
        node("Pow", ["centred", "two"], ["squared"]),
        node("ReduceMean", ["squared", "axes"], ["variance"]),
        node("Add", ["variance", "epsilon"], ["shifted"]),
        node("Sqrt", ["shifted"], ["deviation"]),
        node("Div", ["centred", "deviation"], ["normal"]),
        node("Mul", ["normal", "scale"], ["scaled"]),
        node("Add", ["scaled", "shift"], ["y"]),
    ]
    constants: dict[str, Any] = {
        "axes": np.array([-1]),
        "two": np.array(2, np.float32),
        "epsilon": np.array(1e-5, np.float32),
        "scale": x(8, seed=1),
        "shift": x(8, seed=2),
    }
    return model_of(nodes, {"x": x(3, 4, 8), **constants}, list(constants), ["y"])


def split_and_join() -> Call:
    """Several results of one operator, one of which leaves the kernel too."""
    nodes = [
        node("Split", ["x"], ["a", "b"], axis=1, num_outputs=2),
        node("Sigmoid", ["a"], ["s"]),
        node("Mul", ["s", "b"], ["m"]),
        node("Concat", ["m", "a"], ["y"], axis=1),
    ]
    return model_of(nodes, {"x": x(2, 6)}, [], ["y", "s"])


BLOCKS = (residual_block, attention, layer_normalisation, split_and_join)


@pytest.mark.representatives(2)
@pytest.mark.parametrize("immediates", [False, True], ids=["as inputs", "as immediates"])
@pytest.mark.parametrize("block", BLOCKS, ids=lambda b: b.__name__)
def test_as_onnx_runtime(block: Any, immediates: bool) -> None:
    assert_as_onnx_runtime([block()], immediates=immediates)


def names(graph: OperatorGraph, values: tuple[int, ...]) -> list[str]:
    return [graph.values[v].name for v in values]


def whole(call: Call, **settings: Any) -> KernelFunction:
    return lower_kernel(call.graph, range(len(call.graph)), "kernel", **settings)


def blocks(kernel: KernelFunction) -> dict[str, dict[str, str]]:
    """By name of each block, without the number of its value, its attributes, in order."""
    schedule = Schedule(tvm.IRModule({"main": kernel.prim_func}))
    own = [schedule.get(b) for b in schedule.get_child_blocks(schedule.get_sblock("root"))]
    return {re.sub(r"_\d+$", "", str(b.name_hint)): {k: str(v) for k, v in b.annotations.items()} for b in own}


def test_reads_outer_values_and_gives_those_that_others_read() -> None:
    call = residual_block()
    kernel = lower_kernel(call.graph, [0, 1], "kernel")
    assert names(call.graph, kernel.inputs) == ["x", "w", "scale", "shift", "mean", "variance"]
    assert names(call.graph, kernel.outputs) == ["n"]
    assert len(kernel.prim_func.params) == 7
    assert kernel.prim_func.attrs["global_symbol"] == "kernel"
    split = split_and_join()  # one value is read by a member and by the caller
    assert names(split.graph, whole(split).outputs) == ["s", "y"]


def test_constants_of_one_element_are_no_inputs_but_part_of_the_kernel() -> None:
    call = layer_normalisation()
    values = {n: call.values[v.name] for n, v in enumerate(call.graph.values) if v.is_constant}
    changed = {n: array * 2 if array.size == 1 else array for n, array in values.items()}
    first, second = (whole(call, constants=constants) for constants in (values, changed))
    assert names(call.graph, first.inputs) == ["x", "scale", "shift"]
    assert not tvm_ffi.structural_equal(first.prim_func, second.prim_func)


def test_anchors_are_marked_and_blocks_named_after_their_nodes() -> None:
    attributes = blocks(whole(residual_block("stem/conv.1")))
    assert [name for name, own in attributes.items() if ANCHOR in own] == ["stem_conv_1"]
    assert attributes["stem_conv_1_pad"] == {OPERATOR: "Conv"}
    assert attributes["stem_conv_1"] == {OPERATOR: "Conv", ANCHOR: "Conv"}
    assert "Conv_stem" in blocks(whole(residual_block("stem")))  # the node is not called after its operator


def test_kernels_that_differ_in_their_names_alone_are_equal() -> None:
    first, second = (whole(residual_block(name)).prim_func for name in ("conv", "other/conv"))
    assert tvm_ffi.structural_equal(first, second)
    assert tvm_ffi.structural_hash(first) == tvm_ffi.structural_hash(second)


def test_the_parts_of_a_graph_are_the_whole() -> None:
    """Cut anywhere, the kernels compute one after the other what the model does."""
    call = attention()
    graph, values = call.graph, call.values
    for cut in range(0, len(graph), 3):
        members = range(cut, min(cut + 3, len(graph)))
        kernel = lower_kernel(graph, members, "kernel")
        library = build(tvm.IRModule({"kernel": kernel.prim_func}), tvm.target.Target("llvm"))
        types: list[Any] = [graph.values[v].type for v in kernel.outputs]
        results = [tvm.runtime.tensor(np.empty(t.shape, t.dtype)) for t in types]
        library["kernel"](*(tvm.runtime.tensor(values[n]) for n in names(graph, kernel.inputs)), *results)
        values |= dict(zip(names(graph, kernel.outputs), (r.numpy() for r in results), strict=True))
    np.testing.assert_allclose(values["y"], in_onnx_runtime(call)["y"], 1e-5, 1e-6)


def test_an_operator_without_a_lowering_is_named() -> None:
    call = single("Det", {"x": x(3, 3)}, name="determinant")
    with pytest.raises(NotLowered, match="Det determinant"):
        whole(call)


def test_inlining_does_not_multiply_what_is_inlined() -> None:
    nodes = [node(op, [a], [b]) for op, a, b in (("Gelu", "x", "g"), ("Mish", "g", "m"), ("HardSwish", "m", "y"))]
    schedule = Schedule(whole(model_of(nodes, {"x": x(4, 5)}, [], ["y"])).prim_func)
    for block in schedule.get_child_blocks(schedule.get_sblock("root"))[:2]:
        schedule.compute_inline(block)
    (body,) = (line for line in schedule.mod.script().splitlines() if "HardSwish_of_y" in line and "v_i1] =" in line)
    assert body.count("v0[v_i0, v_i1]") == 1


def test_kernels_of_one_module_do_not_meet() -> None:
    first, second = in_tvm([residual_block(), residual_block()])
    np.testing.assert_array_equal(first["y"], second["y"])


def test_what_is_multiplied_by_zero_is_an_input() -> None:
    """Infinity times 0 is NaN."""
    feeds = {"x": x(3, 4), "zero": np.zeros(1, np.float32)}
    call = model_of([node("Mul", ["x", "zero"], ["y"])], feeds, ["zero"], ["y"])
    (zero,) = (n for n, value in enumerate(call.graph.values) if value.name == "zero")
    function = lower_kernel(call.graph, [0], "kernel", {zero: feeds["zero"]})
    assert [call.graph.values[value].name for value in function.inputs] == ["x"]
