"""Looking at models: the parts and the cost of one, the differences of two, and whether two compute the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from ..costmodels.device import load_device
from ..engine.bodies.inference import infer_form
from ..engine.onnx.model import Model, read
from ..engine.onnx.provenance import METHOD_KEY
from ..engine.operator_graph import operator_graph
from ..engine.preparation.overrides import override_shapes, state_dimensions
from ..engine.shapes.inference import infer
from ..engine.summary import GraphSummary, summarize
from ..extract.partition.annotations.annotate import read_partition
from ..extract.partition.annotations.certificate import Certificate, CertificateError, certificate_of, check
from ..extract.partition.annotations.local_functions import inline_functions
from ..extract.partition.groups import Partition, PartitionError, unfused
from ..extract.partition.templates.kernels import KernelModel
from ..extract.partition.templates.savings import intermediate_bytes, removed_values
from ..ir.graph import OperatorGraph
from ..support.custom_operators import custom_operators
from ..support.errors import UsageError, VerificationError
from ..support.options import part_of
from .node_changes import NamedGraph, NodeChange, compare_nodes
from .options import CostOptions, InspectOptions, VerifyOptions
from .saturate import samples_of
from .usage import cost_model_for, summarized_runtime

if TYPE_CHECKING:
    from ..engine.verification import OutputReport as OutputReport
    from ..engine.verification import Verification as Verification


@dataclass(frozen=True)
class PartitionFigures:
    """A partition in figures: its groups, the kernels they become, the values that leave a group and the bytes of
    those and of the outputs of the graph, and the seconds that a device is predicted to take."""

    groups: int
    kernels: int
    intermediate_values: int
    intermediate_bytes: int
    predicted_seconds: float


@dataclass(frozen=True)
class Group:
    """One group of a partition; `operators` are the names of its nodes, `types` their operators."""

    number: int
    operators: tuple[str, ...]
    types: tuple[str, ...]
    kernels: int
    predicted_seconds: float


@dataclass(frozen=True)
class PartitionReport:
    """A partition beside each operator by itself. `checked_by`: who checked its certificate; None if nobody did."""

    method: str
    unfused: PartitionFigures
    partitioned: PartitionFigures
    groups: tuple[Group, ...]
    checked_by: str | None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        values = self.unfused.intermediate_values - self.partitioned.intermediate_values
        return {**asdict(self), "removed_values": values}


@dataclass(frozen=True)
class Inspection:
    """A model and its figures. `inputs` and `outputs` are the types by name, such as ``float[1, n]``."""

    opsets: Mapping[str, int]
    ir_version: int
    producer: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    summary: GraphSummary
    partition: PartitionReport | None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        content = {name: getattr(self, name) for name in ("opsets", "ir_version", "producer", "inputs", "outputs")}
        partition = {} if self.partition is None else {"partition": self.partition.as_dict()}
        return {**content, **self.summary.as_dict(), **partition}


def inspect_model(source: Any, options: InspectOptions) -> Inspection:
    """Describe a model, with the partition that it records or that the options ask for.

    Groups that are local functions are shown as the nodes they hold. Raises UsageError if a partition is to be
    certified and there is none, PartitionError if one is wrong.
    """
    model = override_shapes(state_dimensions(inline_functions(read(source)), options.dim), options.input_shapes)
    constant = frozenset(model.graph.initializers) - model.overridable_initializers
    return Inspection(
        opsets=dict(model.ir.opset_imports),
        ir_version=model.ir.ir_version,
        producer=model.ir.producer_name or "",
        inputs={i.name or "": _type_text(i) for i in model.graph.inputs if i.name not in constant},
        outputs={o.name or "": _type_text(o) for o in model.graph.outputs},
        summary=summarize(*infer_form(model), cost_model_for(options), summarized_runtime(options)),
        partition=_report_partition(model, options),
    )


def _type_text(value: ir.Value) -> str:
    dtype = value.dtype.name.lower() if value.dtype is not None else str(value.type or "?")
    return f"{dtype}{'?' if value.shape is None else [d if isinstance(d, int) else d.value for d in value.shape]}"


def _report_partition(model: Model, options: InspectOptions) -> PartitionReport | None:
    if options.partition is None and options.certificate is None and METHOD_KEY not in model.ir.metadata_props:
        if options.certify:
            raise UsageError(f"--certify: {model.label} records no partition; --partition METHOD makes one")
        return None
    graph = operator_graph(model, infer(model))
    costs = KernelModel(graph, load_device(options.device))
    partition = _find_partition(model, graph, costs, options)
    checked_by = "its order" if options.certificate is not None else None
    if options.certify:
        from ..extract.partition.annotations.proof import certify

        certify(graph, certificate_of(partition))
        checked_by = "z3"
    groups = []
    for number, members in enumerate(partition.members):
        operators = [graph.operators[member] for member in members]
        names, types = tuple(o.name for o in operators), tuple(o.op for o in operators)
        groups.append(Group(number, names, types, _count_kernels(members, costs), costs.group(members)))
    each_alone = _partition_figures(unfused(graph), costs)
    return PartitionReport(
        partition.method, each_alone, _partition_figures(partition, costs), tuple(groups), checked_by
    )


def _find_partition(model: Model, graph: OperatorGraph, costs: KernelModel, options: InspectOptions) -> Partition:
    """The partition that is asked for by its method, proven by a certificate, or recorded in the model."""
    if options.partition is not None:
        from ..extract.partition.baselines.fuse_ops import FuseOpsLimits
        from ..extract.partition.search.methods import partition_by

        limits = part_of(FuseOpsLimits, options)
        return partition_by(options.partition, graph, costs, options.time_limit, limits)
    recorded = read_partition(model, graph)
    if options.certificate is not None:
        return _partition_of_certificate(options.certificate, graph, recorded)
    assert recorded is not None, "the caller saw METHOD_KEY"
    return recorded


def _partition_of_certificate(path: Path, graph: OperatorGraph, recorded: Partition | None) -> Partition:
    """Raises CertificateError if the certificate cannot be read or proves a partition other than the recorded."""
    try:
        proven = check(graph, Certificate.from_json(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise CertificateError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (UnicodeDecodeError, PartitionError) as error:
        raise CertificateError(f"{path}: {error}") from None
    groups = set(proven.members if recorded is None else recorded.members)
    for number, members in enumerate(proven.members):
        if members not in groups:
            first = graph.operators[members[0]].name
            raise CertificateError(f"{path}: group {number}, of operator {first!r}, is none that the model records")
    return proven


def _count_kernels(members: tuple[int, ...], costs: KernelModel) -> int:
    """The kernels of a group, without views."""
    return sum(not costs.is_view(part) for part in costs.kernels(members))


def _partition_figures(partition: Partition, costs: KernelModel) -> PartitionFigures:
    intermediate = sum(v.producer is not None and not v.is_output for v in partition.graph.values)
    return PartitionFigures(
        groups=partition.count,
        kernels=sum(_count_kernels(members, costs) for members in partition.members),
        intermediate_values=intermediate - len(removed_values(partition)),
        intermediate_bytes=intermediate_bytes(partition),
        predicted_seconds=costs.partition(partition),
    )


@dataclass(frozen=True)
class Difference:
    """The figures of two models, and the nodes in which they differ."""

    before: GraphSummary
    after: GraphSummary
    nodes: tuple[NodeChange, ...]


def diff_models(before: Any, after: Any, options: CostOptions) -> Difference:
    """Summarize two models by one cost model, and compare their nodes."""
    models = [inline_functions(read(source)) for source in (before, after)]
    costs = cost_model_for(options), summarized_runtime(options)
    first, second = (summarize(*infer_form(model), *costs) for model in models)
    return Difference(first, second, tuple(compare_nodes(*map(_named_graph, models)).all))


def _named_graph(model: Model) -> NamedGraph:
    knowledge = infer(model)
    return NamedGraph(operator_graph(model, knowledge), knowledge.constants)


def verify_models(original: Any, candidate: Any, options: VerifyOptions) -> Verification:
    """Run both models on the same inputs and compare their outputs.

    Raises VerificationError if there is no verdict: a model crashes what runs it, or takes longer than the limit.
    """
    from ..engine.verification import verify  # it imports ONNX Runtime's helpers

    for name, shape in options.input_shapes.items():
        if any(isinstance(d, str) for d in shape):
            raise UsageError(f"--input-shapes {name}: to run a model every dimension must be a number")
    before, after = read(original), read(candidate)
    try:
        with custom_operators(options.custom_ops):
            return verify(
                before.source,
                after.source,
                atol=options.atol,
                rtol=options.rtol,
                seed=options.seed,
                shapes={name: tuple(map(int, shape)) for name, shape in options.input_shapes.items()},
                samples=samples_of(override_shapes(before, options.input_shapes), options.inputs),
                measure=True,
                limit=options.verify_limit,
            )
    except VerificationError as error:
        raise VerificationError(f"{before.label} and {after.label}: {error}") from None
