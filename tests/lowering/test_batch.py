"""Bundles for several sizes of a batch: of models with a free batch, and of ones for a single sample."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import eqfuse
from eqfuse.driver.bench import Latency
from eqfuse.support.errors import UsageError

from .small_models import model, saved, weights

node = helper.make_node


def classifier(batch: int | str, *, is_mixed: bool = False) -> onnx.ModelProto:
    """An image, as exporters write it: the batch is a number in the target of the Reshape."""
    nodes = [
        node("Conv", ["x", "w"], ["a"], strides=[2, 2]),
        node("Reshape", ["a", "flat"], ["r"]),
        node("Gemm", ["r", "v"], ["y"]),
    ]
    nodes += [node("Softmax", ["y"], ["z"], axis=0 if is_mixed else 1)]
    flat = np.array([1 if batch == 1 else -1, 8 * 9], np.int64)
    shapes = {"z": [batch, 5]}
    return model(nodes, {"x": [batch, 3, 8, 8]}, shapes, w=weights(8, 3, 3, 3), v=weights(72, 5), flat=flat)


def compile_with(proto: onnx.ModelProto, folder: Path, **options: Any) -> Path:
    path = saved(proto, folder / "model.onnx")
    eqfuse.compile(path, folder / "bundle", threads=1, measure=False, **options)
    return folder / "bundle"


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int | str], Path]:
    """The classifier of one sample or of N, compiled for batches of 1 and 4."""
    return cache(lambda batch: compile_with(classifier(batch), tmp_path_factory.mktemp("batch"), batch=[1, 4]))


@pytest.mark.parametrize("batch", [1, "N"])
def test_kernels_of_their_own_for_each_batch(bundles: Callable[[int | str], Path], batch: int | str) -> None:
    compiled = eqfuse.load(bundles(batch))
    name = "batch" if batch == 1 else "N"
    assert compiled.manifest.sizes is not None
    assert compiled.manifest.sizes.special == ({name: 1}, {name: 4})
    assert compiled.manifest.sizes.batch == (name,)
    session = onnxruntime.InferenceSession(bundles(batch).with_name("model.onnx"), providers=["CPUExecutionProvider"])
    for count in (1, 4, 3, 0):
        x = weights(count, 3, 8, 8) if count else np.zeros((0, 3, 8, 8), np.float32)
        expected = [session.run(None, {"x": x[n : n + 1]})[0] for n in range(count)]
        np.testing.assert_allclose(compiled(x), np.reshape(expected, (count, 5)), rtol=1e-4, atol=1e-6)


def test_a_measurement_has_the_batch_that_is_asked_for(bundles: Callable[[int | str], Path], tmp_path: Path) -> None:
    assert isinstance(eqfuse.bench(bundles("N"), batch=2, repeat=2), Latency)
    relu = model([node("Relu", ["x"], ["y"])], {"x": [1, 8]}, {"y": [1, 8]})
    with pytest.raises(UsageError, match=r"no dimension of the bundle's inputs \(x: float32\[1, 8\]\) is a batch"):
        eqfuse.bench(compile_with(relu, tmp_path, verify=False), batch=2)


def test_onnx_runtime_is_not_measured_on_a_batch_that_the_original_does_not_take(
    bundles: Callable[[int | str], Path],
) -> None:
    assert isinstance(eqfuse.bench(bundles("N"), batch=2, repeat=2, against="ort"), Latency)
    with pytest.raises(UsageError, match="takes x as 1x3x8x8 alone, and 2x3x8x8 is measured"):
        eqfuse.bench(bundles(1), batch=2, repeat=2, against="ort")


def test_samples_that_depend_on_each_other_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="for one sample: output 'z' of a sample depends on the other ones"):
        compile_with(classifier(1, is_mixed=True), tmp_path, batch=[1, 4])


def test_reshapes_that_fix_the_batch_are_refused(tmp_path: Path) -> None:
    nodes = [node("Transpose", ["x"], ["t"], perm=[1, 0]), node("Reshape", ["t", "s"], ["y"])]
    proto = model(nodes, {"x": [1, 8]}, {"y": [2, 4]}, s=np.array([2, 4], np.int64))
    with pytest.raises(UsageError, match=r"for one sample: .* output 'y' has the shape \[2, 4\]"):
        compile_with(proto, tmp_path, batch=4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"typical": "H=640"}, "--typical: .* has no dynamic dimension 'H'; it has N"),
        ({"range": "M=1..4"}, "--range: .* has no dynamic dimension 'M'; it has N"),
        ({"typical": "N=8", "dim": "N=2k"}, "--typical: --dim says that 'N' is 2k; give the size of what is in 2k"),
        ({"batch": 0}, "batch: 0 is not a number above 0"),
        ({"batch": "4"}, "batch: '4' is not a whole number"),
        ({"target": "dsa-goya", "batch": [1, 4]}, "batch: a program for an accelerator is for one batch"),
    ],
)
def test_sizes_that_cannot_be_are_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        compile_with(classifier("N"), tmp_path, **options)
