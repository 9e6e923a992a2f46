"""A compiled C project, run under emulation as if this machine were the target: for verification."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .arm.emulate import run_example
from .arm.plan import Plan
from .arm.project import EXAMPLE, build_example
from .interface import Port
from .kernels import Array
from .manifest import PLAN, Manifest
from .target import Target


@dataclass(frozen=True)
class EmulatedModel:
    """The example program of a C project. Each run starts it anew."""

    manifest: Manifest
    target: Target
    plan: Plan
    executable: Path

    @staticmethod
    def build(folder: Path, manifest: Manifest, target: Target, scratch: Path) -> EmulatedModel:
        """Cross-compile the project in `folder` to a program in `scratch`. Raises ToolError."""
        executable = scratch / EXAMPLE
        build_example(folder, executable, target.device)
        plan = Plan.from_json((folder / PLAN).read_text(encoding="utf-8"))
        return EmulatedModel(manifest, target, plan, executable)

    @property
    def inputs(self) -> tuple[Port, ...]:
        """What to give."""
        return self.manifest.inputs

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Run once, with names in and out. Raises ToolError."""
        given = [inputs[port.name] for port in self.inputs]
        results = run_example(self.executable, self.plan, given, self.target.device)
        return {port.name: result for port, result in zip(self.manifest.outputs, results, strict=True)}
