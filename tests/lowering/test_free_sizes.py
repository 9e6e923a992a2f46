"""A bundle of a model with dynamic dimensions is right for every size that the original runs on, or refuses it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, RuntimeException

import eqfuse
from eqfuse.lowering.plan.kernel_facts import read_table
from eqfuse.support.errors import UsageError

from ..properties import examples
from .free_size_models import detectors, feature_maps, pictures, recurrences, sequences, windows_of_tokens
from .small_models import Array, graph_of, model, saved, weights

Run = Callable[[Mapping[str, Array]], Sequence[Array]]
node = helper.make_node


def bundle_of(proto: onnx.ModelProto, folder: Path, **options: Any) -> tuple[Run, Run]:
    """The model in a bundle, and in ONNX Runtime."""
    path = saved(proto, folder / "model.onnx")
    eqfuse.compile(path, folder / "bundle", threads=1, verify=False, measure=False, **options)
    compiled = eqfuse.load(folder / "bundle")
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    settings.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    return lambda feeds: list(compiled.run(feeds).values()), lambda feeds: session.run(None, dict(feeds))


def check(runs: tuple[Run, Run], feeds: Mapping[str, Array]) -> None:
    """One of the two refuses inputs, or the results of the bundle are those of ONNX Runtime."""
    compiled, original = runs
    try:
        results = compiled(feeds)
        expected = original(feeds)
    except (UsageError, Fail, InvalidArgument, RuntimeException):
        return
    for result, wanted in zip(results, expected, strict=True):
        assert result.shape == wanted.shape
        np.testing.assert_allclose(result, wanted, rtol=2e-3, atol=1e-4)


@pytest.fixture(scope="module")
def maps(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    return bundle_of(feature_maps(), tmp_path_factory.mktemp("maps"), typical=("H=48", "W=64"))


@pytest.mark.conformance
def test_deep_products_of_any_number_of_rows(tmp_path: Path) -> None:
    """The sum is added up in parts where the weights of a tile do not fit the second cache, as of most processors."""
    proto = model([node("MatMul", ["x", "w"], ["y"])], {"x": ("N", 8192)}, {"y": ("N", 100)}, w=weights(8192, 100))
    runs = bundle_of(proto, tmp_path)
    for rows in (0, 1, 3, 16, 41):
        check(runs, {"x": np.random.default_rng(rows).standard_normal((rows, 8192)).astype(np.float32)})


LENGTHS = st.one_of(st.integers(0, 70), st.sampled_from((0, 1, 48, 64)))


@examples(8)
@given(st.integers(0, 3), LENGTHS, LENGTHS, st.integers(0, 9))
def test_maps_of_any_size(maps: tuple[Run, Run], count: int, height: int, width: int, seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal((count, 3, height, width)).astype(np.float32)
    check(maps, {"x": x})


OTHERS: dict[str, tuple[Callable[[], onnx.ModelProto], dict[str, tuple[str, ...]]]] = {
    "rows": (sequences, {}), "recurrences": (recurrences, {}), "detectors": (detectors, {"typical": ("H=64",)}),
    "windows": (windows_of_tokens, {"range": ("N=1,3",)}), "pictures": (pictures, {}),
}  # fmt: skip


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Run, Run]]:
    @cache
    def compiled(name: str) -> tuple[Run, Run]:
        build, options = OTHERS[name]
        return bundle_of(build(), tmp_path_factory.mktemp(name), **options)

    return compiled


def draw(name: str, count: int, length: int, width: int, seed: int) -> dict[str, Array]:
    """Inputs of one of the other models."""
    random = np.random.default_rng(seed)
    if name == "rows":
        return {"ids": random.integers(0, 50, (count, length))}
    shapes: dict[str, dict[str, tuple[int, ...]]] = {
        "recurrences": {"x": (count, 4, length), "s": (1, count, 8)},
        "detectors": {"x": (count, 3, length, width)},
        "pictures": {"x": (count, 3, length, width)},
        "windows": {"x": (count, 16, length, 6)},
    }
    return {port: random.standard_normal(shape).astype(np.float32) for port, shape in shapes[name].items()}


@pytest.mark.conformance
@pytest.mark.parametrize("name", OTHERS)
@given(st.integers(0, 4), LENGTHS, LENGTHS, st.integers(0, 9))
def test_other_models_of_any_size(
    others: Callable[[str], tuple[Run, Run]], name: str, count: int, length: int, width: int, seed: int
) -> None:
    count = max(count, 1 if name == "recurrences" else 0)  # ONNX Runtime ends with the process for none
    check(others(name), draw(name, count, length, width, seed))


@pytest.mark.conformance
@pytest.mark.parametrize(("name", "count"), [("rows", 0), *((name, count) for name in OTHERS for count in (1, 3))])
def test_other_models_run(others: Callable[[str], tuple[Run, Run]], name: str, count: int) -> None:
    compiled, original = others(name)
    feeds = draw(name, count, 9, 12, 0)
    for result, wanted in zip(compiled(feeds), original(feeds), strict=True):
        assert result.shape == wanted.shape


@pytest.mark.parametrize("size", [(1, 3, 48, 64), (1, 3, 1, 7), (2, 3, 33, 30)])
def test_runs_where_windows_fit(maps: tuple[Run, Run], size: tuple[int, ...]) -> None:
    compiled, _ = maps
    assert len(compiled({"x": np.zeros(size, np.float32)})) == 2


def rows_along(operator: str) -> onnx.ModelProto:
    """An operator along each axis of a tensor without a known size."""
    takes_several = operator == "MeanVarianceNormalization"
    along = [{"axes": [axis]} if takes_several else {"axis": axis} for axis in range(3)]
    nodes = [node(operator, ["x"], [f"y{axis}"], **attributes) for axis, attributes in enumerate(along)]
    return model(nodes, {"x": ["A", "B", "C"]}, {n.output[0]: ["A", "B", "C"] for n in nodes})


@pytest.mark.conformance
@pytest.mark.parametrize(
    "operator", ["Hardmax", "Softmax", "LogSoftmax", "LpNormalization", "MeanVarianceNormalization"]
)
def test_rows_of_a_tensor_without_elements(tmp_path: Path, operator: str) -> None:
    """No size of a buffer between loops is divided by how many tiles an empty axis has."""
    compiled, original = bundle_of(rows_along(operator), tmp_path)
    for size in product((0, 1, 20), (0, 2, 128), (0, 3, 33)):
        x = np.random.default_rng(0).standard_normal(size).astype(np.float32)
        check((compiled, original), {"x": x})


def pools() -> onnx.ModelProto:
    """Pools whose only window may be larger than the map, by less than a stride."""
    apart = {"kernel_shape": [3, 3], "strides": [3, 3]}
    nodes = [
        node("MaxPool", ["x"], ["max"], **apart),
        node("MaxPool", ["x"], ["ceiled"], ceil_mode=1, kernel_shape=[4, 3], strides=[3, 2], pads=[1, 0, 0, 0]),
        node("AveragePool", ["x"], ["mean"], **apart),
        node("AveragePool", ["x"], ["whole"], count_include_pad=1, **apart),
        node("AveragePool", ["x"], ["padded"], kernel_shape=[5, 3], strides=[5, 3], pads=[1, 0, 1, 0]),
        node("AveragePool", ["x"], ["same"], auto_pad="SAME_LOWER", kernel_shape=[2, 3], strides=[2, 1]),
    ]
    return model(nodes, {"x": ["N", 20, "H", "W"]}, {n.output[0]: ["N", 20, None, None] for n in nodes})


@pytest.fixture(scope="module")
def pooled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    return bundle_of(pools(), tmp_path_factory.mktemp("pools"))


@pytest.mark.conformance
@pytest.mark.parametrize("size", [(1, 2), (2, 2), (2, 5), (7, 2), (9, 10)])
def test_pools_see_a_part_of_a_window_that_is_larger_than_the_map(
    pooled: tuple[Run, Run], size: tuple[int, int]
) -> None:
    compiled, original = pooled
    x = np.random.default_rng(0).standard_normal((2, 20, *size)).astype(np.float32)
    for result, wanted in zip(compiled({"x": x}), original({"x": x}), strict=True):
        assert result.shape == wanted.shape
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


def test_a_pool_of_a_narrow_map_has_the_schedule_of_pools(tmp_path: Path) -> None:
    """Rows of its operand are copied as a whole, as multiples of the result's rows."""
    pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]), node("MaxPool", ["a"], ["b"], **pool)]
    nodes += [node("Relu", ["b"], ["r"]), node("MaxPool", ["r"], ["y"], **pool)]
    proto = model(nodes, {"x": ["N", 3, "H", "W"]}, {"y": ["N", 36, None, None]}, w=weights(36, 3, 3, 3))
    runs = bundle_of(proto, tmp_path, typical=("H=64", "W=64"))
    for size in ((2, 64, 64), (1, 9, 21), (1, 2, 3)):
        check(runs, {"x": weights(size[0], 3, *size[1:])})
    assert not eqfuse.load(tmp_path / "bundle").manifest.provenance.replaced


