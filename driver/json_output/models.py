"""What `--json` prints of commands about models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NotRequired, TypedDict

from ...engine.egraph.graph import RuleStatistics
from ...engine.egraph.loops import Acyclicity
from ...engine.verification.effect import StepCount
from ...extract.joint import JointCosts
from ...extract.partition.annotations.proof import Proof
from ...lowering.plan.manifest import Manifest, Point
from ..inspect import Group, PartitionFigures
from ..node_changes import NodeChange
from ..partition import ProfiledPairs
from .head import Printed


class SummaryFields(TypedDict):
    """The figures of a model. `operators` counts the layers, which are the nodes that depend on an input; `predicted`
    is in `unit`. `assumed_sizes` are the sizes that symbolic dimensions are taken for."""

    nodes: int
    layers: int
    operators: Mapping[str, int]
    flops: float
    intermediate_bytes: int
    weight_bytes: int
    predicted: float | str
    unit: str
    assumed_sizes: NotRequired[Mapping[str, int]]
    counted_bodies: NotRequired[Mapping[str, int]]
    uncounted_bodies: NotRequired[Mapping[str, int]]


class ErrorFigures(TypedDict):
    """The largest and the root mean square error of an output against a run in float64."""

    max: float | str
    rms: float | str


class BothErrors(TypedDict):
    """The errors of an output of both models; null if there was no run in float64."""

    original: ErrorFigures | None
    result: ErrorFigures | None


class OutputFields(TypedDict):
    """An output that was compared. `bit_identical` is a share of its `elements`; `steps` are those of an output that
    was quantised."""

    name: str
    max_abs: float | str
    max_rel: float | str
    depends_on_inputs: bool
    passed: bool
    note: str
    elements: int
    bit_identical: float | None
    steps: StepCount | None
    max_ulp: float | str | None
    float64_error: BothErrors


class VerificationFields(TypedDict):
    """The verdict on two models; `one_sided` are operators with branches that no run took."""

    status: str
    outputs: Sequence[OutputFields]
    first_divergent: str | None
    reason: str
    seconds: float
    precision: str | None
    rules: int | None
    unmeasured: str
    one_sided: Sequence[str]
    numeric_effect: str
    accuracy: str
    summary: str


class SaturationFields(TypedDict):
    """The saturation; `growth` is the number of e-nodes after each iteration, `rules` are those that matched."""

    stop_reason: str
    iterations: int
    growth: Sequence[int]
    classes: int
    enodes: int
    rules: Sequence[RuleStatistics]


class ExtractionFields(TypedDict):
    """The extraction: `cost` of the chosen graph, and the `lower_bound` of the cost of any."""

    status: str
    cost: float | str
    lower_bound: float | str | None
    gap: float | str | None
    acyclicity: Acyclicity | None


class PartitionFields(TypedDict):
    """The kernels of the result. Bytes are those between kernels; `seconds` is the predicted time when compiled."""

    method: str
    subgraphs: int
    as_drawn: int
    kernels: int
    views: int
    operators: int
    removed_values: int
    intermediate_bytes_original: int
    intermediate_bytes_unfused: int
    intermediate_bytes: int
    index_maps: int
    index_map_bytes: int
    seconds: float
    costs: JointCosts | None
    profiled: ProfiledPairs | None
    certificate: Proof | None


class RatioFields(TypedDict):
    """The time of a candidate over that of the original: the median of `count` pairs, and its limits."""

    median: float | None
    lower: float | None
    upper: float | None
    count: int


class CandidateFields(TypedDict):
    """A candidate that was timed, or the `problem` for which it was not."""

    name: str
    layers: int
    ratio: RatioFields | None
    problem: str


class MeasurementFields(TypedDict):
    """The candidates that `--measure` timed in ONNX Runtime of version `runtime`."""

    chosen: str
    layers: int
    candidates: Sequence[CandidateFields]
    input_shapes: Mapping[str, Sequence[int]]
    threads: int
    processor: str
    runtime: str
    seconds: float
    clock: str


class OptimizeOutput(Printed):
    """`optimize`. `output` is the file that was written; `seconds` are those of each phase."""

    model: str
    output: str | None
    before: SummaryFields
    after: SummaryFields
    saturation: SaturationFields
    extraction: ExtractionFields
    verification: VerificationFields | None
    partition: PartitionFields | None
    measurement: MeasurementFields | None
    seconds: Mapping[str, float]
    budget_hit: bool
    cut_short: Sequence[str]
    trusted_rules: Sequence[str]


class CompileOutput(Printed):
    """`compile` and `tune`. `manifest` is that of the bundle; `phases` and `kernel_seconds` are seconds; `curve` is the
    course of a search for schedules."""

    model: str
    bundle: str
    from_cache: bool
    phases: Mapping[str, float]
    kernel_seconds: Mapping[str, float]
    manifest: Manifest
    curve: Sequence[Point]


class ArrayFields(TypedDict):
    """An output of a run."""

    type: str
    shape: Sequence[int]
    min: float | str
    max: float | str
    mean: float | str


class RunOutput(Printed):
    """`run`, the outputs by name."""

    outputs: Mapping[str, ArrayFields]


class InspectedPartition(TypedDict):
    """A partition beside each operator by itself; `checked_by` says who checked its certificate."""

    method: str
    unfused: PartitionFigures
    partitioned: PartitionFigures
    groups: Sequence[Group]
    checked_by: str | None
    removed_values: int


class InspectedModel(SummaryFields):
    """A model in figures. `inputs` and `outputs` are the types by name."""

    model: str
    opsets: Mapping[str, int]
    ir_version: int
    producer: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    partition: NotRequired[InspectedPartition]


class InspectOutput(Printed, InspectedModel):
    """`inspect` of one model."""


class InspectSeveralOutput(Printed):
    """`inspect` of several models."""

    models: Sequence[InspectedModel]


class DiffOutput(Printed):
    """`diff`. `nodes` are the layers in which the models differ."""

    before: SummaryFields
    after: SummaryFields
    nodes: Sequence[NodeChange]


class VerifyOutput(Printed, VerificationFields):
    """`verify`."""


class ExtractOutput(Printed):
    """`extract`, with the number of nodes that were written."""

    model: str
    output: str
    nodes: int


class ReduceOutput(ExtractOutput):
    """`reduce`: `nodes` were kept `of` those of the model, after `runs` of the command."""

    of: int
    runs: int
