"""Which values are feature maps: compiled code stores those that kernels hand to each other with their channels last.

A feature map is a value of 3 to 5 dimensions (batch, channels, space) that a convolution, a pooling or an interpolation
of many channels makes or reads, itself or through operators that work on any layout. All other values, the sequences of
a transformer among them, are stored as ONNX has them: a matrix product packs its weights, not its activations.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import pairwise

from ...costmodels.traffic import UNMOVED
from ...ir.graph import Operator, OperatorGraph, Value
from ...ir.operators import CONVOLUTIONS, ELEMENTWISE, GLOBAL_POOLS, POOLS, REDUCTIONS
from ...support.directed_graphs import connected_components

_RANKS = range(3, 6)
FEWEST_CHANNELS = 8
"""A feature map of fewer channels is not copied to have them last: half a vector of AVX-512."""


class Role(Enum):
    """How an operator treats the layout of a feature map: its kernels exist per layout (WINDOW), it computes the
    same on any (ANY), or it reads and makes plain ones only, since it mixes the channels with other axes (PLAIN)."""

    WINDOW = 1
    ANY = 2
    PLAIN = 3


_WINDOWS = CONVOLUTIONS | POOLS | GLOBAL_POOLS | {"LpPool"}
_BY_AXIS = """
Sum Mean Dropout Identity BatchNormalization InstanceNormalization GroupNormalization LayerNormalization LRN
Softmax LogSoftmax Hardmax CumSum Concat Split Slice Pad Gather Tile Expand GridSample
"""
_ANY = frozenset(_BY_AXIS.split()) | REDUCTIONS
"""Operators that name the axes on which they work; each axis is another one in another layout."""


@dataclass(frozen=True)
class FeatureMaps:
    """The feature maps of a graph, and how its operators treat them."""

    graph: OperatorGraph

    @cached_property
    def roles(self) -> tuple[Role, ...]:
        """Per operator."""
        return tuple(map(self._role, self.graph.operators))

    @cached_property
    def values(self) -> frozenset[int]:
        """The values that are feature maps."""
        alike: dict[int, list[int]] = {value: [] for value in range(len(self.graph.values)) if self._is_map(value)}
        seeds: set[int | None] = set()
        for operator, role in zip(self.graph.operators, self.roles, strict=True):
            if role is Role.WINDOW or (role is Role.ANY and self._mixes_pixels(operator)):
                seeds |= {operator.inputs[0], operator.outputs[0]}
            if role is Role.ANY:
                for first, second in pairwise(self._alike(operator)):
                    alike[first].append(second)
        return frozenset(v for part in connected_components(alike) if not seeds.isdisjoint(part) for v in part)

    def _role(self, operator: Operator) -> Role:
        if operator.is_opaque or not operator.inputs or not operator.outputs:
            return Role.PLAIN
        if operator.op in _WINDOWS:
            return Role.WINDOW
        if operator.op in _ANY:
            return Role.ANY
        if operator.op == "Transpose":
            perm = operator.attributes.get("perm")
            return Role.ANY if isinstance(perm, tuple) and perm[:2] == (0, 1) else Role.PLAIN
        if operator.op in UNMOVED or operator.op == "Resize":
            return Role.ANY if self._keeps_channels(operator) else Role.PLAIN
        return Role.ANY if operator.op in ELEMENTWISE else Role.PLAIN

    def _mixes_pixels(self, operator: Operator) -> bool:
        """Whether it interpolates feature maps of enough channels for vectors: along rows each neighbour is one
        load."""
        if not interpolates(operator):
            return False
        channels = _shape(self.graph.values[operator.outputs[0]])[1]
        return isinstance(channels, int) and channels >= FEWEST_CHANNELS

    def _keeps_channels(self, operator: Operator) -> bool:
        if operator.inputs[0] is None:
            return False
        source, result = (_shape(self.graph.values[v])[:2] for v in (operator.inputs[0], operator.outputs[0]))
        return len(source) == 2 and source == result

    def _alike(self, operator: Operator) -> list[int]:
        """Values whose axes correspond: those of the rank of the first output, or the ends of a view or GridSample."""
        values = [v for v in (*operator.inputs, *operator.outputs) if v is not None and self._is_map(v)]
        if operator.op in UNMOVED or operator.op == "GridSample":
            return [v for v in values if v in (operator.inputs[0], operator.outputs[0])]
        rank = len(_shape(self.graph.values[operator.outputs[0]]))
        return [v for v in values if len(_shape(self.graph.values[v])) == rank]

    def _is_map(self, value: int) -> bool:
        """Whether it may be one. Constants are stored as their readers need them, before any run."""
        return not self.graph.values[value].is_constant and len(_shape(self.graph.values[value])) in _RANKS


def interpolates(operator: Operator) -> bool:
    """Whether each element of the result is a mean of neighbours, or all channels are read at a place of its own."""
    return operator.op == "GridSample" or (operator.op == "Resize" and operator.attributes.get("mode") != "nearest")


def _shape(value: Value) -> tuple[int | str, ...]:
    return () if value.type is None or value.type.shape is None else value.type.shape
