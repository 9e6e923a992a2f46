"""Operators of libraries: `custom_ops` registers them, and what lacks one says so."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest

import eqfuse
from eqfuse.support.custom_operators import custom_operators, list_libraries
from eqfuse.support.errors import EqfuseError
from eqfuse.support.processes.worker_process import WorkerProcess

TEXT = """<ir_version: 8, opset_import: ["": 17, "ai.onnx.contrib": 1]> custom
    (float[N, 4] x) => (float[N, 4] y) <float[N, 4] n, float[N, 4] p> {
        s = Identity(x)
        n, p = ai.onnx.contrib.NegPos(s)
        e = Exp(n)
        y = Mul(e, p)
    }"""
X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(onnx.parser.parse_model(TEXT), tmp_path / "in.onnx")
    return tmp_path / "in.onnx"


def registered_in_a_process(_: object) -> tuple[str, ...]:
    return list_libraries()


def test_processes_that_run_already_are_told(tmp_path: Path) -> None:
    library = tmp_path / "any.so"
    library.touch()
    process = WorkerProcess(f"{__name__}:registered_in_a_process")
    try:
        before = process.ask(None)
        with custom_operators([library]):
            within = process.ask(None)
        assert (before, within, process.ask(None)) == ((), (str(library),), ())
    finally:
        process.close()


def test_an_unknown_operator_is_named_with_what_to_do(model: Path, tmp_path: Path) -> None:
    advice = r"NegPos.* is not a registered function/op; --custom-ops LIB\.so registers a library"
    with pytest.raises(EqfuseError, match=advice):
        eqfuse.optimize(model)
    with pytest.raises(EqfuseError, match=advice):
        eqfuse.compile(model, tmp_path / "bundle", threads=1)


def test_an_operator_of_unknown_shape_is_named(tmp_path: Path) -> None:
    text = TEXT.replace(" <float[N, 4] n, float[N, 4] p>", "")
    onnx.save(onnx.parser.parse_model(text), tmp_path / "in.onnx")
    named = r"^NegPos 'NegPos of n': neither ONNX nor ONNX Runtime infers the shape of its result; register the library"
    with pytest.raises(EqfuseError, match=named):
        eqfuse.compile(tmp_path / "in.onnx", tmp_path / "bundle", threads=1)


def test_operands_that_do_not_fit_are_named(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> misfits (float[2, 4, 5] x, float[3, 5] w) => (float[A, B, C] y)
    { a = Relu(x)  s = Add(a, w)  y = Relu(s) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "in.onnx")
    named = r"^Add 'Add of s': no shape of its result follows from operands of float32\[2, 4, 5\], float32\[3, 5\]"
    with pytest.raises(EqfuseError, match=named):
        eqfuse.compile(tmp_path / "in.onnx", tmp_path / "bundle", threads=1)


def test_a_library_that_is_none_is_named(model: Path, tmp_path: Path) -> None:
    with pytest.raises(EqfuseError, match=r"^--custom-ops: gone\.so: no such file$"):
        eqfuse.optimize(model, custom_ops="gone.so")
    with pytest.raises(EqfuseError, match=r"in\.onnx: ONNX Runtime cannot load it: .*invalid ELF header"):
        eqfuse.compile(model, tmp_path / "bundle", custom_ops=[model])
    assert list_libraries() == ()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of the package onnxruntime-extensions."""
    folder = tmp_path_factory.mktemp("library")
    wanted = "onnxruntime-extensions==0.15.2"
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, wanted]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"pip cannot fetch onnxruntime-extensions: {done.stderr.strip()[-200:]}")
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder)
    (found,) = folder.rglob("*.so")
    return found


@pytest.mark.conformance
def test_operators_of_a_library_run_in_every_command(model: Path, library: Path, tmp_path: Path) -> None:
    result = eqfuse.optimize(model, tmp_path / "out.onnx", custom_ops=library)
    assert result.verification is not None
    assert result.verification.status == "passed"
    assert [node.op_type for node in result.model.graph] == ["NegPos", "Exp", "Mul"]
    assert eqfuse.verify(model, tmp_path / "out.onnx", custom_ops=library).status == "passed"
    assert eqfuse.optimize(model, custom_ops=library, measure=1).timings is not None
    compiled = eqfuse.compile(model, tmp_path / "bundle", threads=1, custom_ops=library)
    assert [entry.operators for entry in compiled.manifest.fallbacks] == [("NegPos",)]
    found = eqfuse.load(tmp_path / "bundle").run({"x": X})["y"]
    np.testing.assert_allclose(found, np.exp(np.minimum(X, 0)) * np.maximum(X, 0), rtol=1e-6)


@pytest.mark.conformance
def test_a_bundle_without_its_library_says_so(model: Path, library: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.so"
    copy.write_bytes(library.read_bytes())
    eqfuse.compile(model, tmp_path / "bundle", threads=1, custom_ops=copy, measure=False)
    copy.unlink()
    with pytest.raises(EqfuseError, match=r"copy\.so: no such file"):
        eqfuse.load(tmp_path / "bundle")
