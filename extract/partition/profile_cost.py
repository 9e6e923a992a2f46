"""Prices of operators as they were measured, where they were; the roofline's elsewhere (DNNFusion, section 4.3)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import median

from ...costmodels.device import Device
from ...costmodels.model import CostModel, RooflineCost
from ...costmodels.profile import ProfileDatabase
from ...ir.graph import Operator, OperatorGraph, Value
from ...ir.operation import Attributes
from ...ir.types import TensorType
from .canonical_key import subgraph_key


@dataclass(frozen=True)
class ProfileCost:
    """Seconds on `device` from the profile database, launch included, for operators that were measured alone there.

    What was only measured fused with others tells nothing about one operator: the partition uses that. What was not
    measured takes `calibration` times as long as by the roofline, which nothing that is measured reaches.
    """

    device: Device
    database: ProfileDatabase
    calibration: float = 1.0
    name: str = "profile"
    unit: str = "s"
    _roofline: CostModel = field(init=False, compare=False)
    _known: dict[str, float | None] = field(init=False, default_factory=dict, compare=False, repr=False)

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
            return self.calibration * estimate
        measured = self._measured(op, attributes, operands, output, constant)
        return self.calibration * estimate if measured is None else measured

    def calibrated(self, graph: OperatorGraph) -> ProfileCost:
        """The same, its calibration the median of what operators of a graph take beyond the roofline."""
        if not self.is_used:
            return self
        found = ((self._ratio(graph, operator)) for operator in graph.operators)
        ratios = [ratio for ratio in found if ratio is not None]
        return replace(self, calibration=median(ratios)) if ratios else self

    def _ratio(self, graph: OperatorGraph, operator: Operator) -> float | None:
        given = [None if value is None else graph.values[value] for value in operator.inputs]
        operands = tuple(None if value is None else value.type for value in given)
        constant = tuple(value is None or value.is_constant for value in given)
        output = graph.values[operator.outputs[0]].type
        if output is None or operator.is_opaque:
            return None
        measured = self._measured(operator.op, operator.attributes, operands, output, constant)
        estimate = self._roofline.price(operator.op, operator.attributes, operands, output, constant=constant)
        return measured / estimate if measured is not None and estimate > 0.0 else None

    @cached_property
    def is_used(self) -> bool:
        """Whether anything was measured on the device."""
        return bool(self.database.all(device=self.device.name))

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
