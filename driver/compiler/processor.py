"""The back ends for processors: kernels, linked to a library that this machine loads, or in a C project for another."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ...engine.onnx.model import Model
from ...engine.preparation.batches import find_batches
from ...extract.partition.groups import Partition
from ...extract.partition.search.confirmation import Confirm
from ...extract.partition.templates.operator_set import Members
from ...ir.graph import OperatorGraph
from ...lowering.base.errors import CrashError, WrongKernelsError
from ...lowering.base.interface import outputs_of
from ...lowering.base.linking import Linker
from ...lowering.base.ports import random_inputs
from ...lowering.base.target import Target, check_runs_here
from ...lowering.base.toolchain import missing, tools_for, versions
from ...lowering.base.weights import Weights
from ...lowering.bundle import bundle, isolation
from ...lowering.bundle.isolation import call_isolated
from ...lowering.kernels import pool
from ...lowering.kernels.map_copies import copy_maps, is_copy
from ...lowering.kernels.variants import KernelPartition
from ...lowering.plan.manifest import LIBRARY, PLAN, FallbackEntry, Manifest, MeasurementSummary, Platform, SizeSummary
from ...lowering.plan.names import DEFAULT_PREFIX
from ...support.custom_operators import list_libraries
from ...support.deadlines import seconds_left
from ...support.errors import VerificationError
from ...support.processor import ARM, available_cores
from ...support.scratch import scratch_folder
from ..optimize import Result
from ..options import Options
from .compilation import Built, Compilation
from .kernel_choice import Attempt, Memory, choose_kernels

if TYPE_CHECKING:
    from ...engine.verification import Verification
    from ...lowering.bundle.check import Runnable
    from ...lowering.kernels.compilation import CompiledKernels
    from ...lowering.kernels.prim_funcs import LoweredKernels
    from ...lowering.running.kernel_times import CallTime
    from ...lowering.tuning.settings import Settings

RUN_SECONDS = 600.0
"""Seconds of one run of a newly compiled model after which a kernel is assumed to hang."""
TIMING_SECONDS = 0.25
"""Seconds for which bundles are run in turns to time their kernels, unless five runs of each take longer."""
TIMING_ROUNDS = 25
"""The most runs of each: with more, the distance of a kernel from its estimate is not known better."""
_RUNS = 4
"""Runs that share the time limit of verification: two are compared, and more find the kernel that hangs."""
Runs = TypeVar("Runs", bound="Runnable")


@dataclass(frozen=True)
class ProcessorKernels:
    """The lowering for a processor: kernels apart from views, several anchor ops in one if a rule fits them."""

    target: Target

    @property
    def threads(self) -> int:
        """The threads that a kernel runs on."""
        return self.target.threads

    @property
    def views_apart(self) -> bool:
        """Whether a view is a step between kernels, which moves nothing."""
        return True

    def list_alone(self, graph: OperatorGraph) -> Collection[int]:
        """The operators that have no lowering."""
        from ...lowering.compute import has_lowering  # which imports TVM

        return [index for index, operator in enumerate(graph.operators) if not has_lowering(operator, graph.at_call)]

    def confirm(self, model: Model) -> Confirm:
        """The test whether the schedule rules fit kernels of a model's graph."""
        weights = Weights(model)
        answers: dict[tuple[str, str], bool] = {}

        def list_refused(partition: Partition, kernels: Mapping[Members, str]) -> Collection[Members]:
            if not kernels:
                return ()
            from ...lowering.kernels.prim_funcs import DistinctKernels, ScheduleCheck

            graph, groups = copy_maps(partition.graph.at_call, partition.members)
            lowered = (group for group in groups if not is_copy(graph.operators[group[0]]))
            as_lowered = dict(zip(partition.members, lowered, strict=True))
            fits = ScheduleCheck(DistinctKernels.of(graph, groups, weights), self.target, answers)
            return [members for members, rule in kernels.items() if not fits(as_lowered[members], rule)]

        return list_refused


