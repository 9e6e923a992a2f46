"""What `--json` prints of commands about models, of compiled ones that were timed, of measurements and of devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

from ...costmodels.device import Cache
from ...engine.egraph.graph import RuleStatistics
from ...engine.egraph.loops import Acyclicity
from ...engine.verification.effect import StepCount
from ...extract.joint import JointCosts
from ...extract.partition.annotations.proof import Proof
from ...lowering.plan.kernel_facts import KernelFacts
from ...lowering.plan.manifest import Manifest, Point
from ...lowering.running.turns import Middle
from ..bench import Timing
from ..extract import Unrounded
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
    unrounded: Unrounded | None
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


LatencyOutput = TypedDict(
    "LatencyOutput",
    {
        "eqfuse_version": str, "schema": int, "threads": int, "repeat": int, "eqfuse": Timing,
        "ONNX Runtime": NotRequired[Timing], "speed-up": NotRequired[Timing],
    },
)  # fmt: skip
LatencyOutput.__doc__ = "`bench`: seconds of a run, and how many times as long ONNX Runtime takes."


class ReportOutput(Printed):
    """`report`: the bundle, and the file that was written."""

    bundle: str
    output: str


class ThroughputFields(TypedDict):
    """Calls a second, and the seconds that half of the calls, and 99 of 100, took at most."""

    rate: Middle
    p50: float
    p99: float


class ThroughputOutput(Printed):
    """`bench --throughput`."""

    clients: int
    threads: int
    slices: int
    throughputs: Mapping[str, ThroughputFields]
    gain: Middle | None
    slice_seconds: float


@dataclass(frozen=True, kw_only=True)
class KernelFields(KernelFacts):
    """A kernel that was timed: `seconds` of its calls in a run; `roofline` and `predicted` are those of one call."""

    seconds: float
    seconds_per_call: float


class KernelsOutput(Printed):
    """`bench --kernels`: seconds of a run, in all and by kernel."""

    threads: int
    repeat: int
    clock: str
    whole: float
    loops: Mapping[str, float]
    fallbacks: float
    between: float
    correlation: float | str | None
    kernels: Sequence[KernelFields]


class CountFields(TypedDict):
    """Instructions that an emulated board executed, by class, and misses of its caches by level."""

    instructions: int
    fused: int
    multiply_adds: int
    vector: int
    loads: int
    stores: int
    branches: int
    other: int
    stack: int
    misses: Mapping[str, int]


class EmulatedKernel(CountFields):
    """The counts of a kernel's calls."""

    kernel: str
    operators: Sequence[str]
    calls: int
    estimated_cycles: float


class RuntimeCounts(TypedDict):
    """ONNX Runtime on the same board."""

    version: str
    inference: CountFields


class EmulationOutput(Printed):
    """`bench --emulate`."""

    target: str
    inference: CountFields
    between_kernels: CountFields
    estimated_cycles: float
    estimated_seconds: float
    kernels: Sequence[EmulatedKernel]
    onnxruntime: NotRequired[RuntimeCounts]


SimulationOutput = TypedDict(
    "SimulationOutput",
    {
        "eqfuse_version": str, "schema": int, "device": str, "batch": int, "allocation": Mapping[str, Any],
        "variants": Mapping[str, Mapping[str, Any]], "speed-up": NotRequired[float],
    },
)  # fmt: skip
SimulationOutput.__doc__ = "`bench` of a program for an accelerator: the simulated figures of each variant."


EstimationOutput = TypedDict(
    "EstimationOutput",
    {
        "eqfuse_version": str, "schema": int, "device": str, "estimated_by": str, "system": str, "memory_mode": str,
        "variants": Mapping[str, Mapping[str, Any]], "speed-up": NotRequired[float],
    },
)  # fmt: skip
EstimationOutput.__doc__ = "`bench` of a program for an Ethos-U: Vela's estimate of it, and of its defaults."


class MeasuredFields(TypedDict):
    """A sub-graph that was measured on a device; `latency` and `spread` are seconds."""

    key: str
    device: str
    versions: Mapping[str, str]
    schedule: str
    latency: float
    spread: float
    runs: int
    measured_at: str
    subgraph: str
    template: str
    estimate: float


class MeasurementsOutput(Printed):
    """`profile list`."""

    measurements: Sequence[MeasuredFields]


class ExportOutput(Printed):
    """`profile export`."""

    file: str
    exported: int


class ImportOutput(Printed):
    """`profile import`: of those that were `read`, older ones were not `imported`."""

    file: str
    read: int
    imported: int


class ClearOutput(Printed):
    """`profile clear`."""

    database: str
    removed: int


class DeviceFields(TypedDict):
    """A processor; bandwidths are bytes/s, overheads are seconds, and `clock` is in Hz."""

    name: str
    cores: int
    vector_bits: int
    fma_ports: int
    clock: float
    caches: Sequence[Cache]
    dram_bandwidth: float
    launch_overhead: float
    view_overhead: float
    vector_registers: int
    issue_width: int
    load_ports: int
    store_ports: int
    mtriple: str
    mcpu: str
    mattr: Sequence[str]
    dot_product: str
    digest: str


class DevicesOutput(Printed):
    """`device list`."""

    devices: Sequence[DeviceFields]


class DeviceOutput(Printed, DeviceFields):
    """`device show`, `detect` and `measure`."""
