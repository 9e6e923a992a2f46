"""One compilation for any target: the model, the key of its bundle in the cache, and the protocol of back ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ...engine.bodies.resolve import resolve_bodies
from ...engine.egraph.graph import Saturation, Selection
from ...engine.onnx.map_outputs import map_outputs
from ...engine.onnx.model import Model
from ...engine.onnx.nodes import is_flattened
from ...engine.onnx.provenance import METHOD_KEY
from ...engine.operator_graph import operator_graph
from ...engine.preparation.batches import BATCH, find_batches, free_batch
from ...engine.preparation.overrides import override_shapes
from ...engine.preparation.texts import number_texts, text_outputs
from ...engine.shapes.inference import infer
from ...engine.summary import knowledge_of_result, summarize
from ...extract.partition.annotations.annotate import read_partition
from ...extract.partition.groups import unfused
from ...ir.graph import OperatorGraph
from ...ir.sizes import NO_SIZES, assume_sizes
from ...lowering.base.interface import inputs_of, read_samples, require_tensors
from ...lowering.base.ports import Port
from ...lowering.base.toolchain import versions
from ...lowering.bundle import bundle, cache
from ...lowering.bundle.check import call_for_verdict, fit_to_original
from ...lowering.kernels.branches import split_branches
from ...lowering.kernels.map_copies import copy_maps
from ...lowering.kernels.measured import join_measured
from ...lowering.kernels.variants import KernelPartition
from ...lowering.plan.manifest import PLAN, Manifest, Provenance
from ...rules.places import rule_paths
from ...support.errors import UsageError
from ..clock import Clock
from ..optimize import Result, Typed, optimize_model
from ..options import Options
from ..partition import compile_drawn
from ..preparation import prepare_model
from ..sizes import check_sizes
from ..usage import cost_model_for

if TYPE_CHECKING:
    from ...engine.verification.inputs.given import Sample
    from ...extract.partition.search.confirmation import Lowering

_FEWEST_SUMMED = 3
"""The fewest dynamic dimensions of which one may be the sum of others."""


@dataclass(frozen=True, repr=False)
class Compiled:
    """A bundle and how it came about. `phases` are wall-clock seconds, `kernel_seconds` those of each distinct kernel.

    `result` is the optimised model; None if the bundle was compiled before and taken from the cache.
    """

    path: Path
    manifest: Manifest
    phases: Mapping[str, float]
    result: Result | None = None
    kernel_seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_c_project(self) -> bool:
        """Whether it is C code to build elsewhere, by a plan, instead of a library that is loaded."""
        return self.manifest.library == PLAN

    @property
    def from_cache(self) -> bool:
        """Whether the cache had the bundle."""
        return self.result is None

    def __repr__(self) -> str:
        """A few lines: the manifest and the result hold much."""
        origin = self.manifest.provenance
        return (
            f"<Compiled: {origin.model} for {self.manifest.platform.name}, {origin.kernels} kernels\n"
            f"  verification: {origin.verification or 'none'}\n"
            f"  written: {self.path}>"
        )


@dataclass(frozen=True)
class Built:
    """The manifest of a bundle that a back end made, the seconds that each distinct kernel took to compile, and the
    kernels and decisions (`partition`) of a processor's bundle."""

    manifest: Manifest
    kernel_seconds: Mapping[str, float] = field(default_factory=dict)
    partition: KernelPartition | None = None


