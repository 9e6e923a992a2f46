"""Compiled code that crashes or hangs: one line that names the kernel, which is compiled in another way."""

from __future__ import annotations

import platform
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from onnx import helper

from eqfuse.lowering.base.ports import Port
from eqfuse.lowering.base.toolchain import versions
from eqfuse.lowering.bundle.bundle import digests, write_manifest
from eqfuse.lowering.dsa.bundle.files import TILES, store_kernels
from eqfuse.lowering.kernels import compilation as kernels
from eqfuse.lowering.kernels.messages import Answer, Request
from eqfuse.lowering.kernels.pool import compile_requests
from eqfuse.lowering.plan.manifest import LIBRARY, Manifest, Platform, Provenance

from ...caches import own_cache
from ..command_line import CommandLine, Outcome

KERNEL = "#include <signal.h>\nint __tvm_ffi_NAME(void *a, void *b, int c, void *d) { BODY return 0; }"
CRASH, HANG = "raise(SIGILL);", "for (volatile int i = 0;; ++i) {}"
CRASHING_WHEN_LOADED = "#include <signal.h>\n__attribute__((constructor)) static void load(void) { raise(SIGILL); }"


def build(source: str, made: Path, *options: str) -> None:
    """Compile C code."""
    file = made.with_name("source.c")
    file.write_text(source)
    subprocess.run(["cc", "-fPIC", *options, file, "-o", made], check=True)
    file.unlink()


@pytest.fixture
def spoil(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, bool], None]:
    """Once it is called, compiled products do something else: those of any schedule, or only of the first."""
    monkeypatch.setenv("XDG_CACHE_HOME", own_cache(tmp_path / "cache"))  # no other test gets such objects

    def use(body: str, all_schedules: bool) -> None:
        def spoiled(requests: Sequence[Request], processes: int) -> Iterator[Answer]:
            answers = list(compile_requests(requests, processes))
            for request in requests:
                if "matmul" in request.name and (all_schedules or not request.without):
                    source = KERNEL.replace("NAME", request.name).replace("BODY", body)
                    build(source, Path(request.object_file), "-c")
            return iter(answers)

        monkeypatch.setattr(kernels, "compile_requests", spoiled)

    return use


def compiled(eqfuse: CommandLine, seed: int, *options: object) -> Outcome:
    """A softmax and a product, each a kernel; other seeds are other bundles in the cache."""
    nodes = [helper.make_node("Softmax", ["x"], ["s"]), helper.make_node("MatMul", ["s", "w"], ["y"])]
    eqfuse.model("in.onnx", nodes, w=[[1.0, 2.0, 3.0], [4.0, 5.0, 7.0], [7.0, 8.0, 9.0]])
    fixed = ("--threads", 1, "--partition", "none", "--seed", seed)
    return eqfuse.run("compile", "in.onnx", "-o", "build", *fixed, *options)


def test_a_kernel_that_crashes_gets_another_schedule(eqfuse: CommandLine, spoil: Callable[[str, bool], None]) -> None:
    spoil(CRASH, False)
    outcome = compiled(eqfuse, 101, "--no-measure")
    assert outcome.code == 0
    (replaced,) = (line for line in outcome.out.splitlines() if line.startswith("replaced"))
    assert re.match(r"replaced: kernel_\w{8}_matmul \(schedule: contraction\): ", replaced)
    assert replaced.endswith("): crashed (SIGILL); now without contraction")
    assert eqfuse.run("run", "build", "--random", 0).code == 0


@pytest.mark.conformance
def test_a_kernel_that_hangs_gets_another_schedule(
    eqfuse: CommandLine, spoil: Callable[[str, bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eqfuse.driver.compiler.processor.RUN_SECONDS", 20)
    monkeypatch.setattr("eqfuse.lowering.running.blame.KERNEL_SECONDS", 20)
    spoil(HANG, False)
    outcome = compiled(eqfuse, 105, "--no-measure")
    assert outcome.code == 0
    (replaced,) = (line for line in outcome.out.splitlines() if line.startswith("replaced"))
    assert re.match(r"replaced: kernel_\w{8}_matmul \(schedule: contraction\): ", replaced)
    assert replaced.endswith("): took longer than 20 s; now without contraction")


@pytest.mark.conformance
def test_onnx_runtime_gets_what_crashes_anyway(eqfuse: CommandLine, spoil: Callable[[str, bool], None]) -> None:
    spoil(CRASH, True)
    outcome = compiled(eqfuse, 102)
    assert outcome.code == 0
    assert "): crashed (SIGILL); now ONNX Runtime\n" in outcome.out
    assert eqfuse.run("run", "build", "--random", 0).code == 0


@pytest.mark.conformance
def test_the_kernel_in_which_a_model_crashes_is_named(eqfuse: CommandLine, spoil: Callable[[str, bool], None]) -> None:
    spoil(CRASH, True)
    assert compiled(eqfuse, 103, "--no-verify", "-q").code == 0
    for command in (("run", "build", "--random", 0), ("bench", "build"), ("bench", "build", "--kernels")):
        error = eqfuse.fail(1, *command)
        assert re.match(r"build: the compiled model crashed \(SIGILL\) in kernel_\w{8}_matmul; ", error)


@pytest.mark.parametrize("command", [("run", "--random", 0), ("bench",), ("bench", "--kernels")])
def test_a_model_that_crashes_ends_no_command_by_a_signal(eqfuse: CommandLine, command: tuple[object, ...]) -> None:
    folder = eqfuse.folder / "build"
    folder.mkdir()
    build(CRASHING_WHEN_LOADED, folder / LIBRARY, "-shared")
    port, origin = Port("x", "float32", (2,)), Provenance("", "0" * 64, {}, 0, "none", 1, 1, 1, "", (), False)
    here = Platform("host", platform.machine(), "", "", ())
    write_manifest(folder, Manifest((port,), (port,), here, "exact", 1, origin, (), versions(), digests(folder)))
    error = eqfuse.fail(1, command[0], "build", *command[1:])
    assert error.startswith("build: the compiled model crashed (SIGILL); compile it again")


@pytest.mark.conformance
def test_a_program_for_an_accelerator_whose_simulation_crashes_is_not_written(
    eqfuse: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crashing_kernels(folder: Path, count: int, observer: Callable[[str], None]) -> None:
        store_kernels(folder, count, observer)
        build(CRASHING_WHEN_LOADED, folder / TILES, "-shared")

    monkeypatch.setattr("eqfuse.driver.compiler.accelerator.store_kernels", crashing_kernels)
    eqfuse.chain(1)
    error = eqfuse.fail(3, "compile", "in.onnx", "--target", "dsa-edge-npu", "-o", "build", "--seed", 104)
    assert "the program does not run: crashed (SIGILL)" in error
    assert eqfuse.files() == ["in.onnx"]
