"""Programs on accelerators with little room compute what ONNX Runtime does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from onnx import helper

from eqfuse.costmodels.dsa_device import DsaDevice, load_dsa_device, single_cluster
from eqfuse.lowering.base.errors import DsaError
from eqfuse.lowering.dsa.bundle.constants import constant_contents
from eqfuse.lowering.dsa.clusters.compiler import DsaProgram, program_for
from eqfuse.lowering.dsa.codegen.addresses import Lifetime, NoRoomError, Request, assign_addresses
from eqfuse.lowering.dsa.codegen.compiler import (
    AcceleratorNetwork,
    Choices,
    accelerator_network,
    for_splitting,
    order_by_start,
)
from eqfuse.lowering.dsa.codegen.generated import program_kernels
from eqfuse.lowering.dsa.codegen.generator import plan_program, write_program
from eqfuse.lowering.dsa.codegen.running import running_order
from eqfuse.lowering.dsa.network.graph import Network
from eqfuse.lowering.dsa.network.storage import plain_array, stored_array
from eqfuse.lowering.dsa.network.subgraphs import sub_graph
from eqfuse.lowering.dsa.program.instructions import Compute, Level, Transfer
from eqfuse.lowering.dsa.program.validate import validate
from eqfuse.lowering.dsa.schedule.clusters import Allocation
from eqfuse.lowering.dsa.schedule.grouping import Group, Split
from eqfuse.lowering.dsa.schedule.instances import instance_graph
from eqfuse.lowering.dsa.schedule.scheduler import Bindings, Schedule
from eqfuse.lowering.dsa.schedule.variants import ALTERNATIVES, FULL, GRAPHTURBO, INSTANCES, TVM, Variant
from eqfuse.lowering.dsa.simulate.function import simulate_function
from eqfuse.lowering.dsa.simulate.timing import simulate_time
from eqfuse.lowering.dsa.tiles.compiled_kernels import compiled_kernels
from eqfuse.lowering.dsa.tiles.core_parts import Sharing
from eqfuse.lowering.dsa.tiles.kernels import TileKernels

from ....onnx_runtime import outputs_of
from ....properties import examples
from ...small_models import model
from ..graphs import Builder
from ..scheduled import schedule
from ..small_networks import by_sample, cnn, scheduled_parts

Array = np.ndarray[Any, Any]
ROOMY = load_dsa_device("stcp920-1mb")
TIGHT = replace(ROOMY, name="tight", local_buffer=5120, weight_buffer=2048, global_buffer=65536)
"""Weights do not fit, tensors do not stay."""
_SHAPES = {"x": (16, 64), "c": (1, 16, 64)}


def perceptron(batch: int = 4, width: int = 16, hidden: int = 1024) -> onnx.ModelProto:
    """A hidden layer that is wider than any buffer, with an activation that reads its data twice, and a residual."""
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h0"]),
        helper.make_node("Add", ["h0", "b1"], ["h1"]),
        helper.make_node("Sigmoid", ["h1"], ["h2"]),
        helper.make_node("Mul", ["h1", "h2"], ["h"]),
        helper.make_node("MatMul", ["h", "w2"], ["z"]),
        helper.make_node("Add", ["z", "x"], ["y"]),
    ]
    random = np.random.default_rng(1)
    stored = {"w1": (width, hidden), "b1": (hidden,), "w2": (hidden, width)}
    weights = {name: np.asarray(random.standard_normal(shape) / 8, np.float32) for name, shape in stored.items()}
    return model(nodes, {"x": (batch, 4, width)}, {"y": (batch, 4, width)}, **weights)


def gemm_perceptron(batch: int = 4, hidden: int = 1024, transposed: int = 0, width: int = 16) -> onnx.ModelProto:
    """Two Gemms with biases, whose weights may be transposed, and a Relu between them."""
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h0"], transB=transposed),
        helper.make_node("Relu", ["h0"], ["h"]),
        helper.make_node("Gemm", ["h", "w2", "b2"], ["y"], transB=transposed),
    ]
    random = np.random.default_rng(1)
    stored = {"w1": (width, hidden), "b1": (hidden,), "w2": (hidden, width), "b2": (width,)}
    weights = {name: np.asarray(random.standard_normal(shape) / 8, np.float32) for name, shape in stored.items()}
    if transposed:
        weights |= {name: np.ascontiguousarray(weights[name].T) for name in ("w1", "w2")}
    return model(nodes, {"x": (batch, width)}, {"y": (batch, width)}, **weights)


def compiled(
    source: onnx.ModelProto, device: DsaDevice, samples: int, variant: Variant, layers: Any = None
) -> tuple[AcceleratorNetwork, DsaProgram, Any]:
    """With the layers that the partition makes, if no others are given."""
    graph, drawn, weights = scheduled_parts(source)
    network = accelerator_network(graph, layers or drawn, device, 4)
    program = program_for(network, device, Allocation.even(1, 1, samples), Choices(variant))
    return network, program, weights


def outputs(
    source: onnx.ModelProto,
    device: DsaDevice,
    samples: int,
    variant: Variant,
    feeds: dict[str, Array],
    layers: Any = None,
) -> Array:
    return computed(*compiled(source, device, samples, variant, layers), device, feeds)


def computed(
    network: AcceleratorNetwork, made: DsaProgram, weights: Any, device: DsaDevice, feeds: dict[str, Array]
) -> Array:
    """The output of a program that is valid, as the functional simulator computes it."""
    validate(made.generated.program, single_cluster(device))
    axes = made.generated.network.axes
    given = {name: stored_array(axes[v], feeds[name]) for name, v in made.generated.inputs.items()}
    constants = constant_contents(made.generated, device.alignment, weights.__getitem__, network.slices)
    kernels = program_kernels(made.generated.uses, compiled_kernels(made.generated.kernels, opset=17))
    ((name, value),) = made.generated.outputs.items()
    return plain_array(axes[value], simulate_function(made.generated.program, kernels, {**constants, **given})[name])


WAYS = ["full", "roomy", "abreast", "abreast_for_gb", "abreast_for_half", "roomy_for_gb"]
SLOW = [
    pytest.param(variant, marks=pytest.mark.conformance, id=name)
    for variant, name in zip(ALTERNATIVES, WAYS, strict=True)
]


@pytest.mark.parametrize("variant", [*SLOW, pytest.param(TVM, id="tvm")])
def test_a_cnn_with_little_room(variant: Variant) -> None:
    images = np.random.default_rng(0).standard_normal((4, 3, 12, 12)).astype(np.float32)
    (expected,) = by_sample(cnn(1), {"x": images}, 1)
    np.testing.assert_allclose(outputs(cnn(), TIGHT, 4, variant, {"x": images}), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("room", "variant"), [(65536, FULL), (33792, replace(FULL, split_for=Level.GB))], ids=["whole", "by_instance"]
)
def test_an_input_that_instances_read_in_small_parts_passes_through_the_global_buffer(
    room: int, variant: Variant
) -> None:
    """It comes from DDR once, in transfers that are long enough, and the numbers are right."""
    x = np.random.default_rng(0).standard_normal((4, 3, 12, 12)).astype(np.float32)
    device = replace(TIGHT, global_buffer=room)
    network, made, weights = compiled(cnn(), device, 4, variant)
    transfers = [each for each in made.generated.program.instructions if isinstance(each, Transfer)]
    (buffer,) = made.generated.inputs
    targets = [each.targets[0].memory.level for each in transfers if each.source.buffer == buffer]
    assert set(targets) == {Level.GB}
    assert sum(each.source.size for each in transfers if each.source.buffer == buffer) == x.nbytes
    found = computed(network, made, weights, device, {"x": x})
    np.testing.assert_allclose(found, by_sample(cnn(1), {"x": x}, 1)[0], rtol=1e-4, atol=1e-5)


def test_a_map_that_waits_in_ddr_comes_back() -> None:
    """The GB holds two maps, and the first one is added to the last."""
    nodes = [helper.make_node("Softmax", ["x"], ["kept"]), helper.make_node("Softmax", ["kept"], ["m0"])]
    nodes += [helper.make_node("Softmax", [f"m{n}"], [f"m{n + 1}"], axis=1 + n % 2) for n in range(11)]
    nodes += [helper.make_node("Add", ["kept", "m11"], ["y"])]
    source = model(nodes, {"x": (1, 96, 64)}, {"y": (1, 96, 64)})
    device = replace(TIGHT, ddr_bandwidth=1e13, dma_latency=0.0)
    network, made, weights = compiled(source, device, 1, replace(FULL, instances=False, fastest=Level.GB))
    waiting = [part.value for part in made.generated.residence.waiting]
    assert [made.generated.network.graph.values[value].name for value in waiting] == ["kept"]
    x = np.random.default_rng(0).standard_normal((1, 96, 64)).astype(np.float32)
    found = computed(network, made, weights, device, {"x": x})
    np.testing.assert_allclose(found, by_sample(source, {"x": x}, 1)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.conformance
@pytest.mark.parametrize(("device", "hidden"), [(ROOMY, 1024), (TIGHT, 64)], ids=["roomy", "tight"])
def test_a_hidden_layer_in_pieces(device: DsaDevice, hidden: int) -> None:
    x = np.random.default_rng(0).standard_normal((4, 4, 16)).astype(np.float32)
    (expected,) = by_sample(perceptron(1, hidden=hidden), {"x": x}, 1)
    found = outputs(perceptron(hidden=hidden), device, 4, ALTERNATIVES[0], {"x": x})
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("transposed", [0, 1])
def test_a_hidden_layer_of_gemms_in_pieces(transposed: int) -> None:
    """Only the last piece adds the bias of the second."""
    x = np.random.default_rng(0).standard_normal((4, 16)).astype(np.float32)
    network, made, weights = compiled(gemm_perceptron(transposed=transposed), ROOMY, 4, TVM)
    assert [each.op for each in network.graph.operators].count("Gemm") == 4
    (expected,) = by_sample(gemm_perceptron(1, 1024, transposed), {"x": x}, 1)
    found = computed(network, made, weights, ROOMY, {"x": x})
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_hidden_layer_that_is_not_much_wider_stays_whole() -> None:
    network, _, _ = compiled(gemm_perceptron(hidden=1024, width=768), ROOMY, 4, TVM)
    assert [each.op for each in network.graph.operators].count("Gemm") == 2


def test_the_pieces_of_a_hidden_layer_are_never_there_at_once() -> None:
    network, _, _ = compiled(perceptron(), ROOMY, 4, ALTERNATIVES[0])
    widths = {value.extent.dimensions[-1] for value in network.graph.values if value.producer is not None}
    assert max(widths) < 1024


def attention(batch: int = 2) -> onnx.ModelProto:
    """Two heads of 48 tokens: values of all of them, or keys, leave little room in an LB of 5 KB."""
    nodes = [
        helper.make_node("MatMul", ["q", "k"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"]),
        helper.make_node("MatMul", ["p", "v"], ["y"]),
    ]
    shapes = {"q": (batch, 2, 48, 32), "k": (batch, 2, 32, 48), "v": (batch, 2, 48, 32)}
    return model(nodes, shapes, {"y": shapes["q"]})


@pytest.mark.parametrize("variant", [TVM, ALTERNATIVES[0]], ids=["tvm", "full"])
def test_products_of_two_maps_in_pieces(variant: Variant) -> None:
    random = np.random.default_rng(0)
    feeds = {n: random.standard_normal(s, np.float32) for n, s in (("q", (2, 2, 48, 32)), ("k", (2, 2, 32, 48)))}
    feeds["v"] = random.standard_normal((2, 2, 48, 32), np.float32)
    network, made, weights = compiled(attention(), TIGHT, 2, variant)
    assert [each.op for each in network.graph.operators].count("Add") == 0
    assert ["MatMul", "Add"] in [[each.op for each in kernel.operators] for kernel in made.generated.kernels.values()]
    found = computed(network, made, weights, TIGHT, feeds)
    np.testing.assert_allclose(found, by_sample(attention(1), feeds, 1)[0], rtol=1e-4, atol=1e-5)


def deep_convolution(batch: int = 2) -> onnx.ModelProto:
    """Its weights take 36 KB, so they pass through LB in pieces."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["s"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["s", "x"], ["t"]),
        helper.make_node("Relu", ["t"], ["y"]),
    ]
    random = np.random.default_rng(2)
    shapes = {"w": (32, 32, 3, 3), "b": (32,)}
    weights = {name: np.asarray(random.standard_normal(shape) / 8, np.float32) for name, shape in shapes.items()}
    return model(nodes, {"x": (batch, 32, 6, 6)}, {"y": (batch, 32, 6, 6)}, **weights)