@dataclass(frozen=True)
class Processor:
    """A processor to compile for; with `measure`, kernels are timed, and slow ones compiled in another way.

    With a `prefix` the result is a C project, whose names begin so, instead of a library that Python loads.
    """

    target: Target
    measure: bool = True
    prefix: str | None = None

    @property
    def lowering(self) -> ProcessorKernels:
        """Its answers to the partition: which kernels it can make, and which operators stay alone."""
        return ProcessorKernels(self.target)

    def identity(self, options: Options) -> Mapping[str, Any]:
        """The target, with the instruction sets that its code may use."""
        return {"target": self.target, "measure": self.measure, "prefix": self.prefix}

    def check(self, compilation: Compilation) -> None:
        """Raises EqfuseError for a target whose library this machine could not verify, or for tools that TVM lacks."""
        if compilation.options.verify:
            check_runs_here(self.target)

    def check_search(self, tuning: Settings) -> None:
        """Raise EqfuseError if a search for schedules lacks something."""
        from ...lowering.tuning.measurement_setup import check_setup

        check_runs_here(self.target)
        check_setup(self.target, tuning)

    def prepare(self, options: Options) -> None:
        """Start a process that compiles kernels, and one in which the compiled model is verified and timed."""
        pool.prepare()
        if options.verify or self.measure:
            isolation.prepare()

    def build(
        self, compilation: Compilation, result: Result, folder: Path, partition: KernelPartition | None = None
    ) -> Built:
        """A whole bundle in an empty folder. Kernels that are wrong, or measure slow, are compiled in another way.

        It has the kernels and decisions of the `partition`, by default those of the device model.
        """
        clock, options = compilation.clock, compilation.options
        with scratch_folder("attempts") as scratch:
            builder = ProcessorBundleBuilder(self, compilation, result, Path(scratch))
            with clock.phase("compile"):
                base = builder.build(partition or builder.first_partition(), folder)
            wrong: Mapping[str, str] = {}
            verdict = ""
            try:
                verdict = self._verify(compilation, base)
            except WrongKernelsError as error:
                wrong = error.kernels
            attempt, summary = base, MeasurementSummary(0, 0.0, problem=self._why_not_measured())
            if wrong or not summary.problem:
                with clock.phase("measure"):
                    name, threads = self.target.device.name, self.target.threads
                    memory = None if summary.problem else Memory.of(name, threads, builder.tell)
                    attempt, summary = choose_kernels(builder, base, wrong, memory, checks=options.verify)
            try:
                attempt, verdict, summary = self._accept(compilation, base, attempt, verdict, summary)
            except VerificationError as error:
                if not wrong or summary.problem:
                    raise
                attempt, mended = choose_kernels(builder, base, wrong, None, checks=options.verify)
                verdict = self._verify(compilation, attempt)
                summary = replace(mended, problem=str(error))
            if attempt.folder != folder:
                shutil.rmtree(folder)
                shutil.copytree(attempt.folder, folder)
        if summary.timed:
            from ...lowering.kernels.table import write_table

            write_table(attempt.prepared, attempt.facts, folder)
        manifest = self.manifest(compilation, result, attempt.prepared, folder, summary, verdict)
        bundle.write_manifest(folder, manifest)
        answers = {**attempt.prepared.answers, **base.prepared.answers}
        return Built(manifest, {name: answer.seconds for name, answer in answers.items()}, attempt.partition)

    def finish(self, manifest: Manifest, folder: Path) -> Manifest:
        """The manifest of a bundle to be published: a C project is published without the library that verified it."""
        if self.prefix is None or manifest.library == PLAN:
            return manifest
        (folder / LIBRARY).unlink()
        finished = replace(manifest, library=PLAN, files=bundle.digests(folder))
        bundle.write_manifest(folder, finished)
        return finished

    def _accept(
        self, compilation: Compilation, base: Attempt, attempt: Attempt, verdict: str, summary: MeasurementSummary
    ) -> tuple[Attempt, str, MeasurementSummary]:
        """The attempt and its verdict, or the base if that is right and the attempt is wrong.

        Raises VerificationError if both are wrong.
        """
        if attempt.folder == base.folder:
            return attempt, verdict, summary
        try:
            return attempt, self._verify(compilation, attempt), summary
        except VerificationError as error:
            if not verdict:
                raise
            kept = tuple(replace(kernel, chosen="") for kernel in summary.kernels)
            return base, verdict, replace(summary, kernels=kept, problem=str(error))

    def _why_not_measured(self) -> str:
        """Why kernels are not measured; empty if they are."""
        return "" if self.measure else "--no-measure"

    def lower(
        self,
        compilation: Compilation,
        graph: OperatorGraph,
        weights: Weights,
        partition: KernelPartition,
        folder: Path,
        lowered: LoweredKernels,
    ) -> CompiledKernels:
        """The kernels of a partition, linked in a folder, and the data that they need."""
        from ...lowering.kernels.compilation import SpecialKernels, compile_kernels
        from ...lowering.kernels.fallback import store
        from ...lowering.kernels.table import kernel_facts, write_table

        clock = compilation.clock
        with scratch_folder("kernels") as scratch:

            def compile_at(sizes: Mapping[str, int], alike: CompiledKernels | None = None) -> CompiledKernels:
                folder_at = Path(scratch) / "_".join(map(str, sizes.values()))
                folder_at.mkdir(exist_ok=True)
                return compile_kernels(
                    graph.at_sizes(sizes), partition.kernels, weights, self.target, folder_at, available_cores(),
                    lambda line: clock.tell("compile", line), partition.choices, None if sizes else lowered, alike,
                )  # fmt: skip

            prepared = compile_at({})
            listed = compilation.options.sizes.list_special(graph, compilation.free)
            special = (SpecialKernels(sizes, compile_at(sizes, prepared)) for sizes in listed)
            prepared = replace(prepared, special=tuple(special))
            clock.tell("compile", "linking")
            self._link(prepared, folder)
        write_table(prepared, kernel_facts(prepared, self.target), folder)
        store(prepared.fallbacks, folder)
        return prepared

    def _link(self, prepared: CompiledKernels, folder: Path) -> None:
        from ...lowering.program.planning import plan_program
        from ...lowering.program.project import Naming, write_library, write_project

        plan, weights = plan_program(prepared)
        objects, architecture = prepared.all_objects, self.target.architecture
        write_library(folder / LIBRARY, plan, weights, objects, Linker.of(architecture))
        if self.prefix is not None:
            write_project(folder, plan, weights, objects, Naming(self.prefix, architecture))

    def _verify(self, compilation: Compilation, attempt: Attempt) -> str:
        """The verdict in one line; "" if none is asked for. Raises VerificationError if the bundle is wrong."""
        if not compilation.options.verify:
            return ""
        with compilation.clock.phase("verify"):
            return self._verdict(compilation, attempt.folder, bundle.read_manifest(attempt.folder), attempt.prepared)

    def _verdict(self, compilation: Compilation, folder: Path, manifest: Manifest, prepared: CompiledKernels) -> str:
        """Verify the bundle; the verdict in one line. Raises VerificationError if it differs from the original."""
        from ...lowering.running.isolated_model import IsolatedModel

        label = compilation.model.label
        try:
            limit = min(RUN_SECONDS, compilation.options.verification_seconds / _RUNS)
            compiled = IsolatedModel(folder, self.target.threads, limit)
        except CrashError as error:
            raise VerificationError(
                f"{label}: the compiled model cannot be loaded, it {error}; nothing was written"
            ) from None
        verification, left = verify_against_original(
            compilation, compiled, stress=True, graph=prepared.graph, special=[s.sizes for s in prepared.special],
            rewritten=prepared.weights.model,
        )  # fmt: skip
        if verification.status == "failed":
            compilation.clock.tell("verify", "looking for the kernel that is wrong")
            message = f"{label}: the compiled model differs from the original: {verification.summary}"
            raise self._explain_failure(message, prepared, folder, left.crashed_in)
        coverage = verification.coverage
        return verification.summary + (f"; branches not covered: {coverage}" if coverage else "")

    def _explain_failure(
        self, message: str, prepared: CompiledKernels, folder: Path, crashed_in: str
    ) -> VerificationError:
        """The error, with the kernels that are to blame: this machine can run them one by one."""
        from ...lowering.running.blame import suspects

        blamed = suspects(prepared, folder / LIBRARY, self.target.threads, crashed_in)
        wrong = {suspect.symbol: str(suspect) for suspect in blamed}
        if not wrong:
            hint = "each kernel by itself is right, so it may be a rule: `eqfuse bisect` finds it"
            return VerificationError(f"{message}; {hint}; nothing was written")
        first = next(iter(wrong.values()))
        text = f"{message}; {len(wrong)} kernel(s) are wrong, the first is {first}; nothing was written"
        return WrongKernelsError(text, wrong)

    def manifest(
        self,
        compilation: Compilation,
        result: Result,
        prepared: CompiledKernels,
        folder: Path,
        summary: MeasurementSummary | None = None,
        verdict: str = "",
    ) -> Manifest:
        """The manifest of a folder that is otherwise complete."""
        from ...lowering.kernels.fallback import FOLDER
        from ...lowering.kernels.table import step_facts

        target, steps = self.target, list(step_facts(prepared))
        kinds = Counter(step.kind for step in steps)
        mended = (f"{k.problem}; now {k.chosen}" for k in (summary.kernels if summary else ()) if k.problem)
        provenance = compilation.provenance(
            result,
            kernels=kinds["kernel"] + kinds["loops"] + kinds["fallback"],
            distinct=len({step.symbol for step in steps if step.kind == "kernel"}),
            copies=kinds["copy"],
            replaced=(*mended, *prepared.recovered),
        )
        return Manifest(
            inputs=compilation.ports,
            outputs=outputs_of(prepared.weights, prepared.graph),
            platform=Platform(target.name, target.architecture, target.triple, target.cpu, target.features),
            precision=compilation.options.precision,
            threads=target.threads,
            provenance=replace(provenance, verification=verdict),
            fallbacks=tuple(
                FallbackEntry(f"{FOLDER}/{number}.onnx", entry.operators, entry.reason)
                for number, entry in enumerate(prepared.fallbacks)
            ),
            versions=versions(),
            files=bundle.digests(folder),
            library=LIBRARY if target.is_library else PLAN,
            measurement=summary,
            sizes=_describe_sizes(compilation, prepared),
            custom_ops=list_libraries() if prepared.fallbacks else (),
        )


