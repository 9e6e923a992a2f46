from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqfuse.costmodels.dsa_device import DsaDevice, load_dsa_device
from eqfuse.costmodels.systolic import Product
from eqfuse.lowering.base.errors import DsaError
from eqfuse.lowering.dsa.network.boxes import Box, whole
from eqfuse.lowering.dsa.network.graph import Network
from eqfuse.lowering.dsa.program.instructions import Unit, Work
from eqfuse.lowering.dsa.tiles.kernels import TileKernels, structure, work_of
from eqfuse.lowering.dsa.tiles.local_graph import Tile, local_graph

from ....properties import examples
from ..graphs import Builder, windows
from ..random_graphs import cases
from ..tile_cases import LAYERS, one, tiles

DEVICE = load_dsa_device("stcp920")


def tile_of(network: Network, members: tuple[int, ...], value: int, box: Box) -> Tile:
    needed = network.needs(members, {value: box})
    made = {v for m in members for v in network.graph.operators[m].outputs}
    return Tile(members, tuple((v, needed[v]) for v in sorted(needed) if v not in made), ((value, box),))


def conv_relu(batch: int = 4) -> tuple[Network, int]:
    builder = Builder()
    y = builder.relu(builder.conv(builder.value((batch, 8, 16, 16)), 8, 3), joined=True)
    return Network(builder.graph(y)), y


def rows(sample: int, first: int, last: int) -> Box:
    return ((sample, sample + 1), (0, 8), (first, last), (0, 16))


@pytest.mark.representatives(7)
@examples(4)
@given(data=st.data())
@pytest.mark.parametrize("name", LAYERS)
def test_a_tile_gets_the_kernel_of_its_own_graph(name: str, data: st.DataObject) -> None:
    """The cheap key tells unequal graphs apart, whatever was asked before."""
    network = LAYERS[name].network
    kernels = TileKernels(network, DEVICE)
    for _ in range(6):
        tile = data.draw(tiles(network, (0,)))
        kernel = kernels.kernel(tile)
        assert structure(kernel.graph) == structure(local_graph(network, tile))


@examples(12)
@given(data=st.data())
def test_so_do_tiles_of_several_operators(data: st.DataObject) -> None:
    graph, layers, _, _ = data.draw(cases())
    network = Network(graph)
    kernels = TileKernels(network, DEVICE)
    for _ in range(8):
        first = data.draw(st.integers(0, len(layers) - 1))
        members = tuple(m for layer in layers[first : first + data.draw(st.integers(1, 3))] for m in layer)
        tile = data.draw(tiles(network, members))
        kernel = kernels.kernel(tile)
        assert structure(kernel.graph) == structure(local_graph(network, tile))


def test_a_matrix_by_itself_is_not_moved() -> None:
    """Rows of the left operand are the depth of the right one."""
    network = one("MatMul", (6, 6), (6, 6)).network
    builder = Builder()
    x = builder.value((6, 6))
    y = builder.add("MatMul", [x, x], (6, 6))
    network = Network(builder.graph(y))
    kernels = TileKernels(network, DEVICE)
    for box in (((0, 2), (0, 6)), ((2, 4), (0, 6)), ((0, 6), (3, 5))):
        tile = tile_of(network, (0,), y, box)
        kernel = kernels.kernel(tile)
        assert structure(kernel.graph) == structure(local_graph(network, tile))


def test_samples_share_a_kernel() -> None:
    network, y = conv_relu()
    kernels = TileKernels(network, DEVICE)
    (kernel,) = {kernels.kernel(tile_of(network, (0, 1), y, rows(sample, 4, 8))) for sample in range(4)}
    assert kernel.stem == "conv_relu"


def test_rows_inside_share_a_kernel() -> None:
    network, y = conv_relu()
    kernels = TileKernels(network, DEVICE)
    first, *inside, last = (kernels.kernel(tile_of(network, (0, 1), y, rows(0, n, n + 4))) for n in range(0, 16, 4))
    assert len({*inside}) == 1
    assert len({first, *inside, last}) == 3


def test_layers_with_other_weights_share_a_kernel() -> None:
    builder = Builder()
    x = builder.value((1, 4, 8, 8))
    first = builder.conv(x, 4, 3)
    second = builder.conv(first, 4, 3)
    network = Network(builder.graph(second))
    kernels = TileKernels(network, DEVICE)
    tiles_ = [tile_of(network, (n,), v, whole(network.shapes[v])) for n, v in enumerate((first, second))]
    assert kernels.kernel(tiles_[0]) == kernels.kernel(tiles_[1])


def test_too_little_at_hand_is_refused() -> None:
    network, y = conv_relu()
    tile = tile_of(network, (0, 1), y, rows(0, 0, 8))
    less = Tile(tile.members, tile.inputs, ((y, rows(0, 0, 9)),))
    with pytest.raises(DsaError):
        TileKernels(network, DEVICE).kernel(less)


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
