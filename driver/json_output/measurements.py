"""What `--json` prints of compiled models that were timed, of measurements and of devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from ...costmodels.device import Cache
from ...lowering.running.turns import Middle
from ..bench import Timing
from .head import Printed

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


class KernelFields(TypedDict):
    """A kernel that was timed: `seconds` of its calls in a run; `roofline` and `predicted` are those of one call."""

    symbol: str
    operators: Sequence[str]
    rule: str
    calls: int
    multiply_adds: int
    flops: int
    bytes: int
    roofline: float
    predicted: float | None
    measured: float | None
    template: str
    apart: float
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
        "eqfuse_version": str, "schema": int, "device": str, "batch": int, "allocation": Mapping[str, int],
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
