"""The back end for processors that are not this machine: kernels in a C project, verified under emulation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...lowering.base.toolchain import Tool, missing
from ...lowering.kernels import pool
from ...lowering.plan.manifest import Manifest
from ...lowering.plan.names import DEFAULT_PREFIX
from ...support.errors import VerificationError
from ...support.processor import ARM
from ...support.scratch import scratch_folder
from ..options import Options
from .compilation import Compilation
from .processor import Processor, verify_against_original

if TYPE_CHECKING:
    from ...lowering.kernels.compilation import CompiledKernels


class CrossProject(Processor):
    """Another processor, to compile a C project for."""

    def identity(self, options: Options) -> Mapping[str, Any]:
        """The target, and the missing tools, without which a bundle stays unverified."""
        return {**super().identity(options), "absent": self._missing_tools() if options.verify else ""}

    def prepare(self, options: Options) -> None:
        """Start a process that compiles kernels; the emulator starts fast."""
        pool.prepare()

    def _why_not_measured(self) -> str:
        return "the kernels are for another processor; `eqfuse bench --emulate` counts them"

    def _link(self, prepared: CompiledKernels, folder: Path) -> None:
        from ...lowering.program.planning import plan_program
        from ...lowering.program.project import Naming, write_project

        plan, weights = plan_program(prepared)
        naming = Naming(self.prefix or DEFAULT_PREFIX, self.target.architecture)
        write_project(folder, plan, weights, prepared.all_objects, naming)

    def _verdict(self, compilation: Compilation, folder: Path, manifest: Manifest, prepared: CompiledKernels) -> str:
        from ...lowering.running.emulated_model import EmulatedModel

        if self._missing_tools():
            return f"none: {self._missing_tools()}"
        with scratch_folder("emulated") as scratch:
            emulated = EmulatedModel.build(folder, manifest, self.target, Path(scratch))
            verification, _ = verify_against_original(compilation, emulated, stress=False)
        if verification.status == "failed":
            raise VerificationError(
                f"{compilation.model.label}: the compiled model differs from the original: {verification.summary}; "
                "nothing was written; compile it for the host to see where it is wrong"
            )
        return f"{verification.summary} (emulated)"

    def _missing_tools(self) -> str:
        """The tools that are missing to build and emulate a C project, in one line; "" if all are there."""
        if self.target.architecture != ARM:
            return f"there is no emulator for {self.target.architecture}; run its example there"
        return missing(Tool.CROSS_COMPILER, Tool.EMULATOR)
