"""Integers that are rounded to bytes and read again in the same kernel stay integers of 32 bits, if they are bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import te, tirx

from eqfuse.lowering.base.target import target_of
from eqfuse.lowering.compute.elementary import round_to_integer
from eqfuse.lowering.kernels.build import build
from eqfuse.lowering.schedules import schedule

HERE, AVX2 = (target_of(name, 1) for name in ("host", "x86-64-v3"))


@dataclass(frozen=True)
class Rounded:
    """Numbers within limits, rounded, with an offset, as bytes, and the offset subtracted again."""

    dtype: str
    least: int
    largest: int
    offset: int

    @property
    def function(self) -> tirx.PrimFunc:
        x = te.placeholder((64,), "float32", "x")

        def to_byte(i: Any) -> Any:
            limited = tirx.Min(tirx.Max(x(i), tirx.const(self.least, "float32")), tirx.const(self.largest, "float32"))
            return (round_to_integer(limited, "int32") + tirx.const(self.offset, "int32")).astype(self.dtype)

        byte = te.compute(x.shape, to_byte, "byte")
        y = te.compute(x.shape, lambda i: byte(i).astype("int32") - tirx.const(self.offset, "int32"), "y")
        return te.create_prim_func([x, y]).with_attr("global_symbol", "main")

    def built(self) -> Any:
        module = schedule(self.function, HERE.device, 1).schedule.mod
        return build(module, tvm.target.Target(HERE.description))


@settings(max_examples=8)
@given(
    st.builds(
        Rounded, st.sampled_from(["int8", "uint8"]), st.integers(-300, 0), st.integers(1, 300), st.integers(-128, 255)
    )
)
def test_integers_are_those_of_bytes(case: Rounded) -> None:
    """Limits that are no bytes wrap around, as they did."""
    x = np.linspace(-400, 400, 64, dtype=np.float32)
    rounded = np.rint(np.clip(x, case.least, case.largest)).astype(np.int32) + case.offset
    result = tvm.runtime.tensor(np.zeros(64, np.int32))
    case.built()["main"](tvm.runtime.tensor(x), result)
    np.testing.assert_array_equal(result.numpy(), rounded.astype(case.dtype).astype(np.int32) - case.offset)


@pytest.mark.parametrize(("least", "narrows"), [(-3, False), (-4, True)])
def test_bytes_are_not_made_of_integers_within_their_limits(least: int, narrows: bool) -> None:
    code = Rounded("uint8", least, 252, 3).built().mod.inspect_source("ll")
    assert bool(re.search("(trunc|and) <", code)) == narrows


def product_as_bytes(dtype: str, offset: int, columns: int) -> Any:
    """The code for AVX2 of a product of matrices that becomes bytes, whose last tile overlaps the one before."""
    x = te.placeholder((7, 8), "float32", "x")
    w = te.placeholder((8, columns), "float32", "w")
    k = te.reduce_axis((0, 8), "k")
    total = te.compute((7, columns), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), "total")
    ends = (int(end(dtype).value) - offset for end in (te.min_value, te.max_value))
    least, largest = (tirx.const(end, "float32") for end in ends)

    def to_byte(i: Any, j: Any) -> Any:
        limited = tirx.Min(tirx.Max(total[i, j], least), largest)
        return (round_to_integer(limited, "int32") + tirx.const(offset, "int32")).astype(dtype)

    y = te.compute(total.shape, to_byte, "y")
    function = te.create_prim_func([x, w, y]).with_attr("global_symbol", "main")
    return build(schedule(function, AVX2.device, 1).schedule.mod, tvm.target.Target(AVX2.description))


@pytest.mark.skipif(bool(AVX2.missing), reason="this processor has no AVX2")
@settings(max_examples=4)
@given(st.sampled_from(["int8", "uint8"]), st.integers(0, 127), st.integers(1, 70))
def test_bytes_of_neighbouring_vectors_are_those_of_each(dtype: str, offset: int, columns: int) -> None:
    numbers = np.arange(56, dtype=np.float32).reshape(7, 8) - 28
    weights = np.arange(8 * columns, dtype=np.float32).reshape(8, columns) % 11 - 5
    result = tvm.runtime.tensor(np.zeros((7, columns), dtype))
    code = product_as_bytes(dtype, offset, columns)
    code["main"](tvm.runtime.tensor(numbers), tvm.runtime.tensor(weights), result)
    limits = np.iinfo(dtype)
    sums = np.clip(np.rint(numbers @ weights) + offset, limits.min, limits.max)
    np.testing.assert_array_equal(result.numpy(), sums.astype(dtype))


def test_two_vectors_of_bytes_are_stored_at_once() -> None:
    assert "vpackssdw" in product_as_bytes("uint8", 0, 32).mod.inspect_source("asm")
