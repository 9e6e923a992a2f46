"""Products of integers whose operands have a zero point for each row, column or filter: ONNX Runtime has not all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ..in_tvm import in_tvm, single

Array = np.ndarray[Any, Any]
GENERATOR = np.random.default_rng(0)
BYTES = GENERATOR.integers(0, 256, (2, 5, 8), dtype="uint8")
COLUMNS = GENERATOR.integers(-128, 128, (8, 6), dtype="int8")
IMAGE = GENERATOR.integers(0, 256, (1, 3, 4, 4), dtype="uint8")
FILTERS = GENERATOR.integers(-128, 128, (6, 3, 1, 1), dtype="int8")
OF_COLUMNS = GENERATOR.integers(-128, 128, 6, dtype="int8")
OF_ROWS = GENERATOR.integers(0, 256, 5, dtype="uint8")


@pytest.mark.representatives(4)
@pytest.mark.parametrize("left", [None, np.array(7, np.uint8), OF_ROWS])
@pytest.mark.parametrize("right", [None, np.array(-3, np.int8), OF_COLUMNS])
def test_matrices(left: Array | None, right: Array | None) -> None:
    operands = {"a": BYTES, "b": COLUMNS, "za": left, "zb": right}
    stored = [name for name, array in operands.items() if array is not None and name != "a"]
    (found,) = in_tvm([single("MatMulInteger", operands, stored)])
    rows = 0 if left is None else left.astype(int)[..., None]
    expected = (BYTES.astype(int) - rows) @ (COLUMNS.astype(int) - (0 if right is None else right.astype(int)))
    np.testing.assert_array_equal(found["y0"], expected)


def test_filters() -> None:
    operands = {"x": IMAGE, "w": FILTERS, "zx": np.array(9, np.uint8), "zw": OF_COLUMNS}
    (found,) = in_tvm([single("ConvInteger", operands, ["w", "zx", "zw"])])
    weights = FILTERS[:, :, 0, 0].astype(int) - OF_COLUMNS.astype(int)[:, None]
    np.testing.assert_array_equal(found["y0"], np.einsum("oc,nchw->nohw", weights, IMAGE.astype(int) - 9))
