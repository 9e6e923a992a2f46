"""Measured costs of operators, and the roofline's for those without a measurement (DNNFusion, section 4.3)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import median

from ...costmodels.device import Device
from ...costmodels.measuring.profile import ProfileDatabase
from ...costmodels.model import CostModel, RooflineCost
from ...ir.graph import Operator, OperatorGraph, Value
from ...ir.operation import Operation
from ...ir.types import TensorType
from .canonical_key import subgraph_key


@dataclass(frozen=True)
class ProfileCost:
    """Seconds on `device` from the profile database, launch included, for operators that were measured alone there.

    A measurement of fused operators tells nothing about one of them: the partition uses it. An operator without a
    measurement takes `calibration` times as long as by the roofline, which no measurement reaches.
    """

    device: Device
    database: ProfileDatabase
    calibration: float = 1.0
    name: str = "profile"
    unit: str = "s"
    _roofline: CostModel = field(init=False, compare=False)
    _seconds: dict[str, float | None] = field(init=False, default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_roofline", RooflineCost(self.device))

    def cost(self, operation: Operation) -> float:
        """The fastest measurement, else the roofline's time."""
        estimate = self._roofline.cost(operation)
        if operation.output_type is None or not self.is_used or all(operation.constant):
            return self.calibration * estimate
        measured = self._measurement(operation, operation.output_type)
        return self.calibration * estimate if measured is None else measured

    def calibrate(self, graph: OperatorGraph) -> ProfileCost:
        """The model whose calibration is the median by which the measured operators of a graph exceed the roofline."""
        ratios = []
        for operator, operation in zip(graph.operators, graph.operations, strict=True):
            if not self.is_used or operator.is_opaque or operation.output_type is None:
                continue
            constant = tuple(v is None or graph.values[v].is_constant for v in operator.inputs)
            measured = self._measurement(replace(operation, constant=constant), operation.output_type)
            estimate = self._roofline.cost(replace(operation, constant=constant))
            if measured is not None and estimate > 0.0:
                ratios.append(measured / estimate)
        return replace(self, calibration=median(ratios)) if ratios else self

    @cached_property
    def is_used(self) -> bool:
        """Whether anything was measured on the device."""
        return bool(self.database.all(device=self.device.name))

    def _measurement(self, operation: Operation, output: TensorType) -> float | None:
        key = subgraph_key(_alone(operation, output), (0,))
        if key is None:
            return None
        if key not in self._seconds:
            best = self.database.best(key, self.device.name)
            self._seconds[key] = None if best is None else best.latency
        return self._seconds[key]


def _alone(operation: Operation, output: TensorType) -> OperatorGraph:
    """The graph of one operator. It does not show that an operand is read twice, and neither do costs of nodes."""
    given = [number for number, type_ in enumerate(operation.types) if type_ is not None]
    values = [Value(f"x{number}", operation.types[number], None, operation.constant[number]) for number in given]
    places = {number: place for place, number in enumerate(given)}
    inputs = tuple(places.get(number) for number in range(len(operation.types)))
    operator = Operator("alone", operation.op, operation.attributes, inputs, (len(values),))
    return OperatorGraph((operator,), (*values, Value("y", output, 0, is_output=True)))
