"""A compiled model of two kernels: cross-built, run under emulation, and counted."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from eqfuse.costmodels.device import load_device
from eqfuse.lowering.arm.counts import ModelCounts
from eqfuse.lowering.arm.emulate import count_example, run_example
from eqfuse.lowering.base.linking import RUNTIME
from eqfuse.lowering.base.toolchain import Tool, find, missing
from eqfuse.lowering.program.project import build_example, build_object, write_project
from eqfuse.support.processes.program import ToolError

from .models import CONV_MULTIPLY_ADDS, MATMUL_MULTIPLY_ADDS, TwoKernels, compile_kernels, two_kernels

ABSENT = missing(Tool.CROSS_COMPILER, Tool.EMULATOR, Tool.COUNTING_EMULATOR, Tool.HOST_COMPILER)
pytestmark = pytest.mark.skipif(bool(ABSENT), reason=ABSENT)
DEVICE = load_device("arm-cortex-a76")

CALLER = """\
#include "eqfuse_runtime.h"
#include <stdio.h>
#include <stdlib.h>
int __tvm_ffi_whole(void *, const eqfuse_argument *, int32_t, eqfuse_argument *);
static char x[1 << 20] __attribute__((aligned(64))), y[1 << 20] __attribute__((aligned(64)));
int main(int count, char **sizes) {
    eqfuse_tensor tensors[2] = {{.data = x}, {.data = y}};
    eqfuse_argument result, arguments[2];
    for (int i = 0; i < 2; i++) arguments[i] = (eqfuse_argument){EQFUSE_TENSOR_ARGUMENT, 0, tensors + i};
    fread(x, 1, atoi(sizes[1]), fopen("x", "rb"));
    if (!__tvm_ffi_whole(NULL, arguments, 1, &result)) return 1; /* too few */
    if (__tvm_ffi_whole(NULL, arguments, 2, &result)) return 2;
    fwrite(y, 1, atoi(sizes[2]), fopen("y", "wb"));
    return 0;
}
"""


@dataclass(frozen=True)
class Built:
    model: TwoKernels
    folder: Path
    example: Path
    marked: Path

    def count(self) -> ModelCounts:
        return count_example(self.marked, self.model.plan, [self.model.x], DEVICE)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("arm")
    built = Built(two_kernels(), folder / "project", folder / "example", folder / "marked")
    write_project(built.folder, built.model.plan, built.model.weights, compile_kernels(folder, DEVICE))
    build_example(built.folder, built.example, DEVICE)
    build_example(built.folder, built.marked, DEVICE, emulation=True)
    return built


@pytest.fixture(scope="module")
def counted(built: Built) -> ModelCounts:
    return built.count()


def test_outputs_equal_numpy(built: Built) -> None:
    (y,) = run_example(built.example, built.model.plan, [built.model.x], DEVICE)
    np.testing.assert_allclose(y, built.model.expected, rtol=1e-4, atol=1e-4)


def test_a_model_is_one_function_of_tvms_interface(built: Built, tmp_path: Path) -> None:
    build_object(built.folder, tmp_path / "whole.o", DEVICE, "whole", 1)
    (tmp_path / "caller.c").write_text(CALLER, encoding="utf-8")
    files = ["caller.c", "whole.o", "-I", str(RUNTIME)]
    subprocess.run([find(Tool.CROSS_COMPILER), "-static", *files, "-lm", "-o", "caller"], cwd=tmp_path, check=True)
    (tmp_path / "x").write_bytes(built.model.x.tobytes())
    sizes = [str(array.nbytes) for array in (built.model.x, built.model.expected)]
    subprocess.run([find(Tool.EMULATOR), "./caller", *sizes], cwd=tmp_path, check=True)
    y = np.frombuffer((tmp_path / "y").read_bytes(), np.float32).reshape(built.model.expected.shape)
    np.testing.assert_allclose(y, built.model.expected, rtol=1e-4, atol=1e-4)


@pytest.mark.representatives(1)
@pytest.mark.parametrize("name", ["arm-cortex-a57", "armv8-neon", "snapdragon865"])
def test_every_arm_device_compiles_and_runs(built: Built, tmp_path: Path, name: str) -> None:
    device, model = load_device(name), built.model
    write_project(tmp_path / "project", model.plan, model.weights, compile_kernels(tmp_path, device))
    build_example(tmp_path / "project", tmp_path / "example", device)
    (y,) = run_example(tmp_path / "example", model.plan, [model.x], device)
    np.testing.assert_allclose(y, model.expected, rtol=1e-4, atol=1e-4)


def test_kernels_compute_what_the_model_needs(counted: ModelCounts) -> None:
    assert [call.kernel for call in counted.calls] == ["conv_relu", "matmul"]
    computed = [call.counts.multiply_adds for call in counted.calls]
    assert computed == pytest.approx([CONV_MULTIPLY_ADDS, MATMUL_MULTIPLY_ADDS], rel=0.1)


def test_multiply_adds_are_done_four_at_a_time(counted: ModelCounts) -> None:
    assert counted.model.fused == pytest.approx((CONV_MULTIPLY_ADDS + MATMUL_MULTIPLY_ADDS) / 4, rel=0.1)


def test_a_warm_model_within_the_second_level_misses_only_the_first(counted: ModelCounts) -> None:
    assert counted.model.misses[1:] == (0, 0)


def test_counts_depend_on_nothing_but_the_example(
    built: Built, counted: ModelCounts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDING", "x" * 5000)
    elsewhere = shutil.copy(built.marked, tmp_path / "another name")
    assert replace(built, marked=elsewhere).count() == counted


def test_a_cold_run_misses_the_lines_of_what_nobody_touched_before(built: Built) -> None:
    """The weights, the intermediate and the output; the input was just read from its file."""
    cold = count_example(built.marked, built.model.plan, [built.model.x], DEVICE, warm=False).model
    lines = sum(built.model.plan.buffers[b].size // 64 for b in (1, 2, 3, 4))
    assert lines <= cold.misses[1] <= 1.15 * lines


def test_an_unmarked_example_cannot_be_counted(built: Built) -> None:
    with pytest.raises(ToolError, match="build it for emulation"):
        count_example(built.example, built.model.plan, [built.model.x], DEVICE)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((1, 14, 14, 8)), "in0.npy: elements of another type"),
        (np.zeros((14, 14), np.float32), "in0.npy: not the size of the input"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(built: Built, x: np.ndarray, message: str) -> None:
    with pytest.raises(ToolError, match=message):
        run_example(built.example, built.model.plan, [x], DEVICE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "usage: "),
        (["absent.npy", "y.npy"], "absent.npy: cannot be read"),
        (["short.bin", "y.npy"], "short.bin: not the size of the input"),
        (["double.npy", "y.npy"], "double.npy: elements of another type"),
        (["column.npy", "y.npy"], "column.npy: column by column"),
        (["x.npy", "absent/y.npy"], "absent/y.npy: cannot be written"),
    ],
)
def test_the_example_says_what_is_wrong_with_a_file(
    built: Built, tmp_path: Path, arguments: list[str], message: str
) -> None:
    x = built.model.x
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "double.npy", x.astype(np.float64))
    np.save(tmp_path / "column.npy", np.asfortranarray(x))
    (tmp_path / "short.bin").write_bytes(x.tobytes()[1:])
    command = [find(Tool.EMULATOR), built.example, *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode
    assert message in done.stderr


def test_a_kernel_that_refuses_its_arguments_is_heard(built: Built, tmp_path: Path) -> None:
    model, calls = built.model, built.model.plan.calls
    plan = replace(model.plan, steps=(calls[0], structs.replace(calls[1], inputs=(2, 1))))
    write_project(tmp_path / "project", plan, model.weights, sorted((built.folder / "kernels").iterdir()))
    build_example(tmp_path / "project", tmp_path / "example", DEVICE)
    message = r"qemu-aarch64-static: failed \(exit code 1\): error: model: ValueError: Mismatched matrix.ndim"
    with pytest.raises(ToolError, match=message):
        run_example(tmp_path / "example", plan, [model.x], DEVICE)


def test_bare_elements_are_read_and_written(built: Built, tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(built.model.x.tobytes())
    subprocess.run([find(Tool.EMULATOR), built.example, "x.bin", "y.bin"], cwd=tmp_path, check=True)
    y = np.fromfile(tmp_path / "y.bin", np.float32).reshape(built.model.expected.shape)
    np.testing.assert_allclose(y, built.model.expected, rtol=1e-4, atol=1e-4)


def test_the_compiler_refuses_in_one_line(built: Built, tmp_path: Path) -> None:
    shutil.copytree(built.folder, tmp_path / "project")
    next((tmp_path / "project" / "kernels").glob("*.o")).unlink()
    with pytest.raises(ToolError, match=r"aarch64-linux-gnu-gcc: failed \(exit code 1\): .*undefined reference"):
        build_example(tmp_path / "project", tmp_path / "example", DEVICE)


@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake: not found; apt-get install cmake")
def test_cmake_builds_the_project(built: Built, tmp_path: Path) -> None:
    cross = ["-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64", "-DEQFUSE_STATIC=ON"]
    compiler = f"-DCMAKE_C_COMPILER={find(Tool.CROSS_COMPILER)}"
    subprocess.run(["cmake", "-S", built.folder, "-B", tmp_path, compiler, *cross], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", tmp_path], check=True, capture_output=True)
    (y,) = run_example(tmp_path / "eqfuse_example", built.model.plan, [built.model.x], DEVICE)
    np.testing.assert_allclose(y, built.model.expected, rtol=1e-4, atol=1e-4)
