"""Which kernels a model that differs from its original is explained by."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from eqfuse.engine.onnx.model import read
from eqfuse.lowering.base.target import target_of
from eqfuse.lowering.base.weights import Weights
from eqfuse.lowering.kernels.compilation import CompiledKernels, compile_kernels
from eqfuse.lowering.running.blame import suspects

from ..linked import linked
from ..small_models import graph_of, model, weights

SHAPE = (1, 8, 6, 6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("blame")


@pytest.fixture(scope="module")
def convolution(folder: Path) -> CompiledKernels:
    """A 3x3 convolution, which says that it is by Winograd's filters, and a Relu."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"], pads=[1] * 4), helper.make_node("Relu", ["a"], ["y"])]
    proto = model(nodes, {"x": SHAPE}, {"y": SHAPE}, w=weights(8, 8, 3, 3))
    compiled = compile_kernels(graph_of(proto), [(0,), (1,)], Weights(read(proto)), target_of("host", 1), folder, 1)
    linked(compiled, folder)
    symbol = compiled.calls[0].symbol
    return replace(compiled, answers={**compiled.answers, symbol: replace(compiled.answers[symbol], rule="winograd")})


def test_kernels_that_round_more_are_to_blame_where_all_are_right(convolution: CompiledKernels, folder: Path) -> None:
    (suspect,) = suspects(convolution, folder / "model.so", 1)
    assert (suspect.rule, suspect.symbol) == ("winograd", convolution.calls[0].symbol)


def test_one_that_crashed_explains_the_model(convolution: CompiledKernels, folder: Path) -> None:
    crashed = convolution.calls[1].symbol
    assert [suspect.symbol for suspect in suspects(convolution, folder / "model.so", 1, crashed)] == [crashed]


def test_a_kernel_that_is_asked_about_is_right_by_itself(convolution: CompiledKernels, folder: Path) -> None:
    assert not list(suspects(convolution, folder / "model.so", 1, among={convolution.calls[0].symbol}))


def test_what_replaces_a_kernel_that_rounds_more_must_not_round_more_itself(
    convolution: CompiledKernels, folder: Path
) -> None:
    symbols = {call.symbol for call in convolution.calls}
    (suspect,) = suspects(convolution, folder / "model.so", 1, among=symbols, strict=symbols)
    assert (suspect.rule, suspect.symbol) == ("winograd", convolution.calls[0].symbol)


def test_or_rounds_little_where_the_model_is_verified_again(convolution: CompiledKernels, folder: Path) -> None:
    symbols = {call.symbol for call in convolution.calls}
    assert not list(suspects(convolution, folder / "model.so", 1, among=symbols, strict=symbols, may_round=True))


def test_operators_whose_sizes_follow_from_computed_shapes_are_tried_by_themselves(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("Shape", ["a"], ["shape"]),
        helper.make_node("Div", ["shape", "two"], ["half"]),
        helper.make_node("Slice", ["a", "half", "shape", "axis"], ["b"]),
        helper.make_node("Exp", ["b"], ["y"]),
    ]
    wrong = [*nodes[:4], helper.make_node("Sin", ["b"], ["y"])]
    proto, other = (
        model(each, {"x": (8,)}, {"y": (4,)}, two=np.array([2]), axis=np.array([0])) for each in (nodes, wrong)
    )
    graph = graph_of(proto)
    groups = [(number,) for number in range(len(graph.operators))]
    compiled = compile_kernels(graph, groups, Weights(read(proto)), target_of("host", 1), tmp_path, 1)
    linked(compiled, tmp_path)
    assert not list(suspects(compiled, tmp_path / "model.so", 1))
    compared = replace(compiled, weights=Weights(read(other)))
    assert [s.symbol for s in suspects(compared, tmp_path / "model.so", 1)] == [compiled.calls[-1].symbol]
