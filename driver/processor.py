"""The back end for processors: kernels, linked to a library that this machine loads."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import VerificationError
from ..lowering.bundle import bundle, isolation
from ..lowering.bundle.manifest import LIBRARY, PLAN, FallbackEntry, Manifest, Platform
from ..lowering.errors import CrashError, WrongKernelsError
from ..lowering.interface import outputs_of
from ..lowering.kernels.fallback import FOLDER, store
from ..lowering.target import Target, check_runs_here
from ..lowering.weights import Weights
from ..support.processor import available_cores
from ..support.scratch import scratch_folder
from .compilation import Built, Compilation, kernels_of
from .optimize import Result
from .options import Options

if TYPE_CHECKING:
    from ..engine.verification import Verification
    from ..lowering.bundle.check import Runnable
    from ..lowering.kernels.compilation import CompiledKernels
    from ..lowering.schedules.decisions import Decisions
    from ..lowering.tuning.settings import Settings

RUN_SECONDS = 600.0
"""Seconds of one run of a newly compiled model after which a kernel is assumed to hang."""
_RUNS = 4
"""Runs that share the time limit of verification: two are compared, and more find the kernel that hangs."""
Runs = TypeVar("Runs", bound="Runnable")


@dataclass(frozen=True)
class Cut:
    """Kernels of the optimised graph, in running order, and the decisions of their schedules, by task."""

    kernels: tuple[tuple[int, ...], ...]
    decisions: Mapping[str, Decisions]


@dataclass(frozen=True)
class Processor:
    """A processor to compile for."""

    target: Target

    def identity(self, options: Options) -> Mapping[str, Any]:
        """The target, with the instruction sets that its code may use."""
        return {"target": self.target}

    def check(self, options: Options) -> None:
        """Raises EqfuseError for a target whose library this machine could not verify, and for what TVM lacks."""
        if options.verify:
            check_runs_here(self.target)

    def check_search(self, tuning: Settings) -> None:
        """Raise EqfuseError for what a search for schedules lacks."""
        from ..lowering.tuning.laboratory import check_laboratory

        check_runs_here(self.target)
        check_laboratory(self.target, tuning)

    def prepare(self, options: Options) -> None:
        """Start the process that the compiled model is verified in."""
        if options.verify:
            isolation.prepare()

    def build(self, compilation: Compilation, result: Result, folder: Path, cut: Cut | None = None) -> Built:
        """A whole bundle in an empty folder. Kernels that are wrong are compiled again, by the plainest schedule.

        It has the kernels and decisions of the `cut`, by default those of the device model.
        """
        try:
            return self._attempt(compilation, result, folder, {}, cut)
        except WrongKernelsError as wrong:
            shutil.rmtree(folder)
            folder.mkdir()
            return self._attempt(compilation, result, folder, wrong.kernels, cut)

    def _attempt(
        self, compilation: Compilation, result: Result, folder: Path, wrong: Mapping[str, str], cut: Cut | None
    ) -> Built:
        """Build the bundle once; the kernels that were `wrong` get the plainest schedule."""
        with compilation.clock.phase("compile"):
            prepared = self._lower(compilation, result, folder, wrong, cut)
        manifest = self._manifest(compilation, result, prepared, folder, wrong)
        bundle.write_manifest(folder, manifest)
        if compilation.options.verify:
            with compilation.clock.phase("verify"):
                verdict = self._verdict(compilation, folder, manifest, prepared)
            manifest = replace(manifest, provenance=replace(manifest.provenance, verification=verdict))
            bundle.write_manifest(folder, manifest)
        return Built(manifest, {name: answer.seconds for name, answer in prepared.answers.items()})

    def _lower(
        self, compilation: Compilation, result: Result, folder: Path, plain: Mapping[str, str], cut: Cut | None
    ) -> CompiledKernels:
        """The kernels, linked, and what they need besides."""
        from ..lowering.kernels.compilation import compile_kernels, join_kernels

        clock = compilation.clock
        graph, kernels = kernels_of(result)
        weights = Weights(result.rewritten.model)
        if cut is not None:
            kernels = cut.kernels
        elif compilation.options.intensive and result.partition is not None:
            kernels = join_kernels(graph, kernels, weights, self.target)
        with scratch_folder("kernels") as scratch:
            prepared = compile_kernels(
                graph, kernels, weights, self.target, Path(scratch), available_cores(),
                lambda line: clock.tell("compile", line), plain, cut.decisions if cut is not None else {},
            )  # fmt: skip
            clock.tell("compile", "linking")
            self._link(prepared, folder)
        store(prepared.fallbacks, folder)
        return prepared

    def _link(self, prepared: CompiledKernels, folder: Path) -> None:
        from ..lowering.module import link

        link(prepared, self.target, folder / LIBRARY)

    def _verdict(self, compilation: Compilation, folder: Path, manifest: Manifest, prepared: CompiledKernels) -> str:
        """Verify the bundle; the verdict in one line. Raises VerificationError where it differs from the original."""
        from ..lowering.running.isolated_model import IsolatedModel

        label = compilation.model.label
        try:
            limit = min(RUN_SECONDS, compilation.options.verify_limit / _RUNS)
            compiled = IsolatedModel(folder, self.target.threads, limit)
        except CrashError as error:
            raise VerificationError(
                f"{label}: the compiled model cannot be loaded, it {error}; nothing was written"
            ) from None
        verification, left = verify_against_original(compilation, compiled, bold=True)
        if verification.status == "failed":
            compilation.clock.tell("verify", "looking for the kernel that is wrong")
            message = f"{label}: the compiled model differs from the original: {verification.summary}"
            raise self._explain_failure(message, prepared, folder, left.crashed_in)
        coverage = verification.coverage
        return verification.summary + (f"; seen from one side only: {coverage}" if coverage else "")

    def _explain_failure(
        self, message: str, prepared: CompiledKernels, folder: Path, crashed_in: str
    ) -> VerificationError:
        """The error, with the kernels that are to blame: this machine can run them one by one."""
        from ..lowering.running.blame import suspects

        blamed = suspects(prepared, folder / LIBRARY, self.target.threads, crashed_in)
        wrong = {suspect.symbol: str(suspect) for suspect in blamed}
        if not wrong:
            hint = "each kernel by itself is right, so it may be a rule: `eqfuse bisect` finds it"
            return VerificationError(f"{message}; {hint}; nothing was written")
        first = next(iter(wrong.values()))
        text = f"{message}; {len(wrong)} kernel(s) are wrong, the first is {first}; nothing was written"
        return WrongKernelsError(text, wrong)

    def _manifest(
        self,
        compilation: Compilation,
        result: Result,
        prepared: CompiledKernels,
        folder: Path,
        wrong: Mapping[str, str],
    ) -> Manifest:
        target = self.target
        return Manifest(
            inputs=compilation.ports,
            outputs=outputs_of(prepared.weights.model, prepared.graph),
            platform=Platform(target.name, target.architecture, target.triple, target.cpu, target.features),
            precision=compilation.options.precision,
            threads=target.threads,
            provenance=compilation.provenance(
                result,
                kernels=len(prepared.calls) + len(prepared.fallbacks),
                distinct=len({call.symbol for call in prepared.calls}),
                replaced=(*wrong.values(), *prepared.recovered),
            ),
            fallbacks=tuple(
                FallbackEntry(f"{FOLDER}/{number}.onnx", entry.operators, entry.reason)
                for number, entry in enumerate(prepared.fallbacks)
            ),
            versions=bundle.versions(),
            files=bundle.digests(folder),
            library=LIBRARY if target.is_library else PLAN,
        )


def verify_against_original(compilation: Compilation, compiled: Runs, *, bold: bool) -> tuple[Verification, Runs]:
    """Compare a compiled model with the original; the verdict, and the compiled model as the runs left it.

    `bold`: inputs beside those that operators are meant for are drawn, too.
    """
    from ..engine.verification import require_comparison, require_verdict
    from ..lowering.bundle.check import Tolerated, verify_compiled

    options, model = compilation.options, compilation.model
    original = model.source
    tolerated = Tolerated(
        options.atol, options.rtol, options.seed, compilation.samples,
        bold=bold, may_overflow=options.precision == "fast",
    )  # fmt: skip
    with require_verdict(model.label):
        verification, left = verify_compiled(original, compiled, tolerated, options.verify_limit)
        return require_comparison(verification), left
