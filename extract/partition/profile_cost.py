"""Prices of operators as they were measured, where they were; the roofline's elsewhere (DNNFusion, section 4.3)."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...costmodels.device import Device
from ...costmodels.model import CostModel, RooflineCost
from ...costmodels.operation import Attributes
from ...costmodels.profile import ProfileDatabase
from ...costmodels.types import TensorType
from .canonical_key import subgraph_key
from .graph import Operator, OperatorGraph, Value


@dataclass(frozen=True)
class ProfileCost:
    """Seconds on `device` from the profile database, launch included, for operators that were measured alone there.

    What was only measured fused with others tells nothing about one operator: the partition uses that.
    """

    device: Device
    database: ProfileDatabase
    name: str = "profile"
    unit: str = "s"
    _roofline: CostModel = field(init=False, compare=False)
    _known: dict[str, float | None] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_roofline", RooflineCost(self.device))

    def price(
        self,
        op: str,
        attributes: Attributes,
        operands: tuple[TensorType | None, ...],
        output: TensorType | None,
        *,
        constant: tuple[bool, ...],
    ) -> float:
        """The fastest measurement, else the roofline's time."""
        estimate = self._roofline.price(op, attributes, operands, output, constant=constant)
        if output is None or not self.is_used or all(constant):
            return estimate
        measured = self._measured(op, attributes, operands, output, constant)
        return estimate if measured is None else measured

    @property
    def is_used(self) -> bool:
        """Whether anything was measured on the device."""
        if "" not in self._known:
            self._known[""] = float(bool(self.database.all(device=self.device.name)))
        return bool(self._known[""])

    def _measured(
        self,
        op: str,
        attributes: Attributes,
        operands: tuple[TensorType | None, ...],
        output: TensorType,
        constant: tuple[bool, ...],
    ) -> float | None:
        key = subgraph_key(_alone(op, attributes, operands, output, constant), (0,))
        if key is None:
            return None
        if key not in self._known:
            best = self.database.best(key, self.device.name)
            self._known[key] = None if best is None else best.latency
        return self._known[key]


def _alone(
    op: str,
    attributes: Attributes,
    operands: tuple[TensorType | None, ...],
    output: TensorType,
    constant: tuple[bool, ...],
) -> OperatorGraph:
    """The graph of one operator. Where an operand is read twice is not seen, as in prices of nodes."""
    given = [number for number, operand in enumerate(operands) if operand is not None]
    values = [Value(f"x{number}", operands[number], None, constant[number]) for number in given]
    places = {number: place for place, number in enumerate(given)}
    inputs = tuple(places.get(number) for number in range(len(operands)))
    operator = Operator("alone", op, attributes, inputs, (len(values),))
    return OperatorGraph((operator,), (*values, Value("y", output, 0, is_output=True)))
