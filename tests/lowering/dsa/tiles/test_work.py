from __future__ import annotations

from dataclasses import replace

import pytest

from eqfuse.costmodels.dsa_device import DsaDevice, load_dsa_device
from eqfuse.lowering.dsa.program.instructions import Product, Unit, Work
from eqfuse.lowering.dsa.tiles.work import work_of

from ..graphs import Builder, windows
from ..tile_cases import LAYERS, one

DEVICE = load_dsa_device("stcp920")


def without(*kinds: str, device: DsaDevice = DEVICE) -> DsaDevice:
    return replace(device, units=tuple(unit for unit in device.units if unit.kind not in kinds))


def amounts(name: str, device: DsaDevice = DEVICE) -> dict[Unit, int]:
    return {work.unit: work.total for work in work_of(LAYERS[name].network.graph, device)}


def test_a_convolution_is_im2col() -> None:
    builder = Builder()
    y = builder.conv(builder.value((2, 64, 16, 16)), 128, 3)
    (work,) = work_of(builder.graph(y), DEVICE)
    assert work == Work(Unit.MME, 0, (Product(2 * 16 * 16, 128, 64 * 9),))


def test_groups_are_products_of_their_own() -> None:
    builder = Builder()
    y = builder.conv(builder.value((1, 128, 16, 16)), 128, 3, group=2)
    (work,) = work_of(builder.graph(y), DEVICE)
    assert work.products == (Product(256, 64, 64 * 9, 2),)


def test_a_depthwise_convolution_is_of_the_vector_mac_engine() -> None:
    builder = Builder()
    y = builder.conv(builder.value((1, 64, 16, 16)), 64, 3, group=64)
    assert work_of(builder.graph(y), DEVICE) == (Work(Unit.VME, 64 * 16 * 16 * 9),)


def test_without_one_it_is_left_to_the_vector_unit() -> None:
    builder = Builder()
    y = builder.conv(builder.value((1, 64, 16, 16)), 64, 3, group=64)
    assert work_of(builder.graph(y), without("vector_mac")) == (Work(Unit.VECTOR, 64 * 16 * 16 * 9),)


def test_without_a_matrix_unit_products_are_multiply_accumulates() -> None:
    builder = Builder()
    y = builder.conv(builder.value((2, 64, 16, 16)), 128, 3)
    assert work_of(builder.graph(y), without("matrix")) == (Work(Unit.VME, 512 * 128 * 576),)


def test_what_follows_a_product_is_vector_work() -> None:
    builder = Builder()
    y = builder.relu(builder.conv(builder.value((2, 64, 16, 16)), 128, 3), joined=True)
    assert work_of(builder.graph(y), DEVICE)[1] == Work(Unit.VECTOR, 2 * 128 * 256)


def test_a_bias_is_an_operation_per_element() -> None:
    builder = Builder()
    x, w, b = builder.value((1, 64, 8, 8)), builder.value((64, 64, 1, 1), constant=True), builder.value((64,))
    y = builder.add("Conv", [x, w, b], (1, 64, 8, 8), group=1, **windows(1, 1, 0))
    assert work_of(builder.graph(y), DEVICE)[1] == Work(Unit.VECTOR, 64 * 64)


@pytest.mark.parametrize(
    ("left", "right", "product"),
    [
        ((4, 128, 64), (64, 256), Product(512, 256, 64)),
        ((4, 128, 64), (1, 64, 256), Product(512, 256, 64)),
        ((4, 128, 64), (4, 64, 256), Product(128, 256, 64, 4)),
        ((1, 128, 64), (4, 64, 256), Product(128, 256, 64, 4)),
    ],
)
def test_rows_that_share_the_right_operand_are_of_one_product(
    left: tuple[int, ...], right: tuple[int, ...], product: Product
) -> None:
    (work,) = work_of(one("MatMul", left, right).network.graph, DEVICE)
    assert work.products == (product,)


def test_units_that_are_the_clusters_work_there_alone() -> None:
    builder = Builder()
    y = builder.relu(builder.conv(builder.value((2, 64, 16, 16)), 128, 3), joined=True)
    goya = load_dsa_device("goya")
    matrix, vector = goya.units
    device = replace(goya, units=(replace(matrix, per="cluster"), vector))
    assert [work.unit for work in work_of(builder.graph(y), device)] == [Unit.MME]


def test_without_a_product_the_cores_work() -> None:
    assert amounts("Relu", load_dsa_device("goya")) == {Unit.VECTOR: 2 * 4 * 9 * 8}


@pytest.mark.parametrize(
    ("name", "operations"),
    [
        ("Relu", 576),
        ("Softmax", 8 * 24),
        ("ReduceMean", 120),
        ("MaxPool", 2 * 4 * 5 * 4 * 9),
        ("GlobalAveragePool", 576),
        ("BatchNormalization", 2 * 576),
        ("Transpose", 120),
        ("Concat", 16),
        ("Reshape", 0),
        ("nearest up", 2 * 2 * 18 * 36),
        ("linear up", 8 * 2 * 2 * 18 * 24),
    ],
)
def test_elements_and_their_factors(name: str, operations: int) -> None:
    assert amounts(name) == {Unit.VECTOR: operations}


def test_moves_beside_other_work_are_free() -> None:
    builder = Builder()
    x = builder.add("Transpose", [builder.value((8, 4))], (4, 8), perm=(1, 0))
    assert work_of(builder.graph(builder.relu(x, joined=True)), DEVICE) == (Work(Unit.VECTOR, 32),)
