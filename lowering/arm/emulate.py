"""Running a built example under QEMU: for its outputs, and on the emulated board for its counts."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...costmodels.device import Cache, Device
from ...support.errors import UsageError
from ...support.files import cache_folder
from ...support.processes.program import ToolError, run_program
from ...support.processor import CORTEX_M
from ...support.scratch import scratch_folder, staging_folder
from ..base.toolchain import EMULATION_SECONDS, LIBRARIES, Tool, compile_there, emulate, find
from ..plan.names import EXAMPLE
from ..plan.plan import Plan
from .counts import Counts, ModelCounts, by_call, parse_report

PLUGIN = Path(__file__).parent / "plugin"
REFUSED = 3
"""The program's exit code if the model refuses the shapes of the inputs."""
NEWEST_QEMU = 8
"""The last major version of QEMU whose plugins have version 1 of the interface."""
NEWEST_PROCESSOR = "max,sve=off"
"""QEMU's name for a processor with every extension: stands for the ones it has no model of."""
BASELINE_PROCESSOR = "cortex-a53"
"""QEMU's name for a processor with nothing but Armv8.0-A."""
_BOARD = ("-M", "mps3-an547", "-display", "none", "-serial", "none", "-monitor", "none")
"""QEMU's board with a Cortex-M55, whose memory board.ld knows."""
_ANSWER_SECONDS = 60.0
"""Seconds that QEMU may take to list its processors."""
WITHOUT_DC_ZVA = "GLIBC_TUNABLES=glibc.cpu.name=kunpeng920"
"""QEMU does not tell plugins what the instruction DC ZVA writes; this processor's memset does not use it."""


def run_example(
    executable: Path, plan: Plan, inputs: Sequence[NDArray[np.generic]], device: Device
) -> list[NDArray[np.generic]]:
    """The model's outputs for these inputs, both in the plan's order.

    Raises UsageError if the model refuses the shapes of the inputs, ToolError if the example fails, as it does on
    an instruction that the device does not have.
    """
    with scratch_folder("arm") as scratch:
        folder = Path(scratch)
        arguments = _prepare(folder, executable, plan, inputs, 1)
        if device.mtriple.startswith(CORTEX_M):
            options = [*_BOARD, "-semihosting-config", _semihosting(arguments), "-kernel", arguments[0]]
            command: list[str | Path] = [find(Tool.BARE_EMULATOR), *options]
        else:
            emulator = find(Tool.EMULATOR)
            command = [emulator, "-cpu", processor_of(emulator, device), *arguments]
        try:
            emulate(command, folder)
        except ToolError as error:
            raise UsageError(error.complaint) if error.status == REFUSED else error from None
        return [np.load(folder / name) for name in _outputs(plan)]


def count_example(
    executable: Path,
    plan: Plan,
    inputs: Sequence[NDArray[np.generic]],
    device: Device,
    *,
    warm: bool = True,
    seconds: float = EMULATION_SECONDS,
) -> ModelCounts:
    """What one inference executes on the emulated board, with the caches of the device file.

    The same executable and inputs give the same counts, on any machine. The counted inference is the second one, so
    the caches hold what the first one left; with `warm` off it is the first one. The run may take that many `seconds`.
    `executable` is of `build_example(..., emulation=True)`. Raises ToolError if a tool is missing or fails.
    """
    with scratch_folder("arm") as scratch:
        folder = Path(scratch)
        arguments = _prepare(folder, executable, plan, inputs, 2 if warm else 1)
        processor = processor_of(find_counting_emulator(), device)
        return by_call(count_regions(arguments, folder, device.caches, processor, seconds=seconds), plan)


def count_regions(
    command: Sequence[str],
    folder: Path,
    caches: Sequence[Cache],
    processor: str = NEWEST_PROCESSOR,
    libraries: Path = LIBRARIES,
    variables: Sequence[str] = (),
    seconds: float = EMULATION_SECONDS,
) -> dict[int, Counts]:
    """Run a program for 64-bit Arm, with its arguments, in `folder`; the counts of the regions it marks, and 0.

    `command` should be of paths relative to `folder`: it lies on the stack, above everything else there.
    `processor` is QEMU's name for it; `libraries` is where the program finds its files before it looks at this
    machine's; `variables` are NAME=VALUE. Raises ToolError if a tool is missing, too new, or the program fails or takes
    longer than `seconds`.
    """
    emulator, plugin = find_counting_emulator(), build_plugin()
    shutil.copyfile(plugin, folder / "counts.so")
    options = "".join(f",cache={cache.size}:{cache.ways}:{cache.line}" for cache in caches)
    environment = [word for variable in (WITHOUT_DC_ZVA, *variables) for word in ("-E", variable)]
    machine = ["-cpu", processor, "-seed", "1", "-L", str(libraries), *environment]
    emulate([emulator, *machine, "-plugin", f"./counts.so,out=report{options}", *command], folder, seconds=seconds)
    report = folder / "report"
    return parse_report(report.read_text(encoding="utf-8") if report.exists() else "")


