"""Compiling a model: optimise it, cut it into kernels, lower these, verify the result, and only then publish it."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import onnx
import onnx_ir as ir

from .api import Result, run
from .engine.model import Model, elements, read
from .engine.shapes import override_shapes
from .engine.summary import knowledge_of_result
from .errors import UsageError, VerificationError
from .extract.partition.kernels import KernelModel
from .extract.partition.local_functions import inlined
from .extract.partition.of_model import operator_graph
from .lowering import bundle, cache, isolation
from .lowering.arm.toolchain import Tool, missing
from .lowering.copied_maps import with_copied_maps
from .lowering.decisions import Decisions
from .lowering.epilogues import with_epilogues
from .lowering.errors import CrashError, WrongKernelsError
from .lowering.fallback import FOLDER, static_type, store
from .lowering.interface import Port, inputs_of, read_samples
from .lowering.manifest import LIBRARY, PLAN, FallbackEntry, Manifest, Platform, Provenance
from .lowering.target import Target, check_linker, check_runs_here, check_target, is_library, target_of
from .lowering.tuning.settings import Settings
from .lowering.tvm_runtime import check_threads, runtime
from .lowering.weights import Weights
from .pipeline import Clock, Observer, Options
from .rules.loader import rule_paths
from .support.processor import available_cores
from .support.scratch import scratch_folder

if TYPE_CHECKING:
    from .engine.verification import Verification
    from .engine.verification.inputs import Sample
    from .extract.partition.graph import OperatorGraph
    from .lowering.check import Runnable
    from .lowering.kernels import Prepared
    from .lowering.tuning.tuner import Point


RUN_SECONDS = 600.0
"""How long one run of a model may take that was just compiled; beyond that a kernel is taken to hang."""
_RUNS = 4
"""The parts of the limit of verification that one run may take: two are compared, and one more tells what hangs."""
Runs = TypeVar("Runs", bound="Runnable")


@dataclass(frozen=True, repr=False)
class Compiled:
    """A bundle and how it came about. `phases` are wall-clock seconds, `kernel_seconds` those of each distinct kernel.

    `result` is the optimised model; None where the bundle was compiled before and taken from the cache.
    """

    path: Path
    manifest: Manifest
    phases: Mapping[str, float]
    result: Result | None = None
    kernel_seconds: Mapping[str, float] = field(default_factory=dict)
    curve: tuple[Point, ...] = ()

    @property
    def from_cache(self) -> bool:
        """Whether nothing had to be compiled."""
        return self.result is None

    def __repr__(self) -> str:
        """A few lines: the manifest and the result hold much."""
        origin = self.manifest.provenance
        return (
            f"<Compiled: {origin.model} for {self.manifest.platform.name}, {origin.kernels} kernels\n"
            f"  verification: {origin.verification or 'none'}\n"
            f"  written: {self.path}>"
        )


def compile_model(
    source: Any,
    output: Path,
    options: Options,
    *,
    target: str = "host",
    threads: int | None = None,
    tuning: Settings | None = None,
    observer: Observer | None = None,
) -> Compiled:
    """Compile a model to the bundle `output`; an earlier bundle there is replaced once the new one is verified.

    `options` say how to optimise; the device is that of the target. With `tuning` schedules are searched for, and the
    result is the bundle with them or the one without, whichever is faster. Raises EqfuseError with one clear line,
    among them VerificationError where the compiled model differs from the original: then nothing is written.
    """
    bundle.check_destination(output)
    check_target(target)
    check_threads(threads)
    if is_library(target):
        check_linker()
    clock = Clock(observer)
    with clock.phase("read"):
        model = override_shapes(inlined(read(source)), options.input_shapes)
        ports = inputs_of(model)  # raises for what cannot be compiled, before the work
        samples = read_samples(options.inputs, ports)
    runtime(threads or available_cores())
    work = Work(source, model, ports, replace(options, device=target), target_of(target, threads), clock, samples)
    if options.verify or tuning is not None:
        check_runs_here(work.target)
    if tuning is not None:
        from .lowering.tuning.equipment import check

        check(work.target, tuning)  # before the work
    with bundle.staged(output) as folder:
        if tuning is None and cache.fetch(work.key, folder):
            manifest = work.labelled(bundle.read_manifest(folder))
            bundle.write_manifest(folder, manifest)
            bundle.publish(folder, output)
            return Compiled(output, manifest, clock.phases)
        made = work.fill(folder, output)
        if not made.manifest.provenance.replaced:  # another attempt may do better
            cache.keep(work.key, folder)
        if tuning is not None:
            from .tuned_compilation import tuned  # which builds on this module

            made = tuned(work, made, folder, tuning)
        bundle.publish(folder, output)
    return made


@dataclass(frozen=True)
class Cut:
    """Kernels of the optimised graph, in running order, and what their schedules decide, by task."""

    kernels: tuple[tuple[int, ...], ...]
    decisions: Mapping[str, Decisions]


@dataclass(frozen=True)
class Work:
    """One compilation."""

    source: Any
    model: Model
    ports: tuple[Port, ...]
    options: Options
    target: Target
    clock: Clock
    samples: tuple[Sample, ...] = ()

    @property
    def key(self) -> str:
        """What decides about the bundle."""
        chosen = {**asdict(self.options), "target": asdict(self.target), "versions": bundle.versions()}
        absent = "" if self.target.is_library or not self.options.verify else missing_tools()
        given = [sample.digest for sample in self.samples]
        rules = rule_paths(self.options.rules)
        return cache.key_of({**chosen, "model": self.fingerprint, "absent": absent, "inputs": given}, rules)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the model as it was read, its weights with it."""
        return fingerprint(read(self.source))

    def labelled(self, manifest: Manifest) -> Manifest:
        """The manifest of an equal model, with this one's path."""
        return replace(manifest, provenance=replace(manifest.provenance, model=self.label))

    @property
    def label(self) -> str:
        """Where the model is, or its name."""
        return str(self.model.path.absolute()) if self.model.path else self.model.label

    def fill(self, folder: Path, output: Path) -> Compiled:
        """Compile into a folder, for `output`, and verify what is in it."""
        if self.options.verify and self.target.is_library:
            isolation.prepare()
        result = run(self.source, None, replace(self.options, verify=False, inputs=()), self.clock.observer)
        self.clock.phases.update(result.phases)
        return self.bundle(result, folder, output)

    def bundle(self, result: Result, folder: Path, output: Path, cut: Cut | None = None) -> Compiled:
        """A whole bundle in an empty folder. Kernels that are wrong are compiled again, by the plainest schedule.

        It has the kernels and decisions of the `cut`, by default those of the device model.
        """
        try:
            prepared, manifest = self._bundle(result, folder, {}, cut)
        except WrongKernelsError as wrong:
            shutil.rmtree(folder)
            folder.mkdir()
            prepared, manifest = self._bundle(result, folder, wrong.kernels, cut)
        seconds = {name: answer.seconds for name, answer in prepared.answers.items()}
        return Compiled(output, manifest, self.clock.phases, result, seconds)

    def _bundle(
        self, result: Result, folder: Path, wrong: Mapping[str, str], cut: Cut | None
    ) -> tuple[Prepared, Manifest]:
        """The same, the kernels that were `wrong` plain from the start."""
        with self.clock.phase("compile"):
            prepared = self._compile(result, folder, wrong, cut)
        manifest = self._manifest(result, prepared, folder, wrong)
        bundle.write_manifest(folder, manifest)
        if self.options.verify:
            with self.clock.phase("verify"):
                verdict = self._verdict(folder, manifest, prepared)
            manifest = replace(manifest, provenance=replace(manifest.provenance, verification=verdict))
            bundle.write_manifest(folder, manifest)
        return prepared, manifest

    def _compile(self, result: Result, folder: Path, plain: Collection[str], cut: Cut | None) -> Prepared:
        """The library, and what it needs besides."""
        from .lowering.c_project import write_c_project
        from .lowering.kernels import intensive_kernels, prepare
        from .lowering.module import link

        graph, kernels = kernels_of(result)
        weights = Weights(result.rewritten.model)
        if cut is not None:
            kernels = cut.kernels
        elif self.options.intensive and result.partition is not None:
            kernels = intensive_kernels(graph, kernels, weights, self.target)
        with scratch_folder("kernels") as scratch:
            prepared = prepare(
                graph, kernels, weights, self.target, Path(scratch), available_cores(),
                lambda line: self.clock.tell("compile", line), plain, cut.decisions if cut is not None else {},
            )  # fmt: skip
            self.clock.tell("compile", "linking")
            if self.target.is_library:
                link(prepared, self.target, folder / LIBRARY)
            else:
                write_c_project(prepared, folder)
        store(prepared.fallbacks, folder)
        return prepared

    def _verdict(self, folder: Path, manifest: Manifest, prepared: Prepared) -> str:
        """What verification says, in one line. Raises VerificationError where the bundle differs from the original."""
        if self.target.is_library:
            from .lowering.isolated_model import IsolatedModel

            limit = self.options.verify_limit
            try:
                compiled = IsolatedModel(folder, self.target.threads, min(RUN_SECONDS, limit / _RUNS))
            except CrashError as error:
                raise VerificationError(
                    f"{self.model.label}: the compiled model cannot be loaded, it {error}; nothing was written"
                ) from None
            found, left = self._verification(compiled)
            if found.status == "failed":
                raise self._explained(self._difference(found), prepared, folder, left.crashed_in)
            one_sided = f"; seen from one side only: {found.coverage}" if found.coverage else ""
            return found.summary + one_sided
        from .lowering.emulated_model import EmulatedModel

        if missing_tools():
            return f"none: {missing_tools()}"
        with scratch_folder("emulated") as scratch:
            found, _ = self._verification(EmulatedModel.build(folder, manifest, self.target, Path(scratch)))
        if found.status == "failed":
            hint = "compile it for the host to see where it is wrong"
            raise VerificationError(f"{self._difference(found)}; nothing was written; {hint}")
        return f"{found.summary} (emulated)"

    def _verification(self, compiled: Runs) -> tuple[Verification, Runs]:
        from .engine.verification import require_comparison, verdict_required
        from .lowering.check import Tolerated, verify_compiled

        options = self.options
        original = self.model.ir if options.input_shapes or self.model.path is None else self.model.path
        tolerated = Tolerated(
            options.atol, options.rtol, options.seed, self.samples,
            bold=self.target.is_library, may_overflow=options.precision == "fast",
        )  # fmt: skip
        with verdict_required(self.model.label):
            found, left = verify_compiled(original, compiled, tolerated, options.verify_limit)
            return require_comparison(found), left

    def _difference(self, found: Verification) -> str:
        return f"{self.model.label}: the compiled model differs from the original: {found.summary}"

    def _explained(self, message: str, prepared: Prepared, folder: Path, crashed_in: str) -> VerificationError:
        """The error, with the kernels that are to blame: this machine can run them one by one."""
        from .lowering.blame import suspects

        self.clock.tell("verify", "looking for the kernel that is wrong")
        blamed = suspects(prepared, folder / LIBRARY, self.target.threads, crashed_in)
        found = {suspect.symbol: str(suspect) for suspect in blamed}
        if not found:
            hint = "each kernel by itself is right, so it may be a rule: `eqfuse bisect` finds it"
            return VerificationError(f"{message}; {hint}; nothing was written")
        first = next(iter(found.values()))
        text = f"{message}; {len(found)} kernel(s) are wrong, the first is {first}; nothing was written"
        return WrongKernelsError(text, found)

    def _manifest(self, result: Result, prepared: Prepared, folder: Path, wrong: Mapping[str, str]) -> Manifest:
        target = self.target
        return Manifest(
            inputs=self.ports,
            outputs=outputs_of(prepared.weights.model, prepared.graph),
            platform=Platform(target.name, target.architecture, target.triple, target.cpu, target.features),
            precision=self.options.precision,
            threads=target.threads,
            provenance=self._provenance(result, prepared, wrong),
            fallbacks=tuple(
                FallbackEntry(f"{FOLDER}/{number}.onnx", entry.operators, entry.reason)
                for number, entry in enumerate(prepared.fallbacks)
            ),
            versions=bundle.versions(),
            files=bundle.digests(folder),
            library=LIBRARY if target.is_library else PLAN,
        )

    def _provenance(self, result: Result, prepared: Prepared, wrong: Mapping[str, str]) -> Provenance:
        return Provenance(
            model=self.label,
            sha256=self.fingerprint,
            input_shapes=dict(self.options.input_shapes),
            rules=len(result.saturation.matched),
            partition=self.options.partition,
            operators=result.after.layers,
            kernels=len(prepared.calls) + len(prepared.fallbacks),
            distinct_kernels=len({call.symbol for call in prepared.calls}),
            verification="",
            replaced=(*wrong.values(), *prepared.recovered),
            budget_hit=result.budget_hit,
            trusted_rules=result.trusted,
        )


