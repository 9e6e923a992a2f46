"""How to optimise: what the command line and the API may ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from onnx import defs

from ..costmodels.device import Device, default_device, load_device
from ..costmodels.model import CostModel, cost_model
from ..costmodels.profile import ProfileDatabase
from ..engine.choices import CostName, Extraction, PartitionMethod
from ..engine.egraph.messages import RuleSelection
from ..engine.egraph.saturate import Budget
from ..extract.partition.profile_cost import ProfileCost
from ..rules.places import rule_paths
from ..rules.vocabulary import Precision
from ..support.options import (
    NotNegative,
    NotNegativeInteger,
    OptionError,
    Positive,
    PositiveInteger,
    check_options,
)

SATURATION_SHARE = 0.6
CHECK_SHARE = 0.1
EXTRACTION_SHARE = 0.3
"""The parts of the time limit that saturation, the check of constants, and each extraction may take at most: what the
ones before have made is worth nothing without those after. Sub-graphs get what is left."""


def cost_model_of(name: CostName, device: Device) -> CostModel:
    """The cost model of that name; "profile" has the user's measurements, and the roofline where there are none."""
    if name == "profile":
        return ProfileCost(device, ProfileDatabase.open())
    return cost_model(name, device)


@dataclass(frozen=True)
class Options:
    """How to optimise. The command line's options are these fields. Raises OptionError for what cannot be used.

    Without a `device` prices are for a named class of processors, or of this machine where they were measured on it.
    """

    cost: CostName = "roofline"
    device: str = ""
    precision: Precision = "real"
    rules: tuple[Path, ...] = ()
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    trust_rules: bool = False
    time_limit: Positive = 30.0
    node_limit: PositiveInteger = 50_000
    iterations: PositiveInteger = 200
    extraction: Extraction = "exact"
    opset: PositiveInteger | None = None
    input_shapes: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)
    verify: bool = True
    inputs: tuple[Path, ...] = ()
    atol: NotNegative | None = None
    rtol: NotNegative | None = None
    verify_limit: Positive = 300.0
    seed: NotNegativeInteger = 0
    partition: PartitionMethod = "none"
    as_functions: bool = False
    certify: bool = False
    certificate: Path | None = None
    intensive: bool = True

    def __post_init__(self) -> None:
        check_options(self)
        if not self.device:
            object.__setattr__(self, "device", default_device(self.cost))
        for name in ("as_functions", "certify", "certificate"):
            if self.partition == "none" and getattr(self, name):
                raise OptionError(name, "is about sub-graphs, and partition is none")
        if self.partition == "joint" and self.cost == "flops":
            raise OptionError("partition", "joint minimises time; it cannot be had with cost flops")
        if self.opset is not None and self.opset > (newest := defs.onnx_opset_version()):
            raise OptionError("opset", f"{self.opset} is not known here; the newest is {newest}")

    @property
    def selection(self) -> RuleSelection:
        """Which rules to use."""
        return RuleSelection(self.rules, self.precision, self.only, self.skip)

    @property
    def trusted(self) -> tuple[str, ...]:
        """The rule files that are used without a check, by name."""
        return tuple(path.name for path in rule_paths(self.rules)) if self.trust_rules else ()

    @property
    def cost_model(self) -> CostModel:
        """What extraction minimises."""
        return cost_model_of(self.cost, load_device(self.device))

    @property
    def budget(self) -> Budget:
        """How far to saturate."""
        return Budget(self.node_limit, SATURATION_SHARE * self.time_limit, self.iterations)