@pytest.mark.parametrize(
    "device",
    [pytest.param(ROOMY, id="roomy"), pytest.param(TIGHT, id="tight", marks=pytest.mark.conformance)],
)
def test_a_deep_product_is_summed_up_in_place(device: DsaDevice) -> None:
    device = replace(device, weight_buffer=2048)
    network, made, weights = compiled(deep_convolution(), device, 2, ALTERNATIVES[0])
    assert any(isinstance(each, Compute) and each.in_place for each in made.generated.program.instructions)
    x = np.random.default_rng(0).standard_normal((2, 32, 6, 6)).astype(np.float32)
    (expected,) = by_sample(deep_convolution(1), {"x": x}, 1)
    found = computed(network, made, weights, device, {"x": x})
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.conformance
def test_without_room_tensors_are_kept_further_away() -> None:
    near, far = (compiled(cnn(), device, 4, ALTERNATIVES[0])[1] for device in (ROOMY, TIGHT))
    assert near.generated.program.scopes.gb == 0
    assert far.generated.program.scopes.gb > 0


def test_a_variant_keeps_tensors_where_it_says() -> None:
    _, made, _ = compiled(cnn(), ROOMY, 4, TVM)
    assert set(made.generated.residence.homes.values()) == {Level.DDR}


def test_another_order_of_instructions_is_valid_and_lets_units_wait_less() -> None:
    variant = next(each for each in ALTERNATIVES if each.abreast and each.split_for is Level.GB)
    device, samples = single_cluster(TIGHT), 16
    graph, layers, _ = scheduled_parts(cnn())
    made = schedule(graph, layers, for_splitting(device, variant), batch=samples, element_size=4)
    program = write_program(plan_program(replace(made, device=device), variant), samples).program
    ordered = order_by_start(simulate_time(program, device, in_order=False))
    validate(ordered, device)
    assert simulate_time(ordered, device).cycles < simulate_time(program, device).cycles


