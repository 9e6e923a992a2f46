"""Programs of several clusters that process the same samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from msgspec.structs import replace

from eqfuse.costmodels.dsa_device import load_dsa_device
from eqfuse.lowering.dsa.bundle.constants import constant_contents
from eqfuse.lowering.dsa.clusters.splitting import SplitProgram, cluster_group, split_program
from eqfuse.lowering.dsa.codegen.compiler import Choices, accelerator_network
from eqfuse.lowering.dsa.codegen.generated import program_kernels
from eqfuse.lowering.dsa.network.storage import plain_array, stored_array
from eqfuse.lowering.dsa.program.instructions import DDR, Program, ProgramError, Role, Transfer
from eqfuse.lowering.dsa.program.validate import validate
from eqfuse.lowering.dsa.schedule.clusters import Job, Segment
from eqfuse.lowering.dsa.schedule.variants import FULL, VARIANTS, Variant
from eqfuse.lowering.dsa.simulate.function import simulate_function
from eqfuse.lowering.dsa.simulate.timing import Timeline
from eqfuse.lowering.dsa.tiles.compiled_kernels import compiled_kernels

from ..small_networks import by_sample, cnn, scheduled_parts, transformer, up_sampling

DEVICE = load_dsa_device("stcp920-1mb")
Array = np.ndarray[Any, Any]
Axes = tuple[int | None, ...]


class Split:
    """A small model on four clusters, each layer (or all that are left) divided along an axis."""

    def __init__(self, source: onnx.ModelProto, samples: int, axes: Axes, variant: Variant = FULL) -> None:
        graph, layers, weights = scheduled_parts(source)
        network = accelerator_network(graph, layers, DEVICE, 4)
        ends = [*range(1, len(axes)), len(network.layers)]
        segments = tuple(Segment(first, last, axis) for first, last, axis in zip((0, *ends), ends, axes, strict=False))
        self.made: SplitProgram = split_program(network, DEVICE, Job(samples, 1, 4, segments), Choices(variant))
        self.constants: dict[str, Array] = {}
        for part in self.made.parts:
            slices = {**network.slices, **part.slices}
            own = constant_contents(part.generated, DEVICE.alignment, weights.__getitem__, slices)
            self.constants |= {part.constants[name]: content for name, content in own.items()}

    def run(self, feeds: dict[str, Array], program: Program | None = None, timeline: Timeline | None = None) -> Array:
        kernels = program_kernels(self.made.uses, compiled_kernels(self.made.kernels, opset=17))
        axes = self.made.network.axes
        given = {name: stored_array(axes[value], feeds[name]) for name, value in self.made.inputs.items()}
        results = simulate_function(program or self.made.program, kernels, {**self.constants, **given}, timeline)
        ((name, value),) = self.made.outputs.items()
        return plain_array(axes[value], results[name])


def images(samples: int) -> dict[str, Array]:
    return {"x": np.random.default_rng(0).standard_normal((samples, 3, 12, 12)).astype(np.float32)}


@pytest.fixture(scope="module")
def rows() -> Split:
    return Split(cnn(), 2, (2, 1, None))


@pytest.mark.parametrize("axes", [(2, None), (3, 1, None), (1, 1, 1, 1), (None, 2, 1)])
def test_clusters_compute_together_what_onnx_runtime_does(axes: Axes) -> None:
    """Along rows with what windows overlap, columns, and channels with their weights."""
    made = Split(cnn(), 2, axes)
    validate(made.made.program, cluster_group(DEVICE, 4, 1))
    np.testing.assert_allclose(made.run(images(2)), by_sample(cnn(), images(2), 2)[0], rtol=1e-4, atol=1e-5)


def test_samples_may_be_divided_for_some_layers_only() -> None:
    made = Split(cnn(), 4, (0, 0, 1))
    np.testing.assert_allclose(made.run(images(4)), by_sample(cnn(), images(4), 2)[0], rtol=1e-4, atol=1e-5)


def test_a_transformer_is_divided_by_columns_and_tokens() -> None:
    made = Split(transformer(), 1, (None, 2, 1, 2, 1, None))
    feeds = {"ids": np.random.default_rng(0).integers(0, 32, (1, 8))}
    np.testing.assert_allclose(made.run(feeds), by_sample(transformer(), feeds, 1)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.conformance
@pytest.mark.parametrize("axis", [1, 2, 3])
def test_a_network_that_samples_up_is_divided(axis: int) -> None:
    made = Split(up_sampling(), 1, (axis, axis, axis, axis, None))
    (shape,) = [made.made.network.shapes[value] for value in made.made.inputs.values()]
    feeds = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    np.testing.assert_allclose(made.run(feeds), by_sample(up_sampling(), feeds, 1)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.conformance
@pytest.mark.parametrize("variant", sorted(VARIANTS))
def test_every_variant_gives_a_valid_program(variant: str) -> None:
    made = Split(cnn(), 2, (2, 1, None), VARIANTS[variant])
    validate(made.made.program, cluster_group(DEVICE, 4, 1))


def test_clusters_give_the_same_numbers_at_the_simulated_times(rows: Split) -> None:
    expected = rows.run(images(2))
    assert np.array_equal(rows.run(images(2), timeline=rows.made.timeline), expected)


def test_all_clusters_work(rows: Split) -> None:
    assert {engine.cluster for engine in rows.made.program.engines()} == {0, 1, 2, 3}


def test_what_clusters_hand_on_is_in_ddr_and_read_by_others(rows: Split) -> None:
    program = rows.made.program
    shared = {b.name for b in program.buffers if b.memory is DDR and b.role is Role.INTERMEDIATE}
    transfers = [each for each in program.instructions if isinstance(each, Transfer)]
    assert {each.engine.cluster for each in transfers if each.source.buffer in shared} == {0, 1, 2, 3}


def test_clusters_with_the_same_weights_have_them_in_one_buffer() -> None:
    """Rows need all weights, channels need their own."""
    by_rows, by_channels = (Split(cnn(), 2, (axis, None)).made.program for axis in (2, 1))
    counts = [sum(b.role is Role.CONSTANT for b in program.buffers) for program in (by_rows, by_channels)]
    assert counts[0] < counts[1]


def without_a_wait_across_clusters(program: Program) -> Program:
    """What first waits for another cluster does not."""
    instructions = list(program.instructions)
    cluster = [instruction.engines[0].cluster for instruction in instructions]
    index = next(n for n, each in enumerate(instructions) if any(cluster[wait] != cluster[n] for wait in each.waits))
    waits = tuple(wait for wait in instructions[index].waits if cluster[wait] == cluster[index])
    instructions[index] = replace(instructions[index], waits=waits)
    return replace(program, instructions=tuple(instructions))


def test_a_missing_wait_for_another_cluster_is_refused(rows: Split) -> None:
    with pytest.raises(ProgramError, match=r"reads '.*' at DDR:.*not ordered by a wait or barrier"):
        validate(without_a_wait_across_clusters(rows.made.program), cluster_group(DEVICE, 4, 1))
