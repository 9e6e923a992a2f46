"""A compiled C project, run under emulation as if this machine were the target: to verify it and to count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...support.errors import UsageError
from ...support.processes.program import ToolError
from ...support.processor import ARM
from ...support.scratch import scratch_folder
from ..arm.counts import ModelCounts
from ..arm.emulate import count_example, run_example
from ..base.ports import Port
from ..base.target import Target, target_of
from ..base.toolchain import EMULATION_SECONDS, Tool, missing
from ..bundle.bundle import read_whole_bundle
from ..bundle.loaded import Array, fit_input
from ..plan.manifest import PLAN, Manifest
from ..plan.names import EXAMPLE
from ..plan.plan import Plan
from ..program.project import build_example


@dataclass(frozen=True)
class EmulatedModel:
    """The example program of a C project. Each run starts it anew."""

    manifest: Manifest
    target: Target
    plan: Plan
    executable: Path

    @staticmethod
    def build(
        folder: Path, manifest: Manifest, target: Target, scratch: Path, *, counting: bool = False
    ) -> EmulatedModel:
        """Cross-compile the project in `folder` to a program in `scratch`, one that `count` takes if so asked.

        Raises ToolError.
        """
        executable = scratch / EXAMPLE
        build_example(folder, executable, target.device, emulation=counting)
        plan = Plan.from_json((folder / PLAN).read_text(encoding="utf-8"))
        return EmulatedModel(manifest, target, plan, executable)

    @property
    def inputs(self) -> tuple[Port, ...]:
        """The inputs to give."""
        return self.manifest.inputs

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Run once, with names in and out. Raises UsageError if an input does not fit, ToolError."""
        results = run_example(self.executable, self.plan, self._fit(inputs), self.target.device)
        return {port.name: result for port, result in zip(self.manifest.outputs, results, strict=True)}

    def count(self, inputs: Mapping[str, Any], seconds: float = EMULATION_SECONDS) -> ModelCounts:
        """Counts of the second inference of a run, on one core, that may take that many seconds here.

        Raises UsageError as `run` does, ToolError.
        """
        return count_example(self.executable, self.plan, self._fit(inputs), self.target.device, seconds=seconds)

    def _fit(self, inputs: Mapping[str, Any]) -> list[Array]:
        return [fit_input(port, inputs[port.name]) for port in self.inputs]


@contextmanager
def open_emulated(folder: Path) -> Iterator[EmulatedModel]:
    """The C project of a bundle, built to be counted.

    Raises BundleError if the folder is no whole bundle, UsageError if it is one for this machine, ToolError.
    """
    manifest = read_whole_bundle(folder)
    if manifest.library != PLAN:
        raise UsageError(
            f"{folder}: was compiled for {manifest.platform.name}, which needs no emulation; "
            "compile the model with --target arm-cortex-a76 or another Arm device"
        )
    if manifest.platform.architecture != ARM:
        name = manifest.platform.name
        raise UsageError(f"{folder}: is a C project for {name}, and only those for 64-bit Arm are counted")
    absent = missing(Tool.CROSS_COMPILER, Tool.COUNTING_EMULATOR, Tool.HOST_COMPILER)
    if absent:
        raise ToolError(absent)
    with scratch_folder("emulated") as scratch:
        target = target_of(manifest.platform.name, manifest.threads)
        yield EmulatedModel.build(folder, manifest, target, Path(scratch), counting=True)
