"""Sums of products of bytes are exact in 32 bits, by whatever instruction a processor has for them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from tvm import te, tirx

from eqfuse.costmodels.device import Device, load_device
from eqfuse.engine.onnx.model import read
from eqfuse.lowering.base.exact_pairs import LARGEST_PAIR
from eqfuse.lowering.base.target import Target, target_of
from eqfuse.lowering.base.weights import Weights
from eqfuse.lowering.kernels.build import build
from eqfuse.lowering.kernels.prim_funcs import DistinctKernels, KernelFunction
from eqfuse.lowering.kernels.steps import Kernel
from eqfuse.lowering.schedules import mark_constants, mark_exact_pairs, schedule
from eqfuse.lowering.schedules.base.draft import EXACT_PAIRS

from ..small_models import graph_of

TARGETS = [target_of(name, 1) for name in ("host", "x86-64-v2", "x86-64-v3", "x86-64-v4")]
HERE = [target for target in TARGETS if not target.missing]
"""Those whose code this machine runs."""
WITH_WORDS = {"kind": "llvm", "mtriple": "x86_64-unknown-linux-gnu", "mcpu": "icelake-server", "num-cores": 1}


@dataclass(frozen=True)
class Sum:
    """A convolution of a map [rows, columns, channels] with its channels last, by a window and a stride."""

    shape: tuple[int, int, int]
    outputs: int
    window: int = 1
    stride: int = 1
    data: str = "uint8"
    largest: int = 128
    """Of the sizes of weights: with 64 no sum of two products saturates in 16 bits."""

    @property
    def function(self) -> tirx.PrimFunc:
        """The sums of 32 bits, halved: a function behind them, as every kernel has one."""
        height, width, channels = self.shape
        x = te.placeholder((1, height, width, channels), self.data, "x")
        w = te.placeholder((self.outputs, channels, self.window, self.window), "int8", "w")
        kh, kw = (te.reduce_axis((0, self.window), name) for name in ("kh", "kw"))
        c = te.reduce_axis((0, channels), "c")
        places = [(n - self.window) // self.stride + 1 for n in (height, width)]

        def element(n: Any, i: Any, j: Any, o: Any) -> Any:
            data = x[n, i * self.stride + kh, j * self.stride + kw, c].astype("int32")
            return te.sum(data * w[o, c, kh, kw].astype("int32"), axis=[kh, kw, c])

        total = te.compute((1, *places, self.outputs), element, "total")
        y = te.compute(total.shape, lambda *i: total(*i) ^ tirx.const(1, "int32"), "y")
        function = mark_constants(te.create_prim_func([x, w, y]).with_attr("global_symbol", "main"), (1,))
        return mark_exact_pairs(function) if 2 * self.largest <= LARGEST_PAIR else function

    def check(self, target: Target, seed: int) -> None:
        """Compare with sums of 64 bits, at extreme values and others."""
        scheduled = schedule(self.function, target.device, 1)
        code = build(scheduled.schedule.mod, tvm.target.Target(target.description))
        generator = np.random.default_rng(seed)
        height, width, channels = self.shape
        data = np.array([0, 1, 77, 255], np.uint8).view(self.data)
        x = generator.choice(data, (1, height, width, channels))
        weights = np.array([-self.largest, -1, 0, self.largest // 2 + 2, min(self.largest, 127)], np.int8)
        w = generator.choice(weights, (self.outputs, channels, *(self.window,) * 2))
        windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.int64), (self.window,) * 2, (1, 2))
        sums = np.tensordot(windows[:, :: self.stride, :: self.stride], w.astype(np.int64), ((3, 4, 5), (1, 2, 3)))
        operands = [x, w]
        for repack in scheduled.repack:
            operands[repack.parameter] = repack(operands[repack.parameter])
        result = tvm.runtime.tensor(np.zeros(sums.shape, np.int32))
        code["main"](*map(tvm.runtime.tensor, operands), result)
        np.testing.assert_array_equal(result.numpy(), sums.astype(np.int32) ^ 1)


sums = st.builds(
    Sum,
    st.tuples(
        st.integers(3, 9), st.integers(3, 9), st.one_of(st.integers(1, 9).map(lambda n: 4 * n), st.integers(1, 33))
    ),
    st.integers(1, 70),
    st.integers(1, 3),
    st.integers(1, 2),
    st.sampled_from(["uint8", "int8"]),
    st.sampled_from([64, 128]),
)


@pytest.mark.representatives(2)
@pytest.mark.parametrize("target", HERE, ids=lambda target: target.name)
@settings(max_examples=3)
@given(sums, st.integers(0, 1000))
def test_sums_of_bytes_are_exact(target: Target, case: Sum, seed: int) -> None:
    case.check(target, seed)


@pytest.mark.conformance
@pytest.mark.parametrize("target", HERE, ids=lambda target: target.name)
@settings(max_examples=150)
@given(sums, st.integers(0, 1000))
def test_many_sums_of_bytes_are_exact(target: Target, case: Sum, seed: int) -> None:
    case.check(target, seed)


@pytest.mark.representatives(2)
@pytest.mark.parametrize(
    ("device", "description", "instruction", "data"),
    [
        (replace(load_device("x86-64-v3"), dot_product="vpdpbusd"), WITH_WORDS, "vpdpbusd", "uint8"),
        (load_device("x86-64-v3"), target_of("x86-64-v3", 1).description, "vpmaddwd", "uint8"),
        (load_device("x86-64-v3"), target_of("x86-64-v3", 1).description, "vpmaddwd", "int8"),
        (load_device("arm-cortex-a76"), target_of("arm-cortex-a76", 1).description, "sdot", "int8"),
    ],
    ids=["VNNI", "AVX2", "AVX2, of a sign", "Arm"],
)
def test_products_of_bytes_are_dot_products(
    device: Device, description: dict[str, Any], instruction: str, data: str
) -> None:
    """Whatever the processor here: no product of theirs is left that LLVM would widen one by one."""
    scheduled = schedule(Sum((8, 8, 64), 48, data=data).function, device, 1)
    code = build(scheduled.schedule.mod, tvm.target.Target(description)).mod.inspect_source("asm")
    assert len(re.findall(rf"\t{instruction}\t", code)) >= 16
    assert "mull" not in code


@dataclass(frozen=True)
class ProductOfActivations:
    """The product of stacks of matrices of bytes less zero points, neither of them constant; of the second both axes
    may be exchanged in memory. Some of the operands may be `read_again` behind the product, as 0 and 1."""

    rows: int
    depth: int
    columns: int
    types: tuple[str, str] = ("uint8", "uint8")
    zeros: tuple[int, int] = (3, 130)
    is_turned: bool = False
    batch: int = 2
    read_again: frozenset[int] = frozenset()

    @property
    def function(self) -> tirx.PrimFunc:
        """The sums of 32 bits, halved."""
        turned, plain = (self.batch, self.columns, self.depth), (self.batch, self.depth, self.columns)
        a = te.placeholder((self.batch, self.rows, self.depth), self.types[0], "a")
        b = te.placeholder(turned if self.is_turned else plain, self.types[1], "b")
        right = te.compute(plain, lambda n, k, j: b[n, j, k], "turned") if self.is_turned else b
        k = te.reduce_axis((0, self.depth), "k")

        def element(n: Any, i: Any, j: Any) -> Any:
            operands = zip((a[n, i, k], right[n, k, j]), self.zeros, strict=True)
            left, other = (byte.astype("int32") - zero if zero else byte.astype("int32") for byte, zero in operands)
            return te.sum(left * other, axis=[k])

        total = te.compute((self.batch, self.rows, self.columns), element, "total")

        def triple(number: int) -> te.Tensor:
            byte = (a, b)[number]
            return te.compute(byte.shape, lambda *i: byte(*i).astype("int32") * 3, f"tripled{number}")

        tripled = {number: triple(number) for number in self.read_again}

        def behind(n: Any, i: Any, j: Any) -> Any:
            places = [(n, i, j % self.depth), (n, j, i % self.depth) if self.is_turned else (n, i % self.depth, j)]
            return sum((x(*places[number]) for number, x in tripled.items()), total(n, i, j) ^ tirx.const(1, "int32"))

        y = te.compute(total.shape, behind, "y")
        return te.create_prim_func([a, b, y]).with_attr("global_symbol", "main")

    def check(self, target: Target, seed: int) -> None:
        """Compare with sums of 64 bits, at extreme values and others."""
        code = build(
            schedule(self.function, target.device, 1).schedule.mod, tvm.target.Target(target.description)
        )
        generator = np.random.default_rng(seed)
        bytes_ = [np.array([0, 1, 77, 128, 255], np.uint8).view(dtype) for dtype in self.types]
        a = generator.choice(bytes_[0], (self.batch, self.rows, self.depth))
        b = generator.choice(bytes_[1], (self.batch, self.depth, self.columns))
        stored = np.ascontiguousarray(b.swapaxes(1, 2)) if self.is_turned else b
        result = tvm.runtime.tensor(np.zeros((self.batch, self.rows, self.columns), np.int32))
        code["main"](*map(tvm.runtime.tensor, (a, stored)), result)
        left, right = (x.astype(np.int64) - zero for x, zero in zip((a, b), self.zeros, strict=True))
        expected = (left @ right).astype(np.int32) ^ 1
        if 0 in self.read_again:
            expected += 3 * a.astype(np.int32)[:, :, np.arange(self.columns) % self.depth]
        if 1 in self.read_again:
            expected += 3 * b.astype(np.int32)[:, np.arange(self.rows) % self.depth]
        np.testing.assert_array_equal(result.numpy(), expected)


_bytes = st.sampled_from(["uint8", "int8"])
_ends = st.sampled_from([0, 1, 127])
products = st.builds(
    ProductOfActivations, st.integers(1, 20), st.integers(1, 70), st.integers(1, 70), st.tuples(_bytes, _bytes),
    st.tuples(_ends, _ends), st.booleans(), st.integers(1, 2), st.frozensets(st.integers(0, 1)),
)  # fmt: skip


@pytest.mark.representatives(2)
@pytest.mark.parametrize("target", HERE, ids=lambda target: target.name)
@settings(max_examples=3)
@given(products, st.integers(0, 1000))
def test_products_of_activations_are_exact(target: Target, case: ProductOfActivations, seed: int) -> None:
    case.check(target, seed)


@pytest.mark.conformance
@pytest.mark.parametrize("target", HERE, ids=lambda target: target.name)
@settings(max_examples=150)
@given(products, st.integers(0, 1000))
def test_many_products_of_activations_are_exact(target: Target, case: ProductOfActivations, seed: int) -> None:
    case.check(target, seed)


def test_operands_that_are_read_again_stay_bytes_for_others() -> None:
    """Numbers of 16 bits less a zero point are the product's alone, and are made behind the other readers."""
    for target in HERE:
        ProductOfActivations(8, 8, 8, ("uint8", "int8"), read_again=frozenset({0, 1})).check(target, 0)