@pytest.mark.conformance
def test_weights_that_fit_nowhere_are_named() -> None:
    device = replace(TIGHT, weight_buffer=32, local_buffer=5120)
    with pytest.raises(DsaError, match=r"weights 'w\d.*': split fully, a tile still takes more than the 32 bytes"):
        compiled(cnn(), device, 4, ALTERNATIVES[0])


def test_an_output_behind_a_reshape_is_cut_like_the_other_one() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"]),
        helper.make_node("Reshape", ["a", "shape"], ["b"]),
        helper.make_node("Add", ["b", "c"], ["d"]),
        helper.make_node("MatMul", ["a", "w2"], ["e"]),
        helper.make_node("Add", ["d", "e"], ["y"]),
    ]
    random = np.random.default_rng(2)
    w1, w2 = (np.asarray(random.standard_normal((64, 64)) / 8, np.float32) for _ in range(2))
    feeds = {name: random.standard_normal(shape).astype(np.float32) for name, shape in _SHAPES.items()}
    source = model(nodes, _SHAPES, {"y": (1, 16, 64)}, w1=w1, w2=w2, shape=np.array([1, 16, 64]))
    a = feeds["x"] @ w1
    found = outputs(source, TIGHT, 1, ALTERNATIVES[0], feeds, layers=[(0, 1, 2), (3,), (4,)])
    np.testing.assert_allclose(found, a + feeds["c"] + a @ w2, rtol=1e-4, atol=1e-5)