def _describe_sizes(compilation: Compilation, prepared: CompiledKernels) -> SizeSummary | None:
    """The sizes of the bundle's kernels; None if no dimension is dynamic."""
    if not compilation.free:
        return None
    typical = {name: prepared.graph.sizes[name] for name in compilation.free}
    special = tuple(each.sizes for each in prepared.special)
    return SizeSummary(typical, special, find_batches(compilation.model))


@dataclass
class ProcessorBundleBuilder:
    """Builds, measures and checks bundles of one compilation, all but the first in a scratch folder.

    To time their kernels, bundles run in turns for about `seconds`, at most `rounds` times.
    """

    processor: Processor
    compilation: Compilation
    result: Result
    scratch: Path
    seconds: float = TIMING_SECONDS
    rounds: int = TIMING_ROUNDS
    _count: int = 0

    def __post_init__(self) -> None:
        self._weights = Weights(self.result.rewritten.model, self.compilation.clock.deadline)
        self._graph, self._kernels = self.compilation.kernels_of(self.result)
        self._lowered: LoweredKernels = {}

    def first_partition(self) -> KernelPartition:
        """The kernels of the partition."""
        return KernelPartition(self._kernels)

    def build(self, partition: KernelPartition, folder: Path | None = None) -> Attempt:
        """A bundle of a partition, by default in a folder of its own."""
        from ...lowering.kernels.table import kernel_facts

        if folder is None:
            folder = self.scratch / str(self._count)
            folder.mkdir()
            self._count += 1
        prepared = self.processor.lower(self.compilation, self._graph, self._weights, partition, folder, self._lowered)
        bundle.write_manifest(folder, self.processor.manifest(self.compilation, self.result, prepared, folder))
        return Attempt(partition, folder, prepared, kernel_facts(prepared, self.processor.target))

    def time(self, attempts: Sequence[Attempt]) -> Sequence[Mapping[str, CallTime]]:
        """The time of a call of each step, in turns, by its name."""
        from ...lowering.running.kernel_times import call_times

        compilation, folders = self.compilation, [attempt.folder for attempt in attempts]
        drawn = random_inputs(compilation.ports, 0, self._graph.sizes)
        inputs = compilation.samples[0].values if compilation.samples else drawn
        threads = self.processor.target.threads
        return call_isolated(RUN_SECONDS, call_times, folders, inputs, threads, self.seconds, self.rounds)

    def find_wrong(
        self, attempt: Attempt, symbols: Collection[str], strict: Collection[str], *, may_round: bool
    ) -> Mapping[str, str]:
        """The wrong kernels, each with how its results differ from those of its operators, in words; `strict` ones must
        not round more than these, or with `may_round` little."""
        from ...lowering.running.blame import suspects

        library, threads = attempt.folder / LIBRARY, self.processor.target.threads
        found = suspects(attempt.prepared, library, threads, among=symbols, strict=strict, may_round=may_round)
        return {suspect.symbol: str(suspect) for suspect in found}

    def tell(self, line: str) -> None:
        """Tell the observer."""
        self.compilation.clock.tell("measure", line)


