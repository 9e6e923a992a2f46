"""Quantised graphs, optimised and compiled as users do it, give the integers that ONNX Runtime gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import onnx
import pytest

import eqfuse
from eqfuse.engine.onnx.exact_products import products_saturate

from ..onnx_runtime import outputs_of
from .in_tvm import Call, in_tvm
from .quantised_graphs import Array, QuantisedGraph, assert_within_steps, inputs_of, model_of
from .quantised_kinds import KINDS, draw_graphs, overflowing_product, with_peculiar_scales
from .small_models import saved

OUTPUTS = 25
"""Graphs of a model."""


def compiled(graphs: Sequence[QuantisedGraph], folder: Path, target: str = "host") -> Mapping[str, Array]:
    path = saved(model_of(graphs), folder / "graphs.onnx")
    eqfuse.compile(path, folder / "build", target=target, threads=1, verify=False, measure=False)
    model = eqfuse.load(folder / "build")
    assert not model.manifest.fallbacks
    return model.run(inputs_of(graphs))


def compiled_without_words(graphs: Sequence[QuantisedGraph], folder: Path) -> Mapping[str, Array]:
    """By a processor that multiplies bytes as numbers of 16 bits."""
    return compiled(graphs, folder, "x86-64-v3")


def optimised(graphs: Sequence[QuantisedGraph], folder: Path) -> Mapping[str, Array]:
    path = saved(model_of(graphs), folder / "graphs.onnx")
    eqfuse.optimize(path, folder / "optimised.onnx", verify=False)
    return in_the_runtime(graphs, onnx.load(folder / "optimised.onnx"))


def in_the_runtime(
    graphs: Sequence[QuantisedGraph], model: onnx.ModelProto, *, as_written: bool = True
) -> Mapping[str, Array]:
    found = outputs_of(model, inputs_of(graphs), as_written=as_written)
    return dict(zip([graph.output for graph in graphs], found, strict=True))


Run = Callable[[Sequence[QuantisedGraph], Path], Mapping[str, Array]]


@pytest.mark.representatives(3)
@pytest.mark.parametrize("kind", KINDS)
def test_optimised_graphs_have_the_runtimes_results(kind: str, tmp_path: Path) -> None:
    graphs = draw_graphs(kind, 0, 3)
    assert_within_steps(graphs, optimised(graphs, tmp_path))


@pytest.mark.parametrize("kind", ["exact", "integer", "activations"])
def test_kernels_of_graphs_have_the_runtimes_results(kind: str) -> None:
    """Each graph as one kernel, as it is written."""
    graphs = [graph for graph in draw_graphs(kind, 0, 4) if "DynamicQuantizeLinear" not in graph.operators]
    found = in_tvm([Call(model_of([graph]), graph.inputs) for graph in graphs])
    assert len(graphs) > 1
    assert_within_steps(graphs, {name: array for outputs in found for name, array in outputs.items()})


@pytest.mark.conformance
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("run", [compiled, compiled_without_words, optimised])
@pytest.mark.parametrize("seed", range(1, 21))
def test_drawn_graphs_have_the_runtimes_results(run: Run, kind: str, seed: int, tmp_path: Path) -> None:
    graphs = draw_graphs(kind, seed, OUTPUTS)
    assert_within_steps(graphs, run(graphs, tmp_path))


@pytest.mark.parametrize("run", [pytest.param(compiled, marks=pytest.mark.conformance), optimised])
def test_sums_wrap_and_peculiar_scales_have_the_runtimes_results(run: Run, tmp_path: Path) -> None:
    graphs = [overflowing_product(), *with_peculiar_scales()]
    assert_within_steps(graphs, run(graphs, tmp_path))


@pytest.mark.parametrize("kind", ["exact", "integer", "activations"])
def test_exact_graphs_have_the_same_bits_in_any_order_of_sums(kind: str) -> None:
    """Else a right kernel could not be told from a wrong one: the runtime's own rewriting sums integers."""
    if kind == "exact" and products_saturate():
        pytest.skip("on this processor the runtime's sums of integers saturate where it rewrites sums of floats")
    graphs = draw_graphs(kind, 2, 20)
    assert_within_steps(graphs, in_the_runtime(graphs, model_of(graphs), as_written=False))


def test_a_sum_that_overflows_is_one() -> None:
    graph = overflowing_product()
    exact = graph.inputs["wrap_x"].astype("int64") @ graph.stored["wrap_w"].astype("int64")
    assert (exact > 2**31).all()
    assert (graph.expected == exact.astype("int32")).all()
