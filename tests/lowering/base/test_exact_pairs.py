"""Weights whose products by bytes add up exactly in 16 bits, and the device that costs take for them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from eqfuse.costmodels.device import load_device
from eqfuse.engine.onnx.model import read
from eqfuse.lowering.base.exact_pairs import device_for_weights, has_exact_pairs

from ..small_models import model


@pytest.mark.parametrize(
    ("pair", "is_exact"), [((64, 64), True), ((127, 1), True), ((-128, 0), True), ((-128, 1), False), ((65, 64), False)]
)
@pytest.mark.parametrize("axis", [0, 1])
def test_pairs_are_exact_up_to_a_bound(pair: tuple[int, int], is_exact: bool, axis: int) -> None:
    weights = np.zeros((4, 6), np.int8)
    np.moveaxis(weights, axis, 0)[2:4, 1] = pair
    assert has_exact_pairs(weights) is is_exact


@pytest.mark.parametrize(
    ("stored", "is_faster"),
    [
        ({"v": np.full((8, 6), 64, np.int8)}, True),
        ({"v": np.full((8, 6), 65, np.int8)}, False),
        ({"v": np.full((8, 6), 64, np.int8), "z": np.full(6, 127, np.int8)}, True),
        ({"v": np.full((8, 6), 64, np.int8), "u": np.full((8, 6), 64, np.uint8)}, False),
        ({"v": np.ones((8, 6), np.float32)}, False),
    ],
    ids=["pairs", "larger", "no matrix", "without a sign", "floats"],
)
def test_a_model_of_exact_pairs_is_priced_by_the_faster_instruction(
    stored: dict[str, np.ndarray], is_faster: bool
) -> None:
    read_model = read(model([helper.make_node("Neg", ["x"], ["y"])], {"x": (4, 8)}, {"y": (4, 8)}, **stored))
    for name, faster in (("x86-64-v3", "vpmaddubsw"), ("arm-cortex-a76", "sdot")):
        device = load_device(name)
        assert device_for_weights(device, read_model).dot_product == (faster if is_faster else device.dot_product)