def verify_against_original(
    compilation: Compilation,
    compiled: Runs,
    *,
    stress: bool,
    graph: OperatorGraph | None = None,
    special: Sequence[Mapping[str, int]] = (),
    rewritten: Model | None = None,
) -> tuple[Verification, Runs]:
    """Compare a compiled model with the original; the verdict, and the compiled model as the runs left it.

    With `stress`, stress inputs are drawn, too. Beside drawn sizes, those that the `graph` is optimised for, the
    `special` ones and rare ones (0, 1, the ends of ranges) are tried. If outputs differ, the `rewritten` model, if
    given, shows how much of the difference is rounding.
    """
    from ...engine.verification import require_comparison, require_verdict
    from ...lowering.bundle.check import Tolerated, verify_compiled, verify_rare_sizes

    options, model = compilation.options, compilation.model
    original = model.source
    typical = graph.sizes if graph is not None and compilation.free else {}
    sizes = [{**typical, **each} for each in (*special, {})] if typical else []
    tolerated = Tolerated(
        options.atol, options.rtol, options.seed, compilation.samples,
        stress=stress, is_fast=options.precision == "fast", sizes=tuple(sizes),
        empty=frozenset(name for name, least in model.lowest if least == 0),
    )  # fmt: skip
    deadline = time.monotonic() + options.verification_seconds
    with require_verdict(model.label):
        verification, left = verify_compiled(original, compiled, tolerated, options.verification_seconds)
        if verification.status == "failed" and verification.outputs and rewritten is not None:
            verification, left = verify_compiled(original, compiled, tolerated, seconds_left(deadline), rewritten.ir)
        if verification.status == "passed" and typical and not compilation.samples:
            rare = options.sizes.list_rare({name: typical[name] for name in compilation.free})
            wrong, left = verify_rare_sizes(original, left, tolerated, deadline, rare)
            verification = wrong or verification
        return require_comparison(verification), left


class CrossProject(Processor):
    """A processor that is not this machine: kernels in a C project, verified under emulation."""

    def identity(self, options: Options) -> Mapping[str, Any]:
        """The target, and the missing tools, without which a bundle stays unverified."""
        return {**super().identity(options), "absent": self._missing_tools() if options.verify else ""}

    def prepare(self, options: Options) -> None:
        """Start a process that compiles kernels; the emulator starts fast."""
        pool.prepare()

    def _why_not_measured(self) -> str:
        counted = "; `eqfuse bench --emulate` counts them" if self.target.architecture == ARM else ""
        return f"the kernels are for another processor{counted}"

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
        tools = tools_for(self.target.architecture)
        if tools is None:
            return f"there is no emulator for {self.target.architecture}; run its example there"
        return missing(*tools)
