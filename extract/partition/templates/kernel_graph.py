"""A graph as the templates see it: the data that sets of its operators share."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property

from ....costmodels.device import Device
from ....costmodels.scheduled import run_seconds, scheduled_seconds
from ....ir.graph import Operator, OperatorGraph
from ....ir.index_maps import OperatorCall, index_maps
from ....ir.operators import OPERATORS, SCHEMAS, VIEWS
from ..feature_maps import FeatureMaps
from ..loops import Misaligned
from ..operator_loops import OperatorLoops
from ..placement import find_in_place

_OTHERS = frozenset({"Sum", "Mean", "Dropout", "Shape", "Size", "LRN"})
"""Operators that rules cannot look into, and that may be in one kernel with others all the same."""


@dataclass
class KernelGraph:
    """A graph for the kernels of a device that run on `threads` threads; the data that sets of its operators share.

    If views are not `views_apart`, they are operators of kernels like others. `alone` have no lowering.
    """

    graph: OperatorGraph
    device: Device
    threads: int = 1
    views_apart: bool = True
    alone: Collection[int] = ()
    made: dict[tuple[int, ...], float] = field(default_factory=dict)
    """Seconds of what makes the results whose extremes kernels find, by its operators; infinite if it is no kernel."""
    _loops: dict[int, tuple[OperatorLoops, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        operations = self.graph.operations
        self.compute = [scheduled_seconds(operation, self.device) for operation in operations]
        self.copying = [run_seconds(operation, self.device) for operation in operations]
        self.sizes = [value.extent.bytes for value in self.graph.values]

    @cached_property
    def weights_bandwidth(self) -> float:
        """Bytes/s of the level that weights come from: a run reads all of them before it reads one again."""
        constants = (size for size, value in zip(self.sizes, self.graph.values, strict=True) if value.is_constant)
        return self.device.bandwidth(sum(constants))

    @cached_property
    def maps(self) -> frozenset[int]:
        """The values that are feature maps of several pixels: kernels store them with their channels last."""
        values = self.graph.values
        return frozenset(v for v in FeatureMaps(self.graph).values if set(values[v].extent.dimensions[2:]) != {1})

    def is_view(self, member: int) -> bool:
        """Whether an operator gives the elements of its operand another shape, and moves none."""
        operator = self.graph.operators[member]
        is_known = operator.op in VIEWS and not operator.is_opaque and bool(operator.inputs)
        return self.views_apart and is_known and operator.inputs[0] is not None

    def is_no_kernel(self, members: Collection[int]) -> bool:
        """Whether operators move nothing: views, or one whose parts kernels write or read in place."""
        return all(map(self.is_view, members)) or (len(members) == 1 and not self.in_place.isdisjoint(members))

    @cached_property
    def in_place(self) -> frozenset[int]:
        """The Concats, Splits and Slices that are no kernels if they are groups by themselves."""
        return frozenset(find_in_place(self.graph, self.alone)) if self.views_apart else frozenset()

    def shape(self, value: int | None) -> tuple[int, ...]:
        """The shape of a value that is there, with the sizes that the cost models assume for dynamic dimensions."""
        assert value is not None
        return self.graph.values[value].extent.dimensions

    def operator_loops(self, member: int) -> tuple[OperatorLoops, ...]:
        """The loops of each result. Raises Misaligned if the operator's index maps are not known."""
        if member not in self._loops:
            self._loops[member] = self._make_operator_loops(self.graph.operators[member])
        if not self._loops[member]:
            raise Misaligned
        return self._loops[member]

    def _make_operator_loops(self, operator: Operator) -> tuple[OperatorLoops, ...]:
        schema = SCHEMAS.get(operator.op) if operator.op in OPERATORS or operator.op in _OTHERS else None
        if schema is None or schema.index_maps is None or operator.is_opaque:
            return ()
        operands = tuple(None if v is None else self.extents(v) for v in operator.inputs)
        results = tuple(map(self.extents, operator.outputs))
        calls = (OperatorCall(operator.attributes, operands, results, number) for number in range(len(results)))
        maps = [index_maps(schema.index_maps, call) for call in calls]
        return tuple(OperatorLoops(m) for m in maps if m is not None) if None not in maps else ()

    def extents(self, value: int) -> tuple[int, ...]:
        """The shape of a value. Raises Misaligned if it is not known."""
        type_ = self.graph.values[value].type
        if type_ is None or type_.shape is None:
            raise Misaligned
        return self.graph.values[value].extent.dimensions