def test_a_unit_of_a_cluster_is_refused() -> None:
    matrix, *others = ROOMY.units
    device = replace(ROOMY, units=(replace(matrix, per="cluster"), *others))
    with pytest.raises(DsaError, match="unit 'MME' belongs to a cluster, and kernels run on cores"):
        compiled(cnn(), device, 4, ALTERNATIVES[0])


def rows_of_heads(samples: int, heads: int, tokens: int, size: int) -> onnx.ModelProto:
    """A product whose rows are the tokens of all samples, behind maps with axes for samples and for heads."""
    width = heads * size
    nodes = [
        helper.make_node("Softmax", ["x"], ["s"], axis=-1),
        helper.make_node("Transpose", ["s"], ["t"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["t", "shape"], ["r"]),
        helper.make_node("MatMul", ["r", "w"], ["m"]),
        helper.make_node("Relu", ["m"], ["y"]),
    ]
    weights = np.asarray(np.random.default_rng(1).standard_normal((width, width)), np.float32)
    inputs = {"x": (samples, heads, tokens, size)}
    return model(nodes, inputs, {"y": (samples * tokens, width)}, w=weights, shape=np.array([-1, width]))


@examples(1)
@given(
    shape=st.tuples(st.integers(2, 5), st.integers(1, 3), st.integers(8, 40), st.integers(4, 12)),
    room=st.sampled_from([2048, 5120]), variant=st.sampled_from([INSTANCES, GRAPHTURBO]),
)  # fmt: skip
@example(shape=(5, 1, 16, 12), room=2048, variant=INSTANCES)
@example(shape=(5, 2, 64, 8), room=8192, variant=GRAPHTURBO)
def test_tiles_of_rows_of_two_samples_fit(shape: tuple[int, int, int, int], room: int, variant: Variant) -> None:
    source = rows_of_heads(*shape)
    device = replace(TIGHT, local_buffer=room, weight_buffer=room // 4, global_buffer=1 << 20)
    feeds = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    (expected,) = outputs_of(source, feeds)
    np.testing.assert_allclose(outputs(source, device, shape[0], variant, feeds), expected, rtol=1e-4, atol=1e-5)


def request(key: str, size: int, start: int, end: int, shorter: Lifetime | None = None) -> Request[str]:
    return Request(key, size, Lifetime(start, end), shorter=shorter)


@st.composite
def many_requests(draw: st.DrawFn) -> list[Request[int]]:
    requests = []
    for key in range(draw(st.integers(0, 12))):
        start = draw(st.integers(0, 10))
        life = Lifetime(start, start + draw(st.integers(0, 5)))
        requests.append(Request(key, draw(st.integers(1, 50)), life, draw(st.booleans())))
    return requests


@given(many_requests())
def test_what_lives_at_once_does_not_overlap(requests: list[Request[int]]) -> None:
    places = assign_addresses(requests, 1000, 8)
    for one in requests:
        assert places[one.key] % 8 == 0
        for other in requests:
            if one.key != other.key and one.life.start <= other.life.end and other.life.start <= one.life.end:
                first, second = sorted((one, other), key=lambda r: places[r.key])
                assert places[first.key] + first.size <= places[second.key]


def test_bytes_are_used_again() -> None:
    assert assign_addresses([request("a", 64, 0, 1), request("b", 64, 2, 3)], 64, 64) == {"a": 0, "b": 0}


def test_a_shorter_life_is_taken_where_the_longer_does_not_fit() -> None:
    requests = [request("a", 64, 0, 1), request("b", 64, 1, 2, Lifetime(2, 2))]
    assert assign_addresses(requests, 64, 64) == {"a": 0, "b": 0}


def test_lives_stay_long_where_there_is_room() -> None:
    full = [request("a", 64, 0, 1), request("b", 64, 1, 2, Lifetime(2, 2))]
    roomy = [request("c", 32, 3, 5, Lifetime(4, 5)), request("d", 32, 3, 4)]
    places = assign_addresses([*full, *roomy], 64, 32)
    assert places["c"] != places["d"]


def test_all_that_finds_no_room_is_named_at_once() -> None:
    requests = [request("a", 65, 0, 0), request("b", 64, 0, 1), request("c", 64, 1, 1)]
    with pytest.raises(NoRoomError, match="no 65 bytes in one piece at time 0") as caught:
        assign_addresses(requests, 64, 1)
    assert [each.key for each in caught.value.requests] == ["a", "c"]


def test_what_makes_do_with_a_shorter_life_is_not_named_with_what_finds_no_room_at_another_time() -> None:
    requests = [request("a", 65, 0, 0), request("b", 64, 4, 5, Lifetime(4, 4)), request("c", 64, 5, 6)]
    with pytest.raises(NoRoomError) as caught:
        assign_addresses(requests, 64, 1)
    assert [each.key for each in caught.value.requests] == ["a"]


@pytest.mark.parametrize("abreast", [False, True])
def test_a_layer_of_which_an_instance_needs_nothing_does_not_run(*, abreast: bool) -> None:
    """The sum of all rows cannot be cut as the rows are: the first instance makes it."""
    builder = Builder()
    x = builder.relu(builder.value((12, 8)))
    total = builder.add("ReduceSum", [x], (1, 8), axes=(0,), keepdims=1)
    rows = builder.relu(x)
    network = Network(builder.graph(total, rows))
    own = sub_graph(network, builder.layers)
    graph = instance_graph(network, [Group(own, Split(Level.LB, (0,), (4, 1), 0), ())])
    made = Schedule(single_cluster(ROOMY), graph, tuple(range(4)), Bindings({}, {}))
    order = [*running_order(made, replace(ALTERNATIVES[0], abreast=abreast))]
    summing = builder.layers[1]
    assert [instance for instance, layer in order if layer == summing] == [0]
    assert len(order) == 4 * 3 - 3
    sharing = Sharing(graph, ROOMY, TileKernels(network, ROOMY), {})
    assert all(any(part is not None for part in sharing.layer(*step).cores) for step in order)
