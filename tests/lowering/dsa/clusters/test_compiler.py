"""A batch shared over clusters."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from eqfuse.costmodels.dsa_device import DsaDevice, load_dsa_device, single_cluster
from eqfuse.lowering.base.errors import DsaError
from eqfuse.lowering.dsa.clusters.compiler import batch_axes, compile_network, program_for
from eqfuse.lowering.dsa.codegen.compiler import AcceleratorNetwork, Choices, accelerator_network
from eqfuse.lowering.dsa.program.placement import side_by_side
from eqfuse.lowering.dsa.program.validate import validate
from eqfuse.lowering.dsa.schedule.clusters import Allocation, Round
from eqfuse.lowering.dsa.simulate.timing import simulate_time

from ...small_models import model
from ..graphs import Builder
from ..small_networks import cnn, scheduled_parts

DEVICE = load_dsa_device("stcp920-1mb")


# --- uneven batches


def test_clusters_with_other_shares_run_other_programs_at_once() -> None:
    made = program_for(small_network(cnn()), DEVICE, Allocation((Round(1, (2, 2, 1, 1)),)), Choices())
    (run,) = made.runs
    assert [made.programs[number].generated.program.batch for number in run.numbers] == [2, 2, 1, 1]
    assert {engine.cluster for engine in run.timeline.program.engines()} == {0, 1, 2, 3}
    validate(run.timeline.program, DEVICE)


def test_clusters_with_fewer_samples_leave_ddr_to_the_others() -> None:
    device = dataclasses.replace(DEVICE, ddr_bandwidth=DEVICE.ddr_bandwidth / 100)
    made = program_for(small_network(cnn(), device), device, Allocation((Round(1, (2, 1, 1, 1)),)), Choices())
    assert made.timeline.cycles < max(each.timeline.cycles for each in made.programs)


def test_programs_side_by_side_take_as_long_as_in_lockstep() -> None:
    made = program_for(small_network(cnn()), DEVICE, Allocation.even(1, 4, 1), Choices())
    together = side_by_side([made.generated.program] * 4, single_cluster(DEVICE).ddr_capacity)
    assert simulate_time(together, DEVICE).cycles == pytest.approx(made.timeline.cycles)


def test_idle_clusters_take_nothing_of_ddr() -> None:
    network = small_network(cnn())
    alone, all_of_them = (program_for(network, DEVICE, Allocation.even(1, n, 1), Choices()) for n in (1, 4))
    assert alone.cycles < all_of_them.cycles


def test_rounds_take_their_times_one_after_another() -> None:
    rounds = Round(2, (1, 1, 1, 1)), Round(1, (1, 1))
    made = program_for(small_network(cnn()), DEVICE, Allocation(rounds), Choices())
    assert made.cycles == 2 * made.runs[0].timeline.cycles + made.runs[1].timeline.cycles
    assert made.figures()["throughput"] == pytest.approx(10 / made.seconds)


@settings(max_examples=5)
@given(batch=st.integers(1, 9))
def test_any_batch_can_be_shared(batch: int) -> None:
    made = compile_network(small_network(cnn()), DEVICE, batch)
    assert made.allocation.batch == batch


# --- how a batch is shared


def small_network(source: onnx.ModelProto, device: DsaDevice = DEVICE) -> AcceleratorNetwork:
    graph, layers, _ = scheduled_parts(source)
    return accelerator_network(graph, layers, device, 4)


def test_the_fastest_share_is_taken() -> None:
    seen: list[str] = []
    made = compile_network(small_network(cnn()), DEVICE, 16, observer=seen.append)
    assert made.allocation.batch == 16
    assert f"{made.allocation}: {made.seconds * 1e6:.1f} us" in seen


def test_ways_for_which_ddr_takes_longer_than_another_takes_in_all_are_not_made() -> None:
    seen: list[str] = []
    network = small_network(wide(4))
    made = compile_network(network, DEVICE, 20, observer=seen.append)
    assert made.allocation == Allocation.even(1, 4, 5)
    assert [line.split(": ")[1] for line in seen] == [
        "1 iteration(s) x 4 cluster(s) x 5 sample(s)", "5 iteration(s) x 4 cluster(s) x 1 sample(s)"
    ]  # fmt: skip
    least = float(seen[1].removeprefix(f"{Allocation.even(5, 4, 1)}: at least ").removesuffix(" us"))
    other = program_for(network, DEVICE, Allocation.even(5, 4, 1), Choices())
    assert made.seconds * 1e6 < least <= other.seconds * 1e6


def wide(samples: int) -> onnx.ModelProto:
    """Two products whose weights take DDR far longer than a sample takes the units."""
    weights = {name: np.ones((1024, 1024), np.float32) for name in ("u", "v")}
    nodes = [helper.make_node("MatMul", ["x", "u"], ["h"]), helper.make_node("Relu", ["h"], ["r"])]
    nodes.append(helper.make_node("MatMul", ["r", "v"], ["y"]))
    return model(nodes, {"x": (samples, 1024)}, {"y": (samples, 1024)}, **weights)


def test_clusters_load_weights_once_for_all_samples_if_that_is_faster() -> None:
    network = small_network(wide(4))
    made = compile_network(network, DEVICE, 4)
    even = program_for(network, DEVICE, Allocation.even(1, 4, 1), Choices())
    assert made.allocation.rounds[0].segments
    assert made.cycles < even.cycles
    validate(made.first.program, DEVICE)


def test_many_samples_for_each_cluster_are_not_shared() -> None:
    seen: list[str] = []
    compile_network(small_network(wide(4)), DEVICE, 20, observer=seen.append)
    assert seen
    assert not any("together" in line for line in seen)


def test_samples_for_each_cluster_that_are_asked_for_are_not_shared() -> None:
    made = compile_network(small_network(wide(4)), DEVICE, 4, Choices(per_cluster=1))
    assert made.allocation == Allocation.even(1, 4, 1)


def test_the_share_can_be_asked_for() -> None:
    made = compile_network(small_network(cnn()), DEVICE, 16, Choices(per_cluster=2))
    assert made.allocation == Allocation.even(2, 4, 2)


def test_the_last_program_of_a_given_share_has_what_is_left() -> None:
    made = compile_network(small_network(cnn()), DEVICE, 7, Choices(per_cluster=3))
    assert made.allocation == Allocation((Round(1, (3, 3, 1)),))
    assert [each.generated.program.batch for each in made.programs] == [3, 1]


def sliced(batch: int) -> AcceleratorNetwork:
    """The batch is cut by numbers that hold for one size of it only."""
    builder = Builder()
    x = builder.value((batch, 8))
    half = (batch // 2, 8)
    y = builder.relu(builder.add("Slice", [x], half, starts=(0,), ends=(batch // 2,), axes=(0,), steps=(1,)))
    return accelerator_network(builder.graph(y), builder.layers, DEVICE, 4)


def test_a_batch_that_cannot_be_followed_runs_as_it_is() -> None:
    assert compile_network(sliced(4), DEVICE, 4).allocation == Allocation.even(1, 1, 4)


def test_extents_that_cannot_be_followed_are_no_samples() -> None:
    assert compile_network(sliced(4), DEVICE).allocation == Allocation.even(1, 1, 1)


def test_inputs_of_different_extents_have_no_batch() -> None:
    builder = Builder()
    rows, row = builder.value((4, 8)), builder.value((1, 8))
    graph = builder.graph(builder.relu(builder.add("Add", [rows, row], (4, 8))))
    network = accelerator_network(graph, builder.layers, DEVICE, 4)
    assert compile_network(network, DEVICE).allocation == Allocation.even(1, 1, 1)
    with pytest.raises(DsaError, match=r"the inputs have batches \[1, 4\] along axis 0"):
        compile_network(network, DEVICE, 4)


def sequence_first(batch_axis: int | None) -> AcceleratorNetwork:
    """Each row of eight is multiplied with all others, so that only the axis behind can be a batch."""
    source = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        sequence_first (float[8,2,16] x) => (float[8,2,16] y) {
            by_sample = Transpose<perm=[1, 0, 2]>(x)
            columns = Transpose<perm=[1, 2, 0]>(x)
            scores = MatMul(by_sample, columns)
            mixed = MatMul(scores, by_sample)
            y = Transpose<perm=[1, 0, 2]>(mixed)
        }""")
    graph, layers, _ = scheduled_parts(source)
    return accelerator_network(graph, layers, DEVICE, 4, batch_axis)