def find_counting_emulator() -> Path:
    """The qemu-aarch64 that takes plugins. Raises ToolError if there is none or if it is too new."""
    emulator = find(Tool.COUNTING_EMULATOR)
    answer = emulate([emulator, "--version"], Path.cwd())
    version = re.search(r"version (\d+)\.(\d+)", answer)
    if version and int(version[1]) > NEWEST_QEMU:
        raise ToolError(f"{emulator}: is QEMU {version[1]}.{version[2]}; the counting plugin needs QEMU 6 to 8")
    return emulator


def build_plugin() -> Path:
    """The counting plugin in the user's cache folder, compiled on first use. Raises ToolError without a compiler."""
    sources = sorted(PLUGIN.glob("*.[ch]"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    built = cache_folder() / f"eqfuse_counts-{digest}.so"
    if built.exists():
        return built
    try:
        built.parent.mkdir(parents=True, exist_ok=True)
        with staging_folder(built) as folder:
            source = PLUGIN / "eqfuse_counts.c"
            options = ["-O2", "-Wall", "-shared", "-fPIC"]
            compile_there([find(Tool.HOST_COMPILER), *options, source, "-o", built.name], folder)
            os.replace(folder / built.name, built)
    except OSError as error:
        raise ToolError(f"{built.parent}: cannot be written: {error.strerror or error}; set XDG_CACHE_HOME") from None
    return built


def processor_of(emulator: Path, device: Device) -> str:
    """QEMU's name for the device's processor, which mostly is LLVM's."""
    if device.mcpu in ("", "generic"):
        return BASELINE_PROCESSOR
    known = run_program([emulator, "-cpu", "help"], _ANSWER_SECONDS, may_fail=True)  # it ends with exit code 1
    return device.mcpu if device.mcpu in known.split() else NEWEST_PROCESSOR


def _prepare(
    folder: Path, executable: Path, plan: Plan, inputs: Sequence[NDArray[np.generic]], repeat: int
) -> list[str]:
    """Put the executable and its inputs into the folder; the command that runs it there."""
    shutil.copy(executable, folder / EXAMPLE)
    for i, array in enumerate(inputs):
        np.save(folder / f"in{i}.npy", np.asarray(array, order="C"))
    files = [*(f"in{i}.npy" for i in range(len(inputs))), *_outputs(plan)]
    return [f"./{EXAMPLE}", *files, "--repeat", str(repeat)]


def _semihosting(arguments: Sequence[str]) -> str:
    """The value of QEMU's option by which a program without an operating system gets arguments and files."""
    return ",".join(("enable=on", "target=native", *(f"arg={argument}" for argument in arguments)))


def _outputs(plan: Plan) -> list[str]:
    return [f"out{i}.npy" for i in range(len(plan.outputs))]


PROGRAM = Path(__file__).with_name("peer_program.py")
REGION = 1
"""The number of the region that `PROGRAM` marks one inference with."""
_PYTHON = Path("usr/bin/python3")
_PACKAGES = Path("usr/lib/python3/dist-packages")
_SAME_EVERY_TIME = ("PYTHONHASHSEED=0", "PYTHONDONTWRITEBYTECODE=1")


@dataclass(frozen=True)
class Arm64Root:
    """A folder with Python and ONNX Runtime for 64-bit Arm, as ``benchmarks/arm64_root.sh`` makes it."""

    path: Path
    version: str

    @staticmethod
    def at(path: Path) -> Arm64Root:
        """The root in that folder. Raises ToolError if there is none."""
        releases = sorted((path / _PACKAGES).glob("onnxruntime-*.dist-info"))
        if not releases or not (path / _PYTHON).exists():
            raise ToolError(f"{path}: has no Python with ONNX Runtime for arm64; benchmarks/arm64_root.sh makes a root")
        return Arm64Root(path, releases[-1].name.removeprefix("onnxruntime-").removesuffix(".dist-info"))

    def count(
        self,
        model: Path,
        inputs: Mapping[str, NDArray[np.generic]],
        device: Device,
        seconds: float = EMULATION_SECONDS,
    ) -> Counts:
        """What ONNX Runtime executes for one inference, on one thread, all its optimisations on: the third of a run.

        The same root, model and inputs give the same counts. The call from Python is part of them, some ten thousand
        instructions. Raises ToolError if a tool is missing or the model cannot be run, or not within `seconds`.
        """
        processor = processor_of(find_counting_emulator(), device)
        with scratch_folder("peer") as scratch:
            folder = Path(scratch)
            # Links keep the command, which lies on the stack, the same wherever root and model are.
            (folder / "root").symlink_to(self.path.absolute())
            (folder / "model").symlink_to(model.absolute().parent)
            shutil.copyfile(PROGRAM, folder / PROGRAM.name)
            np.savez(folder / "inputs.npz", allow_pickle=False, **dict(inputs))
            command = [f"root/{_PYTHON}", PROGRAM.name, f"model/{model.name}", "inputs.npz"]
            regions = count_regions(command, folder, device.caches, processor, Path("root"), _SAME_EVERY_TIME, seconds)
        if REGION not in regions:
            raise ToolError(f"{model}: ONNX Runtime marked no inference under emulation")
        return regions[REGION]