@dataclass(frozen=True)
class Compilation:
    """A model to compile: the `original`, and `model` with the shapes of the options.

    `ports` are its inputs, `samples` the inputs that the user gives to verify on."""

    original: Model
    model: Model
    ports: tuple[Port, ...]
    samples: tuple[Sample, ...]
    options: Options
    clock: Clock

    @staticmethod
    def of(
        original: Model, options: Options, clock: Clock, batch: Sequence[int] = (), *, widens: bool = False
    ) -> Compilation:
        """Raises LoweringError for inputs that cannot be compiled, UsageError for given ones that do not fit them.

        The dynamic dimension that counts samples takes the sizes of `batch`; without one, the first axes become one.
        `widens`: the target has kernels of float32 for numbers of float16, unless every bit has to stay.
        """
        widens = widens and options.precision != "exact"
        model = prepare_model(number_texts(original), options.dim, options.input_shapes, options.outputs, widens=widens)
        if batch:
            model, options = _take_batch(model, options, batch)
        check_sizes(model, options.sizes, options.dim)
        ports = inputs_of(model)
        return Compilation(original, model, ports, read_samples(options.inputs, ports), options, clock)

    @property
    def free(self) -> tuple[str, ...]:
        """The names of the dynamic dimensions."""
        return tuple(dict.fromkeys(name for port in self.ports for name in sorted(port.names)))

    def fit_sizes(self, typical: Mapping[str, int]) -> Mapping[str, int]:
        """These sizes; others if the original does not run on them but on those, and the user names none."""
        options = self.options
        if len(self.free) < _FEWEST_SUMMED or options.sizes.typical or not options.verify:
            return typical
        return fit_to_original(self.model.source, self.ports, typical, options.seed, options.verification_seconds)

    def with_fixed_sizes(self) -> Compilation:
        """The same for inputs of fixed shapes: each dynamic dimension has the size that is optimised for."""
        if not self.free:
            return self
        sizes = self.fit_sizes({**assume_sizes(port.shape for port in self.ports), **self.options.sizes.typical})
        ports = tuple(replace(port, shape=port.shape_for(sizes)) for port in self.ports)
        shapes = {port.name: port.shape for port, before in zip(ports, self.ports, strict=True) if port != before}
        self.clock.tell("read", ", ".join(f"{name}: {list(shape)}" for name, shape in shapes.items()))
        given = {**self.options.input_shapes, **shapes}
        options = replace(self.options, input_shapes=given, typical=(), range=())  # the shapes have them
        return replace(self, model=override_shapes(self.model, shapes), ports=ports, options=options)

    def kernels_of(self, result: Result) -> tuple[OperatorGraph, tuple[tuple[int, ...], ...]]:
        """The graph of a result, with sizes that it runs on, and its kernels: see the function of this name."""
        graph, kernels = kernels_of(result, self.options.sizes.typical)
        return replace(graph, sizes=self.fit_sizes(graph.sizes)), kernels

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the original, weights included."""
        return cache.fingerprint(self.original)

    @property
    def label(self) -> str:
        """The path of the model, or its name."""
        return str(self.model.path.absolute()) if self.model.path else self.model.label

    def key(self, backend: BackEnd) -> str:
        """The key of the bundle in the cache: a digest of everything that it depends on."""
        chosen = {**asdict(self.options), **backend.identity(self.options), "versions": versions()}
        given = [sample.digest for sample in self.samples]
        libraries = [sha256(path.read_bytes()).hexdigest() for path in self.options.custom_ops]
        content = {"model": self.fingerprint, "inputs": given, "libraries": libraries}
        return cache.key_of({**chosen, **content}, rule_paths(self.options.rules))

    def optimize(self, backend: BackEnd) -> Result:
        """Optimise the model; one that records its partition is not rewritten, and its kernels are compiled.

        The result is not verified here: the bundle made from it will be.
        """
        options = replace(self.options, verify=False, inputs=())
        if options.partition != "none" and _records_partition(self.model):
            return _recorded_result(self.model, options, backend.lowering, self.clock)
        options = replace(options, dim=(), input_shapes={}, outputs=())  # the model has them
        model = self._rewrite_bodies(options)
        result = optimize_model(model, None, options, self.clock.observer, lowering=backend.lowering)
        self.clock.phases.update(result.phases)
        return result

    def _rewrite_bodies(self, options: Options) -> Model:
        """The model with bodies that the rules rewrote, which the partition of a graph leaves unchanged in Loops and
        Scans."""
        if options.partition == "none" or not any(map(is_flattened, self.model.graph)):
            return self.model
        whole = replace(options, partition="none", certificate=None, certify=False, as_functions=False)
        return resolve_bodies(optimize_model(self.model, None, whole, self.clock.observer).rewritten.model)

    def relabel(self, folder: Path) -> Built:
        """The bundle of an equal model in a folder, with this one's path."""
        manifest = bundle.read_manifest(folder)
        origin = replace(manifest.provenance, model=self.label, stand_ins=self._other_outputs())
        manifest = replace(manifest, provenance=origin)
        bundle.write_manifest(folder, manifest)
        return Built(manifest)

    def _other_outputs(self) -> tuple[str, ...]:
        return (*map(str, map_outputs(self.model.graph)), *text_outputs(self.model.graph))

    def provenance(
        self, result: Result, kernels: int, distinct: int, copies: int = 0, replaced: tuple[str, ...] = ()
    ) -> Provenance:
        """The record of the origin of a bundle, not verified yet.

        `kernels` counts its kernels, `distinct` those that differ, `copies` those that the lowering adds to the
        partition; `replaced` names those with a plainer schedule."""
        made = result.partition
        return Provenance(
            model=self.label,
            sha256=self.fingerprint,
            input_shapes=dict(self.options.input_shapes),
            rules=len(result.saturation.matched),
            partition=made.partition.method if made is not None else self.options.partition,
            operators=result.after.layers,
            kernels=kernels,
            distinct_kernels=distinct,
            verification="",
            replaced=replaced,
            budget_hit=result.budget_hit,
            trusted_rules=result.trusted,
            certificate=str(made.proof or "") if made is not None else "",
            unrounded=str(result.unrounded or ""),
            stand_ins=self._other_outputs(),
            copies=copies,
            groups=made.drawn.count if made is not None and made.drawn is not None else 0,
            as_drawn=made.as_drawn if made is not None and made.drawn is not None else 0,
        )


