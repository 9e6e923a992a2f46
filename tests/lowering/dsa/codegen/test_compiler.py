"""From an operator graph to a checked program, its constants, and the numbers that it computes."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnx
import pytest
from msgspec.structs import replace

from eqfuse.costmodels.dsa_device import load_dsa_device, single_cluster
from eqfuse.ir.graph import Operator
from eqfuse.lowering.base.errors import DsaError
from eqfuse.lowering.dsa.bundle.constants import constant_contents, constants_image, split_image
from eqfuse.lowering.dsa.bundle.files import graph_data, graph_of
from eqfuse.lowering.dsa.clusters.compiler import DsaProgram, program_for
from eqfuse.lowering.dsa.codegen.compiler import Choices, accelerator_network
from eqfuse.lowering.dsa.codegen.generated import program_kernels
from eqfuse.lowering.dsa.network.storage import cast_array, stored_array
from eqfuse.lowering.dsa.program.instructions import (
    DDR,
    Buffer,
    Compute,
    Kernel,
    Operand,
    Program,
    ProgramError,
    Region,
    Role,
)
from eqfuse.lowering.dsa.program.validate import validate
from eqfuse.lowering.dsa.schedule.clusters import Allocation
from eqfuse.lowering.dsa.schedule.variants import FULL, VARIANTS, Variant
from eqfuse.lowering.dsa.simulate.function import simulate_function
from eqfuse.lowering.dsa.tiles.compiled_kernels import compiled_kernels

from ..graphs import Builder
from ..small_networks import by_sample, class_token, cnn, scheduled_parts, transformer

DEVICE = load_dsa_device("stcp920-1mb")
Array = np.ndarray[Any, Any]


class Made:
    """A program of a small model, with what it takes to run it."""

    def __init__(self, source: onnx.ModelProto, samples: int, variant: Variant = FULL) -> None:
        graph, layers, weights = scheduled_parts(source)
        self.network = accelerator_network(graph, layers, DEVICE, 4)
        self.program: DsaProgram = program_for(self.network, DEVICE, Allocation.even(1, 1, samples), Choices(variant))
        self.constants = constant_contents(
            self.program.generated, DEVICE.alignment, weights.__getitem__, self.network.slices
        )

    def kernels(self) -> dict[str, Kernel]:
        return program_kernels(self.program.generated.uses, compiled_kernels(self.program.generated.kernels, opset=17))

    def run(self, program: Program, feeds: dict[str, Array], kernels: dict[str, Kernel]) -> Array:
        axes = self.program.generated.network.axes
        stored_feeds = {name: stored_array(axes[v], feeds[name]) for name, v in self.program.generated.inputs.items()}
        (result,) = simulate_function(program, kernels, {**self.constants, **stored_feeds}).values()
        return result


@pytest.fixture(scope="module")
def small_cnn() -> Made:
    return Made(cnn(), 2)


@pytest.fixture(scope="module")
def cnn_kernels(small_cnn: Made) -> dict[str, Kernel]:
    return small_cnn.kernels()


def images(samples: int) -> Array:
    return np.random.default_rng(0).standard_normal((samples, 3, 12, 12)).astype(np.float32)


# --- numbers


def test_a_cnn_computes_what_onnx_runtime_does(small_cnn: Made, cnn_kernels: dict[str, Kernel]) -> None:
    feeds = {"x": images(2)}
    found = small_cnn.run(small_cnn.program.generated.program, feeds, cnn_kernels)
    np.testing.assert_allclose(found, by_sample(cnn(), feeds, 2)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.conformance
def test_a_transformer_at_another_batch_computes_what_onnx_runtime_does() -> None:
    made = Made(transformer(), 2)
    feeds = {"ids": np.random.default_rng(0).integers(0, 32, (2, 8))}
    found = made.run(made.program.generated.program, feeds, made.kernels())
    np.testing.assert_allclose(found, by_sample(transformer(), feeds, 1)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.conformance
@pytest.mark.parametrize("samples", [1, 4])
def test_constants_with_rows_for_each_sample_fit_another_batch(samples: int) -> None:
    made = Made(class_token(2), samples)
    feeds = {"x": np.random.default_rng(0).standard_normal((samples, 4, 8)).astype(np.float32)}
    found = made.run(made.program.generated.program, feeds, made.kernels())
    np.testing.assert_allclose(found, by_sample(class_token(1), feeds, 1)[0], rtol=1e-4, atol=1e-5)


def test_a_constant_that_differs_from_sample_to_sample_fits_whole_batches_of_the_model_only() -> None:
    assert Made(class_token(2, alike=False), 4).constants
    with pytest.raises(DsaError, match=r"constant '.*' differs from sample to sample; compile for the batch of the"):
        Made(class_token(2, alike=False), 1)


def test_a_live_buffer_that_is_overwritten_is_refused_and_gives_other_numbers(
    small_cnn: Made, cnn_kernels: dict[str, Kernel]
) -> None:
    right = small_cnn.program.generated.program
    wrong = with_clash(right)
    feeds = {"x": images(2)}
    with pytest.raises(ProgramError, match=r"overlap|not ordered"):
        validate(wrong, single_cluster(DEVICE))
    expected, found = (small_cnn.run(program, feeds, cnn_kernels) for program in (right, wrong))
    assert not np.allclose(found, expected, rtol=1e-2, atol=1e-3, equal_nan=False)


def with_clash(program: Program) -> Program:
    """What the first tile reads, moved halfway onto its weights."""
    first = next(each for each in program.instructions if isinstance(each, Compute))
    read, weights = (program.buffers_by_name[operand.region.buffer] for operand in first.inputs[:2])
    half = read.size // 2 // DEVICE.alignment * DEVICE.alignment
    return moved(program, read, weights.address + half)


def moved(program: Program, buffer: Buffer, address: int) -> Program:
    """A buffer, and all that is read or written of it, at another address."""
    shift = address - buffer.address

    def region(found: Region) -> Region:
        return replace(found, address=found.address + shift) if found.buffer == buffer.name else found

    def operands(found: tuple[Operand, ...]) -> tuple[Operand, ...]:
        return tuple(replace(each, region=region(each.region)) for each in found)

    def instruction(each: Any) -> Any:
        if isinstance(each, Compute):
            return replace(each, inputs=operands(each.inputs), outputs=operands(each.outputs))
        if hasattr(each, "targets"):
            return replace(each, source=region(each.source), targets=tuple(map(region, each.targets)))
        return each

    buffers = tuple(replace(b, address=address) if b is buffer else b for b in program.buffers)
    return replace(program, buffers=buffers, instructions=tuple(map(instruction, program.instructions)))


# --- programs


@pytest.mark.representatives(2)
@pytest.mark.parametrize("variant", sorted(VARIANTS))
def test_every_variant_gives_a_valid_program(variant: str) -> None:
    made = Made(cnn(), 1, VARIANTS[variant])
    validate(made.program.generated.program, single_cluster(DEVICE))


def test_the_program_says_how_many_samples_it_processes(small_cnn: Made) -> None:
    assert small_cnn.program.generated.program.batch == 2


def test_only_kernels_of_the_program_are_kept(small_cnn: Made) -> None:
    uses = small_cnn.program.generated.uses.values()
    assert small_cnn.program.generated.kernels.keys() == {use.tile for use in uses}


# --- what does not fit


def test_a_graph_without_operators_has_nothing_to_schedule() -> None:
    with pytest.raises(DsaError, match="nothing to schedule"):
        accelerator_network(Builder().graph(), [], DEVICE, 4)


# --- constants and graphs as data


def test_constants_are_read_back(small_cnn: Made) -> None:
    program = small_cnn.program.generated.program
    image = np.frombuffer(constants_image(program, small_cnn.constants), np.uint8)
    found = split_image(program, image)
    assert found.keys() == small_cnn.constants.keys()
    assert all((found[name] == small_cnn.constants[name]).all() for name in found)


def test_split_image_another_size_are_refused(small_cnn: Made) -> None:
    with pytest.raises(ValueError, match="1 bytes of constants"):
        split_image(small_cnn.program.generated.program, np.zeros(1, np.uint8))


def test_large_numbers_stay_finite_in_a_narrow_type() -> None:
    given = np.array([-3.4e38, 0.5, np.inf, 3.4e38], np.float32)
    assert cast_array(given, "float16").tolist() == [-65504.0, 0.5, np.inf, 65504.0]


def test_graphs_are_read_back(small_cnn: Made) -> None:
    for graph in (small_cnn.network.graph, *small_cnn.program.generated.kernels.values()):
        assert graph_of(graph_data(graph)) == graph


def test_attributes_that_are_tuples_are_read_back_as_tuples() -> None:
    odd = Operator("n", "Odd", {"a": (1, (2, 3)), "b": -float("inf")}, (None,), ())
    graph = dataclasses.replace(Builder().graph(), operators=(odd,))
    assert graph_of(graph_data(graph)) == graph


def test_inputs_are_in_ddr(small_cnn: Made) -> None:
    program = small_cnn.program.generated.program
    assert {b.memory for b in program.buffers if b.role is Role.INPUT} == {DDR}
