from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from eqfuse.ir.graph import OperatorGraph
from eqfuse.lowering.base.errors import DsaError
from eqfuse.lowering.dsa.network.boxes import shape_of
from eqfuse.lowering.dsa.program.instructions import Kernel
from eqfuse.lowering.dsa.tiles.compiled_kernels import compiled_kernels
from eqfuse.lowering.dsa.tiles.local_graph import Tile, local_graph

from ..tile_cases import LAYERS, Layer, all_of, one, part

OLD = ("Softmax of old", "Slice back", "Max of three")
"""Forms that only their opset explains."""


def middle(layer: Layer) -> Tile:
    """A tile of a part of the first result, off the borders if there is room."""
    network = layer.network
    result = network.graph.operators[0].outputs[0]
    box = tuple((n // 3, n - n // 4) for n in network.shapes[result])
    needed = network.needs((0,), {result: box})
    return Tile((0,), tuple((v, needed[v]) for v in sorted(needed) if v != result), ((result, box),))


TILES = {name: middle(layer) for name, layer in LAYERS.items() if name not in OLD}
SYMBOLS = {name: f"tile_{number}" for number, name in enumerate(TILES)}
SOME = sorted({*[*TILES][::9], "Conv", "Relu", "Reshape", "cubic up"})
"""Every ninth, and those that further tests need."""


def compiled(names: Sequence[str]) -> dict[str, Kernel]:
    return compiled_kernels({SYMBOLS[n]: local_graph(LAYERS[n].network, TILES[n]) for n in names}, print)


@pytest.fixture(scope="module")
def kernels() -> dict[str, Kernel]:
    return compiled(SOME)


@pytest.fixture(scope="module")
def other_kernels() -> dict[str, Kernel]:
    return compiled([name for name in TILES if name not in SOME])


def fill(kernel: Kernel, layer: Layer, tile: Tile, dtype: str = "") -> tuple[np.ndarray, np.ndarray]:
    """What a kernel makes of a tile's operands, and what it should."""
    values, names = layer.values, [v.name for v in layer.network.graph.values]
    inputs = [part(values[names[v]], box) for v, box in tile.inputs]
    ((value, box),) = tile.outputs
    expected = part(values[names[value]], box)
    output = np.zeros(shape_of(box), dtype or expected.dtype)
    kernel([i.astype(dtype) if dtype and i.dtype == np.float32 else i for i in inputs], [output])
    return output, expected


def assert_makes_its_part(kernels: dict[str, Kernel], name: str) -> None:
    found, expected = fill(kernels[SYMBOLS[name]], LAYERS[name], TILES[name])
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("name", SOME)
def test_a_kernel_makes_its_part(kernels: dict[str, Kernel], name: str) -> None:
    assert_makes_its_part(kernels, name)


@pytest.mark.conformance
@pytest.mark.parametrize("name", [name for name in TILES if name not in SOME])
def test_each_other_kernel_makes_its_part(other_kernels: dict[str, Kernel], name: str) -> None:
    assert_makes_its_part(other_kernels, name)


@pytest.mark.parametrize("name", ["Conv", "Reshape", "cubic up"])
def test_halves_are_computed_as_singles(kernels: dict[str, Kernel], name: str) -> None:
    found, expected = fill(kernels[SYMBOLS[name]], LAYERS[name], TILES[name], "float16")
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, expected, rtol=1e-2, atol=1e-2)


def test_operands_may_have_strides(kernels: dict[str, Kernel]) -> None:
    shape = shape_of(TILES["Relu"].outputs[0][1])
    source, target = (np.full((*shape[:-1], 2 * shape[-1]), n, np.float32) for n in (-1, 7))
    kernels[SYMBOLS["Relu"]]([source[..., ::2]], [target[..., ::2]])
    assert (target[..., ::2].max(), target[..., 1::2].min()) == (0, 7)


@pytest.mark.representatives(2)
@pytest.mark.parametrize("name", OLD)
def test_old_forms_run_by_their_opset(name: str) -> None:
    layer, tile = LAYERS[name], middle(LAYERS[name])
    kernel = compiled_kernels({"k": local_graph(layer.network, tile)}, opset=layer.opset)["k"]
    found, expected = fill(kernel, layer, tile)
    np.testing.assert_allclose(found, expected, rtol=2e-5)


def test_without_the_opset_they_are_refused() -> None:
    layer = LAYERS["Softmax of old"]
    with pytest.raises(DsaError, match="Softmax"):
        compiled_kernels({"k": local_graph(layer.network, middle(layer))})


def test_what_nothing_runs_is_named() -> None:
    layer = LAYERS["Relu"]
    graph = local_graph(layer.network, middle(layer))
    strange = OperatorGraph(tuple(replace(o, op="Nothing") for o in graph.operators), graph.values)
    with pytest.raises(DsaError, match="Nothing"):
        compiled_kernels({"k": strange})


def test_what_is_left_to_onnx_runtime_is_said() -> None:
    scales, lines = np.array([1, 1, 0.5, 0.5], np.float32), list[str]()
    layer = one("Resize", (2, 2, 8, 12), stored=[None, scales], mode="linear", antialias=1, opset=18)
    tile = all_of(layer.network, (0,), layer.network.graph.operators[0].outputs[0])
    compiled_kernels({"k": local_graph(layer.network, tile)}, lines.append, opset=18)
    assert any("Resize" in line for line in lines)


def test_nothing_is_compiled_for_nothing() -> None:
    assert compiled_kernels({}) == {}