def missing_tools() -> str:
    """What is needed to build and emulate a C project and is not installed, in one line; empty where all is there."""
    return missing(Tool.CROSS_COMPILER, Tool.EMULATOR)


def fingerprint(model: Model) -> str:
    """SHA-256 of a model: its file, or what it would be as one, and the external data that it reads."""
    if model.path is None:
        return sha256(ir.to_proto(model.ir).SerializeToString(deterministic=True)).hexdigest()
    found = sha256(model.path.read_bytes())
    for file in sorted({model.path.parent / name for name in _external_files(model.path)}):
        found.update(bundle.digest(file).encode())
    return found.hexdigest()


def _external_files(path: Path) -> set[str]:
    proto = onnx.load(path, load_external_data=False)
    entries = (entry for tensor in proto.graph.initializer for entry in tensor.external_data)
    return {entry.value for entry in entries if entry.key == "location"}


def kernels_of(result: Result) -> tuple[OperatorGraph, tuple[tuple[int, ...], ...]]:
    """The graph to lower and its kernels; each operator by itself where it was not cut.

    A kernel has one anchor op here; which are joined is decided by what has a schedule.
    """
    if result.partition is not None:
        partition, priced = result.partition.partition, result.partition.pricing
        model = KernelModel(partition.graph, priced.device, priced.measured, intensive=False)
        found = [kernel for members in partition.members for kernel in model.kernels(members)]
        return with_copied_maps(partition.graph, with_epilogues(partition.graph, found))
    rewritten = result.rewritten.model
    graph = operator_graph(rewritten, knowledge_of_result(rewritten, result.rewritten.knowledge))
    return graph, tuple((index,) for index in range(len(graph)))


def outputs_of(model: Model, graph: OperatorGraph) -> tuple[Port, ...]:
    """What a compiled model gives, in order. An output is made by an operator, or it is an input or a constant."""
    return tuple(_output(str(value.name), model, graph) for value in model.graph.outputs)


def _output(name: str, model: Model, graph: OperatorGraph) -> Port:
    for port in inputs_of(model):
        if port.name == name:
            return port
    for number, value in enumerate(graph.values):
        if value.name == name:
            known = static_type(graph, number)
            return Port(name, known.dtype, tuple(int(d) for d in known.shape or ()))
    if name in model.stored:
        array = elements(model.stored[name])
        return Port(name, array.dtype.name, array.shape)
    raise UsageError(f"output {name!r} is no tensor that is known before the run; it cannot be compiled")
