"""What kernels are timed on."""

from __future__ import annotations

import numpy as np
import pytest

from eqfuse.ir.types import TensorType
from eqfuse.lowering.tuning.runners.measuring import example_tensors


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(), (3, 5)])
def test_floats_are_ordinary(dtype: str, shape: tuple[int, ...]) -> None:
    (array,) = example_tensors([TensorType(dtype, shape)])
    assert (array.dtype, array.shape) == (np.dtype(dtype), shape)
    assert ((array >= 0.5) & (array <= 1.5)).all()


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool"])
def test_all_else_is_zero(dtype: str) -> None:
    (array,) = example_tensors([TensorType(dtype, (2,))])
    assert array.dtype == np.dtype(dtype)
    assert not array.any()


def test_they_are_the_same_every_time() -> None:
    types = [TensorType("float32", (4,))] * 2
    first, second = (np.stack(example_tensors(types)) for _ in range(2))
    assert (first == second).all()
    assert (first[0] != first[1]).any()


def test_an_unknown_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="not known"):
        example_tensors([TensorType("float32", ("n",))])