@pytest.mark.parametrize("depth", [1, 3])
def test_maps_with_a_depth_of_any_batch_by_minimal_filters(tmp_path: Path, depth: int) -> None:
    pads = [depth // 2, 1, 1] * 2
    shapes = {"x": ["N", 64, 3, 16, 16]}, {"y": ["N", 64, 3, 16, 16]}
    proto = model([node("Conv", ["x", "w"], ["y"], pads=pads)], *shapes, w=weights(64, 64, depth, 3, 3))
    runs = bundle_of(proto, tmp_path)
    for batch in (0, 1, 2, 5):
        check(runs, {"x": weights(batch, 64, 3, 16, 16)})
    assert "winograd" in {each.rule for each in read_table(tmp_path / "bundle")}


def same(*names: str) -> onnx.ModelProto:
    """Windows by two pixels, whose border begins earlier at some sizes than at others, with these outputs."""
    apart = {"strides": [2, 2], "auto_pad": "SAME_UPPER"}
    lower = {"strides": [2, 3], "auto_pad": "SAME_LOWER"}
    nodes = [
        node("Conv", ["x", "full"], ["a"], **apart),
        node("Relu", ["a"], ["products"]),
        node("Conv", ["x", "single"], ["single_channels"], group=20, **lower),
        node("MaxPool", ["x"], ["greatest"], kernel_shape=[3, 3], **apart),
        node("AveragePool", ["x"], ["mean"], kernel_shape=[3, 3], **lower),
        node("MaxPool", ["x"], ["spread"], kernel_shape=[3, 2], dilations=[2, 3], **apart),
        node("AveragePool", ["x"], ["spread_mean"], kernel_shape=[3, 3], dilations=[2, 2], **lower),
    ]
    stored = {"full": weights(18, 20, 3, 3), "single": weights(20, 1, 3, 4)}
    wanted = [each for each in nodes if {"products" if name == "a" else name for name in each.output} & {*names}]
    stored = {name: array for name, array in stored.items() if any(name in each.input for each in wanted)}
    outputs: dict[str, list[Any]] = {name: ["N", 18 if name == "products" else 20, None, None] for name in names}
    return model(wanted, {"x": ["N", 20, "H", "W"]}, outputs, **stored)


BORDERS = {
    "products": (("products",), {"contraction", "transposition"}),
    "all": (("products", "single_channels", "greatest", "mean"), {"contraction", "channels", "transposition"}),
    "dilated pools": (("spread", "spread_mean"), {"channels", "transposition"}),
}


@pytest.fixture(scope="module")
def padded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Run, Run, set[str]]]:
    @cache
    def compiled(case: str) -> tuple[Run, Run, set[str]]:
        folder = tmp_path_factory.mktemp(case)
        runs = bundle_of(same(*BORDERS[case][0]), folder)
        return *runs, {fact.rule for fact in read_table(folder / "bundle")}

    return compiled


