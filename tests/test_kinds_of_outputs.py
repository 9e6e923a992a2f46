"""Outputs of every kind come out of every command: constants, inputs, one value twice, none that is computed."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import pytest

import eqfuse
from eqfuse.driver.session.session import InferenceSession

from .caches import own_cache
from .lowering.small_models import expected

MODELS = {
    "constant of nodes": "(float[4] x) => (float[4] y, float[2] z) <float[2] a = {1, 2}> { y = Relu(x) z = Mul(a, a) }",
    "constant of nodes alone": "(float[4] x) => (float[2] z) <float[2] a = {1, 2}> { z = Mul(a, a) }",
    "large constant of nodes": "(float[4] x) => (float[4] y, float[100, 100] z) <int64[2] s = {100, 100}> "
                               "{ y = Relu(x) c = ConstantOfShape(s) z = Exp(c) }",
    "stored constant": "(float[4] x) => (float[4] y, float[2] a) <float[2] a = {1, 2}> { y = Relu(x) }",
    "Constant node": "(float[4] x) => (float[4] y, float[2] a) "
                     "{ y = Relu(x) a = Constant <value_floats = [1.0, 2.0]> () }",
    "number": "(float[4] x) => (float y, int64 n) { y = ReduceMax <keepdims = 0> (x) n = Size(x) }",
    "input": "(float[3] x) => (float[3] x, float[3] y) { y = Relu(x) }",
    "free input": "(float[N, 3] x) => (float[N, 3] x, float[N, 3] y) { y = Relu(x) }",
    "input of integers": "(int64[N] i, float[2] x) => (int64[N] i, float[2] y) { y = Relu(x) }",
    "bool input": "(bool[2] c, float[2] x) => (bool[2] c, float[2] y) { y = Where(c, x, x) }",
    "nothing computed": "(float[N] x) => (float[N] x) { }",
    "two inputs, exchanged": "(float[N] x, float[2] y) => (float[2] y, float[N] x) { }",
    "Identity of an input": "(float[N] x) => (float[N] y) { y = Identity(x) }",
    "Identity of an input twice": "(float[N] x) => (float[N] y, float[N] z) { y = Identity(x) z = Identity(x) }",
    "one value by two names": "(float[N] x) => (float[N] y, float[N] z) { y = Relu(x) z = Identity(y) }",
    "twins": "(float[N] x) => (float[N] y, float[N] z) { y = Relu(x) z = Relu(x) }",
    "inner value": "(float[N] x) => (float[N] y, float[N] z) { y = Relu(x) z = Exp(y) }",
    "view of an input": "(float[N, 4] x) => (float[N, 2, 2] y, float[N, 4] x) <int64[3] s = {0, 2, 2}> "
                        "{ y = Reshape(x, s) }",
    "view of a value": "(float[N, 4] x) => (float[N, 4] r, float[N, 2, 2] y) <int64[3] s = {0, 2, 2}> "
                       "{ r = Relu(x) y = Reshape(r, s) }",
    "shape": "(float[N, 4] x) => (int64[2] s, float[N, 4] y) { s = Shape(x) y = Relu(x) }",
    "default of an input": "(float[2] x, float[2] w) => (float[2] y, float[2] w) <float[2] w = {1, 2}> "
                           "{ y = Mul(x, w) }",
}  # fmt: skip
FREE = 5
NAMED = {
    "Loop": "(float[2] x, float m) => (float[2] e, int64[A] i, float[B] s) <int64 n = {5}, bool t = {1}> "
            "{ e, i, s = Loop (n, t, x) "
            "<body = b (int64 j, bool c, float[2] a) => (bool d, float[2] h, int64 k, float r) "
            "{ h = Add(a, x) r = ReduceSum <keepdims = 0> (h) d = Less(r, m) k = Identity(j) }> }",
    "Scan": "(float[T, 3] x, float[3] s) => (float[3] f, float[Steps, 3] y) { f, y = Scan <num_scan_inputs = 1, "
            "body = b (float[3] a, float[3] e) => (float[3] c, float[3] d) { c = Add(a, e) d = Relu(c) }> (s, x) }",
    "If": "(float[N] x, bool c) => (float[Kept] y) <int64[1] z = {0}, int64[1] o = {1}> { y = If(c) "
          "<then_branch = t () => (float[q] u) { u = Slice(x, z, o) }, "
          "else_branch = e () => (float[q] u) { u = Exp(x) }> }",
    "NonZero": "(float[N] x) => (int64[1, Found] y, float[Found] g) "
               "{ r = Relu(x) y = NonZero(r) s = Squeeze(y) g = Gather(x, s) }",
    "Compress": "(float[N] x, bool[N] c) => (float[Kept] y) { r = Identity(x) y = Compress <axis = 0> (r, c) }",
    "other names": "(float[N, M] x) => (float[Rows, Columns] y) { r = Relu(x) y = Relu(r) }",
    "a name and none": "(float[N, M] x) => (float[Rows, ?] y) { r = Relu(x) y = Relu(r) }",
    "names of known sizes": "(float[4, 3] x) => (float[A, B] y) { t = Neg(x) y = Neg(t) }",
    "computed target": "(float[N, M] x, int64[2] s) => (float[A, B] y) { y = Reshape(x, s) }",
}  # fmt: skip
"""Models whose outputs have names for their dimensions."""


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> outputs {text}')


def feeds_of(proto: onnx.ModelProto) -> dict[str, np.ndarray[Any, Any]]:
    stored = {tensor.name for tensor in proto.graph.initializer}
    feeds = {}
    for number, port in enumerate(port for port in proto.graph.input if port.name not in stored):
        shape = [d.dim_value or FREE for d in port.type.tensor_type.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(port.type.tensor_type.elem_type)
        drawn = np.random.default_rng(number).standard_normal(shape)
        feeds[port.name] = (drawn > 0 if dtype.kind == "b" else 9 * drawn).astype(dtype)
    return feeds


def assert_same(
    proto: onnx.ModelProto, given: Mapping[str, np.ndarray[Any, Any]], feeds: dict[str, np.ndarray[Any, Any]]
) -> None:
    wanted = expected(proto, feeds)
    assert list(given) == list(wanted)
    for name, array in wanted.items():
        assert given[name].dtype == array.dtype
        np.testing.assert_allclose(given[name], array, rtol=1e-6, err_msg=name)


@pytest.mark.representatives(5)
@pytest.mark.parametrize("kind", MODELS)
def test_optimised(kind: str) -> None:
    proto = parse(MODELS[kind])
    result = eqfuse.optimize(proto)
    assert [str(port.name) for port in result.graph.output] == [port.name for port in proto.graph.output]
    assert_same(proto, expected(result, feeds_of(proto)), feeds_of(proto))


@pytest.mark.representatives(2)
@pytest.mark.parametrize("kind", MODELS)
def test_compiled(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", own_cache(tmp_path / "cache"))
    proto = parse(MODELS[kind])
    onnx.save(proto, tmp_path / "in.onnx")
    eqfuse.compile(tmp_path / "in.onnx", tmp_path / "bundle", threads=1, measure=False)
    loaded = eqfuse.load(tmp_path / "bundle")
    assert_same(proto, loaded.run(feeds_of(proto)), feeds_of(proto))


@pytest.mark.conformance
@pytest.mark.parametrize("kind", MODELS)
def test_in_a_c_project(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program that a project comes with reads and writes the files of arrays that it is given."""
    monkeypatch.setenv("XDG_CACHE_HOME", own_cache(tmp_path / "cache"))
    proto, project = parse(MODELS[kind]), tmp_path / "project"
    onnx.save(proto, tmp_path / "in.onnx")
    eqfuse.compile(tmp_path / "in.onnx", project, threads=1, format="c")
    sources = sorted(project.rglob("*.[cSo]"))
    command = ["gcc", f"-I{project}", f"-Wa,-I{project}", "-pthread", *sources, "-lm", "-o", tmp_path / "example"]
    subprocess.run(command, check=True, capture_output=True)
    feeds, files = feeds_of(proto), []
    for array in feeds.values():
        files.append(tmp_path / f"{len(files)}.npy")
        np.save(files[-1], array)
    results = {port.name: tmp_path / f"result{number}.npy" for number, port in enumerate(proto.graph.output)}
    subprocess.run([tmp_path / "example", *files, *results.values()], check=True)
    assert_same(proto, {name: np.load(path) for name, path in results.items()}, feeds)


@pytest.mark.conformance
@pytest.mark.parametrize("kind", MODELS)
def test_in_a_session(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", own_cache(tmp_path / "cache"))
    proto = parse(MODELS[kind])
    onnx.save(proto, tmp_path / "in.onnx")
    session = InferenceSession(str(tmp_path / "in.onnx"), providers=["CPUExecutionProvider"])
    names = [port.name for port in proto.graph.output]
    assert_same(proto, dict(zip(names, session.run(None, feeds_of(proto)), strict=True)), feeds_of(proto))


@pytest.mark.representatives(3)
@pytest.mark.parametrize("partition", ["none", "joint"])
@pytest.mark.parametrize("kind", NAMED)
def test_dimensions_keep_their_names(kind: str, partition: Literal["none", "joint"]) -> None:
    proto = parse(NAMED[kind])
    result = eqfuse.optimize(proto, partition=partition)
    pairs = zip(proto.graph.output, result.graph.output, strict=True)
    assert all(before.type.tensor_type.shape == after.type.tensor_type.shape for before, after in pairs)