def test_the_axis_of_the_batch_can_be_named() -> None:
    network = sequence_first(1)
    made = compile_network(network, DEVICE, 8)
    assert made.allocation.batch == 8
    outputs = [number for number, value in enumerate(network.graph.values) if value.is_output]
    assert list(batch_axes(network, outputs, repeated=True).values()) == [1]


def test_rows_of_a_sequence_are_no_samples() -> None:
    assert compile_network(sequence_first(None), DEVICE).allocation.batch == 1
    with pytest.raises(DsaError, match="if samples lie along another axis than 0, name it"):
        compile_network(sequence_first(None), DEVICE, 4)


def test_an_input_needs_the_axis_that_is_named() -> None:
    with pytest.raises(DsaError, match="input 'x' has no axis 3"):
        sequence_first(3)


def test_a_batch_that_cannot_be_followed_has_no_other_size() -> None:
    with pytest.raises(DsaError, match="its batch cannot be told"):
        compile_network(sliced(4), DEVICE, 8)


def test_samples_lie_along_the_batch() -> None:
    network = small_network(cnn())
    outputs = [number for number, value in enumerate(network.graph.values) if value.is_output]
    assert list(batch_axes(network, outputs, repeated=True).values()) == [0]


def test_outputs_of_repeated_runs_need_a_batch() -> None:
    network = sliced(4)
    with pytest.raises(DsaError, match=r"output 'v.': its batch cannot be told"):
        batch_axes(network, [len(network.graph.values) - 1], repeated=True)


def test_a_tensor_that_fits_nowhere_is_named_with_its_bytes() -> None:
    device = dataclasses.replace(DEVICE, ddr_capacity=DEVICE.clusters * 1024)
    with pytest.raises(DsaError, match=r"tensor '.+': its \d+ bytes do not fit the 1024 bytes of DDR of a cluster"):
        compile_network(small_network(cnn(), device), device, 4)


def test_the_whole_batch_takes_all_iterations() -> None:
    graph, layers, _ = scheduled_parts(cnn())
    network = accelerator_network(graph, layers, DEVICE, 4)
    made = program_for(network, DEVICE, Allocation.even(3, 4, 1), Choices())
    assert made.cycles == 3 * made.timeline.cycles
    assert made.figures()["throughput"] == pytest.approx(12 / made.seconds)