@pytest.mark.representatives(2)
@pytest.mark.parametrize("case", ["products", pytest.param("all", marks=pytest.mark.conformance)])
@pytest.mark.parametrize("size", [(1, 1), (2, 3), (8, 5), (9, 14), (33, 40)])
def test_borders_that_depend_on_the_size(
    padded: Callable[[str], tuple[Run, Run, set[str]]], size: tuple[int, int], case: str
) -> None:
    compiled, original, rules = padded(case)
    assert rules == BORDERS[case][1]
    x = np.random.default_rng(0).standard_normal((2, 20, *size)).astype(np.float32)
    for result, wanted in zip(compiled({"x": x}), original({"x": x}), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)


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


@pytest.mark.conformance
@pytest.mark.parametrize("size", [(1, 1), (2, 3), (7, 20), (40, 33)])
def test_transposed_convolutions(transposed: tuple[Run, Run, set[str]], size: tuple[int, int]) -> None:
    compiled, original, _ = transposed
    x = np.random.default_rng(0).standard_normal((2, 20, *size)).astype(np.float32)
    for result, wanted in zip(compiled({"x": x}), original({"x": x}), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.conformance
def test_transposed_convolutions_of_twice_the_size_are_products(transposed: tuple[Run, Run, set[str]]) -> None:
    assert "contraction" in transposed[2]


def test_assumes_sizes_on_which_the_model_runs() -> None:
    nodes = [
        node("MaxPool", ["x"], ["rows"], kernel_shape=[40, 1], strides=[40, 1]),
        node("Concat", ["rows", "line"], ["y"], axis=1),
    ]
    proto = model(nodes, {"x": [1, 3, "H", "W"], "line": [1, 3, 1, "W"]}, {"y": [1, 6, 1, "W"]})
    assert graph_of(proto).sizes == {"H": 64, "W": 128}


def test_assumes_a_multiple_of_a_step_where_the_model_runs_on_these_alone() -> None:
    nodes = [
        node("MaxPool", ["x"], ["frames"], kernel_shape=[10], strides=[10]),
        node("ConvTranspose", ["frames", "w"], ["again"], strides=[10]),
        node("Add", ["x", "again"], ["y"]),
    ]
    proto = model(nodes, {"x": [1, 3, "T"]}, {"y": [1, 3, "T"]}, w=weights(3, 3, 10))
    assert graph_of(proto).sizes == {"T": 130}


def test_dimensions_that_have_to_be_equal_are_free(tmp_path: Path) -> None:
    nodes = [node("Relu", ["a"], ["r"]), node("Concat", ["r", "b"], ["y"], axis=1)]
    proto = model(nodes, {"a": ["n", 4], "b": ["m", 3]}, {"y": [None, 7]})
    runs = bundle_of(proto, tmp_path, typical=("n=5",))
    check(runs, {"a": weights(6, 4), "b": weights(6, 3)})
    with pytest.raises(UsageError, match="a size of n is not m"):
        runs[0]({"a": weights(6, 4), "b": weights(5, 3)})
    sizes = eqfuse.load(tmp_path / "bundle").manifest.sizes
    assert sizes is not None
    assert sizes.typical == {"n": 5, "m": 5}


@pytest.mark.conformance
def test_refuses_pools_without_a_window(pooled: tuple[Run, Run]) -> None:
    compiled, _ = pooled
    with pytest.raises(UsageError, match=r"MaxPool.*is below 2"):
        compiled({"x": np.zeros((1, 20, 5, 1), np.float32)})


def test_refuses_empty_maps_as_the_runtime_does(maps: tuple[Run, Run]) -> None:
    for run in maps:
        with pytest.raises(Exception, match=r"below 1|Invalid input shape"):
            run({"x": np.zeros((1, 3, 0, 64), np.float32)})


def branches() -> onnx.ModelProto:
    """If a condition holds a window needs at least 5 columns, and elsewhere the columns are dropped: there is 1."""
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


@pytest.mark.representatives(2)
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


def test_figures_of_kernels_are_those_of_typical_sizes(tmp_path: Path) -> None:
    proto = model([node("MatMul", ["x", "w"], ["y"])], {"x": ["N", 40]}, {"y": ["N", 24]}, w=weights(40, 24))
    bundle_of(proto, tmp_path, typical=("N=7",))
    (facts,) = read_table(tmp_path / "bundle")
    assert facts.multiply_adds == 7 * 40 * 24