class BackEnd(Protocol):
    """Lowers an optimised model for one kind of target."""

    @property
    def lowering(self) -> Lowering:
        """Its answers to the partition: which kernels it can make, and which operators stay alone."""
        ...

    def identity(self, options: Options) -> Mapping[str, Any]:
        """The properties of the target and of this machine that a bundle depends on."""
        ...

    def check(self, compilation: Compilation) -> None:
        """Raise EqfuseError if this machine cannot compile the model for the target."""
        ...

    def prepare(self, options: Options) -> None:
        """Start slow processes, while the model is optimised."""
        ...

    def build(self, compilation: Compilation, result: Result, folder: Path) -> Built:
        """Fill an empty folder with the bundle, verified if the options ask for it.

        Raises VerificationError if the compiled model differs from the original.
        """
        ...


def kernels_of(
    result: Result, sizes: Mapping[str, int] = NO_SIZES
) -> tuple[OperatorGraph, tuple[tuple[int, ...], ...]]:
    """The graph to lower, and its kernels and views in running order; one for each operator without a partition.

    They are the groups of the partition, divided between the branches of Ifs, and copies of feature maps
    (`kernels/map_copies.py`). `sizes` of dynamic dimensions are those that are optimised for. Raises LoweringError for
    a value that is no tensor.
    """
    rewritten = result.rewritten.model
    if result.partition is not None:
        graph = result.partition.partition.graph.at_call
        require_tensors(graph, rewritten)
        return copy_maps(*join_measured(graph, split_branches(graph, result.partition.partition.members)))
    knowledge = knowledge_of_result(rewritten, result.rewritten.knowledge)
    graph = operator_graph(rewritten, knowledge, sizes, for_kernels=True)
    require_tensors(graph, rewritten)
    return join_measured(graph.at_call, unfused(graph).members)


def _take_batch(model: Model, options: Options, batch: Sequence[int]) -> tuple[Model, Options]:
    """The model with a dynamic batch, and the options with its sizes. Raises UsageError if it cannot have one."""
    if not find_batches(model):
        freed = free_batch(model)
        _require_separate_samples(model, freed, options)
        model = freed
    sizes = ",".join(map(str, batch))
    return model, replace(options, range=(*options.range, *(f"{name}={sizes}" for name in find_batches(model))))


def _require_separate_samples(model: Model, freed: Model, options: Options) -> None:
    """Raise UsageError if the model with a dynamic batch computes samples in another way than the model for one."""
    from ...engine.verification.runs.source import model_file
    from ...engine.verification.verdict import find_mixed_samples

    with model_file(model.source) as before, model_file(freed.source) as after:
        problem = call_for_verdict(
            options.verification_seconds, find_mixed_samples, before.absolute(), after.absolute(), BATCH, options.seed
        )
    if problem:
        raise UsageError(f"--batch: {model.label} is for one sample: {problem}")


def _records_partition(model: Model) -> bool:
    """Whether a model has a partition in its metadata."""
    return METHOD_KEY in model.ir.metadata_props


def _recorded_result(model: Model, options: Options, lowering: Lowering, clock: Clock) -> Result:
    """The model without any rewriting, in the kernels that it records; a group that no kernel can compute is divided.

    Local functions are inlined beforehand. Raises PartitionError if the record is damaged.
    """
    with clock.phase("infer"):
        typed = Typed(model, infer(model))
        graph = operator_graph(model, typed.knowledge, options.sizes.typical)
        drawn = read_partition(model, graph)
        assert drawn is not None, "the caller saw that there is one"
        summary = summarize(model, typed.knowledge, cost_model_for(options))
    partition = compile_drawn(graph, drawn, model, options, lowering, clock)
    nothing, chosen = Saturation("saturated", 0, (), 0.0, ()), Selection({}, 0.0, 0.0, "optimal")
    return Result(
        model=model.ir, path=None, before=summary, after=summary, saturation=nothing, extraction=chosen,
        classes=0, enodes=0, verification=None, phases=clock.phases, original=typed, rewritten=typed,
        partition=partition,
    )  # fmt: skip