@pytest.mark.parametrize("zeros", [(255, -128), (255, 127), (0, -128)], ids=str)
def test_products_of_the_farthest_bytes_are_exact(zeros: tuple[int, int]) -> None:
    """Differences of 255 either way, which bytes do not hold and 16 bits do."""
    for target in HERE:
        ProductOfActivations(8, 64, 32, ("uint8", "int8"), zeros).check(target, 0)


@pytest.mark.parametrize("is_turned", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize(
    ("device", "description", "instruction"),
    [
        (replace(load_device("x86-64-v3"), dot_product="vpdpbusd"), WITH_WORDS, "vpdpwssd"),
        (load_device("x86-64-v3"), target_of("x86-64-v3", 1).description, "vpmaddwd"),
    ],
    ids=["VNNI", "AVX2"],
)
def test_products_of_activations_are_dot_products(
    device: Device, description: dict[str, Any], instruction: str, is_turned: bool
) -> None:
    """The second operand becomes pairs by whole vectors, whichever of its axes is contiguous."""
    scheduled = schedule(ProductOfActivations(32, 32, 64, is_turned=is_turned).function, device, 1)
    assert scheduled.rule == "stages (pointwise + transposition + contraction)"
    code = build(scheduled.schedule.mod, tvm.target.Target(description)).mod.inspect_source("asm")
    assert len(re.findall(rf"\t{instruction}\t", code)) >= 8
    assert "mull" not in code


def test_avx2_adds_up_bytes_in_16_bits_for_small_weights() -> None:
    target = target_of("x86-64-v3", 1)
    scheduled = schedule(Sum((8, 8, 64), 48, largest=64).function, target.device, 1)
    code = build(scheduled.schedule.mod, tvm.target.Target(target.description)).mod.inspect_source("asm")
    assert len(re.findall("\tvpmaddubsw\t", code)) >= 16


@pytest.mark.representatives(2)
@pytest.mark.parametrize("target", HERE, ids=lambda target: target.name)
def test_the_largest_pairs_do_not_saturate(target: Target) -> None:
    """Most of the products are 255 * 64 + 255 * 64 = 32640, or that below zero."""
    Sum((4, 4, 32), 24, largest=64).check(target, 0)


@pytest.mark.parametrize(("largest", "is_marked"), [(64, True), (65, False)])
def test_kernels_know_weights_whose_pairs_are_exact(largest: int, is_marked: bool) -> None:
    product = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"])], "product",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [4, 8])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [4, 6])],
        [numpy_helper.from_array(np.full((8, 6), largest, np.int8), "w")],
    )  # fmt: skip
    proto = helper.make_model(product, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    function = DistinctKernels.of(graph_of(proto), [(0,)], Weights(read(proto))).lower(Kernel((0,)))
    assert isinstance(function, KernelFunction)
    assert bool(function.prim_func.attrs.get(EXACT_PAIRS)) is is_marked
