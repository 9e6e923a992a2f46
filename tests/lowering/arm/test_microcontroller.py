"""C projects for a Cortex-M55 without an operating system, built by GNU's compiler and run on QEMU's board."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

from eqfuse.costmodels.device import load_device
from eqfuse.driver.compiler.compile import compile_model
from eqfuse.driver.compiler.options import CompileOptions
from eqfuse.lowering.arm.emulate import run_example
from eqfuse.lowering.base.toolchain import Tool, find, missing
from eqfuse.lowering.plan.manifest import PLAN
from eqfuse.lowering.plan.plan import Plan
from eqfuse.lowering.program.project import build_example
from eqfuse.support.processes.program import ToolError

from ..ethos_u.networks import float_model

ABSENT = missing(Tool.BARE_COMPILER, Tool.BARE_EMULATOR)
pytestmark = pytest.mark.skipif(bool(ABSENT), reason=ABSENT)
NAME = "arm-cortex-m55"
SHAPE, WEIGHTS = (1, 3, 9, 7), {"w": (6, 3, 3, 3), "b": (6,), "v": (6, 1, 3, 3)}
MODELS = {
    "convolutions": "c = Conv<pads=[1,1,1,1]>(x, w, b) r = HardSwish(c) d = Conv<group=6>(r, v) "
    "g = GlobalAveragePool(d) f = Flatten(g) y = Softmax(f)",
    "bytes": "s = Constant<value_float=0.05>() q = QuantizeLinear(x, s) p = DequantizeLinear(q, s) y = Mul(p, x)",
    "words": "i = Cast<to=7>(x) j = Abs(i) k = Cast<to=1>(j) l = Erf(k) m = Mul(j, i) n = Cast<to=1>(m) y = Add(l, n)",
    "halves": "h = Cast<to=10>(x) g = Mul(h, h) y = Cast<to=1>(g)",
    "loops": "f = Flatten(x) k = Constant<value_ints=[5]>() t, i = TopK<axis=1>(f, k) n = Cast<to=1>(i) y = Add(t, n)",
}


def compiled(name: str, folder: Path) -> Path:
    weights = WEIGHTS if name == "convolutions" else {}
    onnx.save(float_model(MODELS[name], SHAPE, weights), folder / "model.onnx")
    made = compile_model(folder / "model.onnx", folder / "project", CompileOptions(target=NAME, verify=False))
    return made.path


def outputs(executable: Path, folder: Path, x: NDArray[np.float32]) -> list[NDArray[np.generic]]:
    plan = Plan.from_json((folder / PLAN).read_text(encoding="utf-8"))
    return run_example(executable, plan, [x], load_device(NAME))


@pytest.mark.conformance
@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_those_of_onnx_runtime(name: str, tmp_path: Path) -> None:
    folder = compiled(name, tmp_path)
    build_example(folder, tmp_path / "example", load_device(NAME))
    x = 2 * np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)
    (y,) = outputs(tmp_path / "example", folder, x)
    (expected,) = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(None, {"x": x})
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    assert np.ptp(expected) > 0


@pytest.mark.conformance
@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake: not found; apt-get install cmake")
def test_cmake_builds_the_project(tmp_path: Path) -> None:
    folder = compiled("convolutions", tmp_path)
    options = [
        "-DCMAKE_SYSTEM_NAME=Generic", f"-DCMAKE_C_COMPILER={find(Tool.BARE_COMPILER)}",
        "-DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY", "-DCMAKE_C_FLAGS=-mcpu=cortex-m55 -mfloat-abi=hard",
    ]  # fmt: skip
    subprocess.run(["cmake", "-S", folder, "-B", tmp_path / "out", *options], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", tmp_path / "out"], check=True, capture_output=True)
    x = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)
    (y,) = outputs(tmp_path / "out" / "eqfuse_example", folder, x)
    (expected,) = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(None, {"x": x})
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.conformance
def test_a_program_that_fails_ends_with_its_complaint(tmp_path: Path) -> None:
    folder = compiled("loops", tmp_path)
    build_example(folder, tmp_path / "example", load_device(NAME))
    with pytest.raises(ToolError, match="not the size of the input"):
        outputs(tmp_path / "example", folder, np.zeros((1, 3, 9, 8), np.float32))
