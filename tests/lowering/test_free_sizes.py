"""A bundle of a model with free dimensions is right for every size that the original runs on, or refuses it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

import eqfuse
from eqfuse.errors import UsageError
from eqfuse.lowering.bundle.kernel_facts import read_table

from .small_models import Array, graph_of, model, saved, weights

Run = Callable[[Mapping[str, Array]], Sequence[Array]]
node = helper.make_node


def feature_maps() -> onnx.ModelProto:
    """Windows over maps of any size: with and without stride, over all channels and single ones; joined, resized."""
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["a"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Relu", ["a"], ["r"]),
        node("Conv", ["r", "w2"], ["d"], pads=[1, 1, 1, 1], group=20),
        node("Conv", ["d", "w3"], ["p"]),
        node("Add", ["p", "r"], ["s"]),
        node("MaxPool", ["s"], ["m"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Resize", ["m", "", "twice"], ["u"], mode="nearest", coordinate_transformation_mode="asymmetric",
             nearest_mode="floor"),
        node("GlobalAveragePool", ["s"], ["g"]),
        node("Mul", ["u", "g"], ["v"]),
        node("Concat", ["v", "u"], ["y"], axis=1),
        node("AveragePool", ["s"], ["q"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Sigmoid", ["q"], ["z"]),
    ]  # fmt: skip
    stored = {"w1": weights(20, 3, 3, 3), "b1": weights(20), "w2": weights(20, 1, 3, 3), "w3": weights(20, 20, 1, 1)}
    twice = np.array([1, 1, 2, 2], np.float32)
    shapes = {"y": ["N", 40, None, None], "z": ["N", 20, None, None]}
    return model(nodes, {"x": ["N", 3, "H", "W"]}, shapes, twice=twice, **stored)


def sequences() -> onnx.ModelProto:
    """Rows of any number and length: products, softmax over a free axis, normalisation, attention, a table."""
    nodes = [
        node("Gather", ["table", "ids"], ["e"]),
        node("LayerNormalization", ["e", "gain", "shift"], ["n"], axis=-1),
        node("MatMul", ["n", "wq"], ["q"]),
        node("Transpose", ["n"], ["t"], perm=[0, 2, 1]),
        node("MatMul", ["q", "t"], ["scores"]),
        node("Softmax", ["scores"], ["weights"], axis=-1),
        node("MatMul", ["weights", "n"], ["h"]),
        node("Add", ["h", "e"], ["y"]),
        node("ReduceMean", ["y"], ["mean"], axes=[1], keepdims=0),
        node("Reshape", ["y", "flat"], ["z"]),
    ]
    stored = {"table": weights(50, 24), "gain": weights(24), "shift": weights(24), "wq": weights(24, 24)}
    flat = np.array([-1, 24], np.int64)
    shapes = {"mean": ["N", 24], "z": [None, 24], "weights": ["N", "L", "L"]}
    return model(nodes, {"ids": ["N", "L"]}, shapes, ["ids"], flat=flat, **stored)


def bundle_of(proto: onnx.ModelProto, folder: Path, **options: Any) -> tuple[Run, Run]:
    """The model in a bundle, and in ONNX Runtime."""
    path = saved(proto, folder / "model.onnx")
    eqfuse.compile(path, folder / "bundle", threads=1, verify=False, measure=False, **options)
    compiled = eqfuse.load(folder / "bundle")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda feeds: list(compiled.run(feeds).values()), lambda feeds: session.run(None, dict(feeds))


def check(runs: tuple[Run, Run], feeds: Mapping[str, Array]) -> None:
    """The bundle refuses inputs, or its results are those of ONNX Runtime."""
    compiled, original = runs
    try:
        results = compiled(feeds)
    except UsageError:
        return
    for result, wanted in zip(results, original(feeds), strict=True):
        assert result.shape == wanted.shape
        np.testing.assert_allclose(result, wanted, rtol=2e-3, atol=1e-4)


@pytest.fixture(scope="module")
def maps(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    return bundle_of(feature_maps(), tmp_path_factory.mktemp("maps"), typical=("H=48", "W=64"))


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    return bundle_of(sequences(), tmp_path_factory.mktemp("rows"))


@given(
    st.integers(0, 3), st.one_of(st.integers(1, 70), st.just(48)), st.one_of(st.integers(1, 70), st.just(64)),
    st.integers(0, 9),
)  # fmt: skip
def test_maps_of_any_size(maps: tuple[Run, Run], count: int, height: int, width: int, seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal((count, 3, height, width)).astype(np.float32)
    check(maps, {"x": x})


@pytest.mark.conformance
@given(st.integers(0, 4), st.integers(1, 40), st.integers(0, 9))
def test_rows_of_any_number_and_length(rows: tuple[Run, Run], count: int, length: int, seed: int) -> None:
    check(rows, {"ids": np.random.default_rng(seed).integers(0, 50, (count, length))})


@pytest.mark.parametrize("size", [(1, 3, 48, 64), (1, 3, 1, 7), (2, 3, 33, 30)])
def test_runs_where_windows_fit(maps: tuple[Run, Run], size: tuple[int, ...]) -> None:
    compiled, _ = maps
    assert len(compiled({"x": np.zeros(size, np.float32)})) == 2


def pools() -> onnx.ModelProto:
    """Pools whose only window may be larger than the map, by less than a stride."""
    apart = {"kernel_shape": [3, 3], "strides": [3, 3]}
    nodes = [
        node("MaxPool", ["x"], ["max"], **apart),
        node("MaxPool", ["x"], ["ceiled"], ceil_mode=1, kernel_shape=[4, 3], strides=[3, 2], pads=[1, 0, 0, 0]),
        node("AveragePool", ["x"], ["mean"], **apart),
        node("AveragePool", ["x"], ["whole"], count_include_pad=1, **apart),
        node("AveragePool", ["x"], ["padded"], kernel_shape=[5, 3], strides=[5, 3], pads=[1, 0, 1, 0]),
    ]
    return model(nodes, {"x": ["N", 20, "H", "W"]}, {n.output[0]: ["N", 20, None, None] for n in nodes})


@pytest.fixture(scope="module")
def pooled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    return bundle_of(pools(), tmp_path_factory.mktemp("pools"))


@pytest.mark.parametrize("size", [(1, 2), (2, 2), (2, 5), (7, 2), (9, 10)])
def test_pools_see_a_part_of_a_window_that_is_larger_than_the_map(
    pooled: tuple[Run, Run], size: tuple[int, int]
) -> None:
    compiled, original = pooled
    x = np.random.default_rng(0).standard_normal((2, 20, *size)).astype(np.float32)
    for result, wanted in zip(compiled({"x": x}), original({"x": x}), strict=True):
        assert result.shape == wanted.shape
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


def transposed_convolutions() -> onnx.ModelProto:
    """Transposed convolutions whose results are twice as large as the map, or twice less 1."""
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("ConvTranspose", ["r", "w2", "b"], ["twice"], strides=[2, 2]),
        node("Relu", ["twice"], ["t"]),
        node("ConvTranspose", ["t", "w4"], ["four"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("ConvTranspose", ["r", "w3"], ["odd"], strides=[2, 2], pads=[1, 1, 1, 1]),
    ]
    stored = {"w2": weights(20, 18, 2, 2), "b": weights(18), "w4": weights(18, 17, 4, 4), "w3": weights(20, 16, 3, 3)}
    shapes = {"four": ["N", 17, None, None], "odd": ["N", 16, None, None]}
    return model(nodes, {"x": ["N", 20, "H", "W"]}, shapes, **stored)


@pytest.fixture(scope="module")
def transposed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run, set[str]]:
    folder = tmp_path_factory.mktemp("transposed")
    runs = bundle_of(transposed_convolutions(), folder)
    return *runs, {fact.rule for fact in read_table(folder / "bundle")}


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (7, 20), (40, 33)])
def test_transposed_convolutions(transposed: tuple[Run, Run, set[str]], size: tuple[int, int]) -> None:
    compiled, original, _ = transposed
    x = np.random.default_rng(0).standard_normal((2, 20, *size)).astype(np.float32)
    for result, wanted in zip(compiled({"x": x}), original({"x": x}), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)


def test_transposed_convolutions_of_twice_the_size_are_products(transposed: tuple[Run, Run, set[str]]) -> None:
    assert "contraction" in transposed[2]


def test_assumes_sizes_on_which_the_model_runs() -> None:
    nodes = [
        node("MaxPool", ["x"], ["rows"], kernel_shape=[40, 1], strides=[40, 1]),
        node("Concat", ["rows", "line"], ["y"], axis=1),
    ]
    proto = model(nodes, {"x": [1, 3, "H", "W"], "line": [1, 3, 1, "W"]}, {"y": [1, 6, 1, "W"]})
    assert graph_of(proto).sizes == {"H": 64, "W": 128}


def test_refuses_pools_without_a_window(pooled: tuple[Run, Run]) -> None:
    compiled, _ = pooled
    with pytest.raises(UsageError, match=r"MaxPool.*is below 2"):
        compiled({"x": np.zeros((1, 20, 5, 1), np.float32)})


def test_refuses_empty_maps_as_the_runtime_does(maps: tuple[Run, Run]) -> None:
    for run in maps:
        with pytest.raises(Exception, match=r"below 1|Invalid input shape"):
            run({"x": np.zeros((1, 3, 0, 64), np.float32)})


def branches() -> onnx.ModelProto:
    """Where a condition holds a window needs at least 5 columns, and elsewhere the columns are dropped: there is 1."""
    then = helper.make_graph([node("Conv", ["x", "w"], ["a"]), node("ReduceMean", ["a"], ["m"], axes=[2], keepdims=0)],
                             "then", [], [helper.make_tensor_value_info("m", 1, None)])  # fmt: skip
    other = helper.make_graph([node("Exp", ["x"], ["e"]), node("Squeeze", ["e", "two"], ["s"])],
                              "other", [], [helper.make_tensor_value_info("s", 1, None)])  # fmt: skip
    nodes = [
        node("Greater", ["t", "zero"], ["c"]),
        node("If", ["c"], ["i"], then_branch=then, else_branch=other),
        node("Neg", ["i"], ["y"]),
    ]
    stored = {"w": weights(3, 3, 5), "zero": np.zeros((), np.float32), "two": np.array([2])}
    return model(nodes, {"x": ["N", 3, "W"], "t": []}, {"y": ["N", 3]}, **stored)


@pytest.fixture(scope="module")
def branched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    return bundle_of(branches(), tmp_path_factory.mktemp("branches"))


@pytest.mark.parametrize(("columns", "t"), [(5, 1.0), (8, 1.0), (1, -1.0)])
def test_a_branch_that_is_not_taken_refuses_no_sizes(branched: tuple[Run, Run], columns: int, t: float) -> None:
    feeds = {"x": weights(2, 3, columns), "t": np.array(t, np.float32)}
    (result,), (wanted,) = (run(feeds) for run in branched)
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("columns", "t"), [(1, 1.0), (2, -1.0)])
def test_a_branch_that_is_taken_refuses_sizes(branched: tuple[Run, Run], columns: int, t: float) -> None:
    with pytest.raises(UsageError, match="for these shapes of the inputs"):
        branched[0]({"x": weights(2, 3, columns), "t": np.array(t, np.float32)})


def test_a_recurrence_refuses_states_of_other_batches(tmp_path: Path) -> None:
    nodes = [node("GRU", ["x", "w", "r", "", "", "h"], ["", "y"], hidden_size=2)]
    shapes = {"x": ["L", "N", 4], "h": [1, "M", 2]}
    run, _ = bundle_of(model(nodes, shapes, {"y": [1, None, 2]}, w=weights(1, 6, 4), r=weights(1, 6, 2)), tmp_path)
    run({"x": weights(3, 5, 4), "h": weights(1, 5, 2)})
    with pytest.raises(UsageError, match="a size of M is not N"):
        run({"x": weights(3, 5, 4), "h": weights(1, 2, 2)})
