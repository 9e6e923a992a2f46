"""The options of the API and of the command line: one frozen dataclass for each function, checked when it is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from onnx import defs

from ..costmodels.device import default_device, load_device
from ..costmodels.model import CostModel, cost_model
from ..costmodels.runtime import Runtime, load_runtime
from ..engine.choices import CostName, Extraction, PartitionMethod
from ..engine.egraph.saturate import Budget
from ..rules.places import rule_paths
from ..rules.vocabulary import Precision, RuleSelection
from ..support.options import (
    NotNegative,
    NotNegativeInteger,
    OptionError,
    Positive,
    PositiveInteger,
    check_options,
)
from .sizes import Sizes

__all__ = [  # with the types of the options, for their users
    "CHECK_SHARE", "EXTRACTION_SHARE", "NO_SHAPES", "BenchOptions", "CostName", "Extraction", "InspectOptions",
    "MeasureOptions", "Options", "PartitionMethod", "Precision", "PricingOptions", "Shapes", "VerifyOptions",
]  # fmt: skip

SEARCH_SECONDS = 30.0
"""Seconds of the search (saturation, extraction, partition) unless the user gives a time limit."""
VERIFICATION_SECONDS = 300.0
"""Seconds of verification unless the user gives a limit for it or for everything."""
SATURATION_SHARE = 0.6
CHECK_SHARE = 0.1
EXTRACTION_SHARE = 0.3
"""Shares of the search: saturation, the check of constants, and each extraction take at most this much, because a
phase is worth nothing unless the phases after it still have time. The partition gets the rest."""

Shapes = Mapping[str, tuple[int | str, ...]]
"""New shapes of inputs, by name."""
NO_SHAPES: Shapes = MappingProxyType({})


@dataclass(frozen=True)
class PricingOptions:
    """What to minimise and for which device: the options of `diff`. Raises OptionError for a value that is invalid.

    The default device is a named class of processors, or this machine where `cost` is "profile": times were measured
    on it.
    """

    cost: CostName = "roofline"
    device: str = ""

    def __post_init__(self) -> None:
        check_options(self)
        if not self.device:
            object.__setattr__(self, "device", default_device(self.cost))

    @property
    def cost_model(self) -> CostModel:
        """What extraction minimises; "profile" uses the user's measurements, and the roofline where there are none."""
        device = load_device(self.device)
        if self.cost != "profile":
            return cost_model(self.cost, device)
        from ..costmodels.profile import ProfileDatabase  # with SQLite, which takes time to import
        from ..extract.partition.profile_cost import ProfileCost

        return ProfileCost(device, ProfileDatabase.open())


@dataclass(frozen=True)
class InspectOptions(PricingOptions):
    """The options of `inspect`: fields and command-line options have the same names."""

    input_shapes: Shapes = field(default_factory=dict)
    dim: tuple[str, ...] = ()
    partition: PartitionMethod | None = None
    certificate: Path | None = None
    certify: bool = False
    time_limit: Positive = 10.0


@dataclass(frozen=True)
class VerifyOptions:
    """The options of `verify`: fields and command-line options have the same names."""

    input_shapes: Shapes = field(default_factory=dict)
    inputs: tuple[Path, ...] = ()
    atol: NotNegative | None = None
    rtol: NotNegative | None = None
    verify_limit: Positive = VERIFICATION_SECONDS
    seed: NotNegativeInteger = 0
    custom_ops: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True)
class BenchOptions:
    """The options of `bench`: fields and command-line options have the same names."""

    against: str | None = None
    trace: Path | None = None
    model: Path | None = None
    kernels: bool = False
    repeat: PositiveInteger | None = None
    inputs: tuple[Path, ...] = ()
    threads: PositiveInteger | None = None
    throughput: PositiveInteger | None = None
    batch: PositiveInteger | None = None
    emulate: bool = False
    arm64_root: Path | None = None

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True)
class MeasureOptions:
    """How long `optimize` times candidates for its result in ONNX Runtime (None: it does not), and on how many threads.

    Fields and command-line options have the same names. Raises OptionError for a value that is invalid.
    """

    measure: Positive | None = None
    threads: PositiveInteger | None = None

    def __post_init__(self) -> None:
        check_options(self)
        if self.threads is not None and self.measure is None:
            raise OptionError("threads", "is for measure, which was not asked for")

    def check_beside(self, options: Options) -> None:
        """Raise OptionError where they do not fit other options."""
        if self.measure is not None and options.partition != "none":
            raise OptionError("measure", "times whole graphs, and a partition was asked for; give one of the two")


@dataclass(frozen=True)
class Options(PricingOptions):
    """The options of `optimize`: fields and command-line options have the same names. Raises OptionError for a value
    that is invalid."""

    precision: Precision = "real"
    rules: tuple[Path, ...] = ()
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    trust_rules: bool = False
    time_limit: Positive | None = None
    node_limit: PositiveInteger = 50_000
    iterations: PositiveInteger = 200
    extraction: Extraction = "exact"
    runtime: str = "onnxruntime"
    opset: PositiveInteger | None = None
    input_shapes: Shapes = field(default_factory=dict)
    dim: tuple[str, ...] = ()
    typical: tuple[str, ...] = ()
    range: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    custom_ops: tuple[Path, ...] = ()
    verify: bool = True
    inputs: tuple[Path, ...] = ()
    atol: NotNegative | None = None
    rtol: NotNegative | None = None
    verify_limit: Positive | None = None
    seed: NotNegativeInteger = 0
    partition: PartitionMethod = "none"
    as_functions: bool = False
    certify: bool = False
    certificate: Path | None = None
    intensive: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        load_runtime(self.runtime)
        for name in ("as_functions", "certify", "certificate"):
            if self.partition == "none" and getattr(self, name):
                raise OptionError(name, "is about sub-graphs, and partition is none")
        if self.partition == "joint" and self.cost == "flops":
            raise OptionError("partition", "joint minimises time; it cannot be had with cost flops")
        if self.opset is not None and self.opset > (newest := defs.onnx_opset_version()):
            raise OptionError("opset", f"{self.opset} is not known here; the newest is {newest}")
        if self.typical or self.range:
            self.sizes  # noqa: B018  raises OptionError

    @property
    def sizes(self) -> Sizes:
        """The user's facts about the sizes of free dimensions. Raises OptionError for a text of another form."""
        return Sizes.of(self.typical, self.range)

    @property
    def priced_runtime(self) -> Runtime:
        """The runtime; only its forms where FLOPs or the kernels of a partition are minimised, not its time."""
        runtime = load_runtime(self.runtime).on(load_device(self.device).mtriple.partition("-")[0])
        return runtime if self.partition == "none" and self.cost != "flops" else runtime.forms

    @property
    def selection(self) -> RuleSelection:
        """Which rules to use."""
        return RuleSelection(self.rules, self.precision, self.only, self.skip, self.domains)

    @property
    def trusted(self) -> tuple[str, ...]:
        """The rule files that are used without a check, by name."""
        return tuple(path.name for path in rule_paths(self.rules)) if self.trust_rules else ()

    @property
    def search_seconds(self) -> float:
        """The most seconds that the search may take: all of a time limit, from which `optimize` keeps some back."""
        return self.time_limit or SEARCH_SECONDS

    @property
    def verification_seconds(self) -> float:
        """The most seconds that verification may take."""
        return self.verify_limit or self.time_limit or VERIFICATION_SECONDS

    @property
    def budget(self) -> Budget:
        """How far to saturate."""
        return Budget(self.node_limit, SATURATION_SHARE * self.search_seconds, self.iterations)
