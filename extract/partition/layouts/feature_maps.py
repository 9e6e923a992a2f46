"""In which order the elements of a feature map are stored, which values are feature maps, and what a conversion costs.

A feature map is a value of 3 to 5 dimensions (batch, channels, space) that a convolution or a pooling makes or reads,
itself or through operators that work on any layout. All other values, the sequences of a transformer among them, are
stored as ONNX has them: a matrix product packs its weights, not its activations.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Literal

from ....costmodels.device import Device
from ....costmodels.roofline import seconds
from ....costmodels.traffic import VIEWS
from ....ir.graph import Operator, OperatorGraph, Value
from ....ir.operation import Extent, Operation
from ....ir.operators import CONVOLUTIONS, ELEMENTWISE, GLOBAL_POOLS, POOLS, REDUCTIONS
from ....support.directed_graphs import connected_components

Kind = Literal["plain", "channels_last", "blocked"]

_RANKS = range(3, 6)
_LEAST_BLOCK = 4


@dataclass(frozen=True, order=True)
class Layout:
    """An order of the axes: NCHW, NHWC, or NCHWc with `block` channels c innermost (1 for the others)."""

    kind: Kind = "plain"
    block: int = 1

    def __str__(self) -> str:
        return f"blocked by {self.block}" if self.kind == "blocked" else self.kind.replace("_", " ")


PLAIN = Layout()
CHANNELS_LAST = Layout("channels_last")


def layouts(device: Device) -> tuple[Layout, ...]:
    """The layouts a group may run in; blocks are as long as a vector of `device`."""
    blocked = (Layout("blocked", device.lanes),) if device.lanes >= _LEAST_BLOCK else ()
    return (PLAIN, CHANNELS_LAST, *blocked)


class Role(Enum):
    """How an operator treats the layout of a feature map: its kernels exist per layout (WINDOW), it computes the
    same on any (ANY), or it reads and makes plain ones only, since it mixes the channels with other axes (PLAIN)."""

    WINDOW = 1
    ANY = 2
    PLAIN = 3


_WINDOWS = CONVOLUTIONS | POOLS | GLOBAL_POOLS | {"LpPool"}
_BY_AXIS = """
Sum Mean Dropout Identity BatchNormalization InstanceNormalization GroupNormalization LayerNormalization LRN
Softmax LogSoftmax Hardmax CumSum Concat Split Slice Pad Gather Tile Expand
"""
_ANY = frozenset(_BY_AXIS.split()) | REDUCTIONS
"""Operators that name the axes they work on; each axis is another one in another layout."""


@dataclass(frozen=True)
class FeatureMaps:
    """The feature maps of a graph, and what its operators do with them."""

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
            if role is Role.WINDOW:
                seeds |= {operator.inputs[0], operator.outputs[0]}
            elif role is Role.ANY:
                for first, second in pairwise(self._alike(operator)):
                    alike[first].append(second)
        return frozenset(v for part in connected_components(alike) if not seeds.isdisjoint(part) for v in part)

    def stored(self, layout: Layout, value: int) -> Layout:
        """How a group that runs in `layout` stores a value: in the longest blocks that its channels fill, and plain
        where they fill none or it is no feature map."""
        if value not in self.values:
            return PLAIN
        if layout.kind != "blocked":
            return layout
        channels = _shape(self.graph.values[value])[1]
        block = layout.block
        while block >= _LEAST_BLOCK and isinstance(channels, int):
            if channels > 0 and channels % block == 0:
                return Layout("blocked", block)
            block //= 2
        return PLAIN

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
        if operator.op in VIEWS or operator.op == "Resize":
            return Role.ANY if self._keeps_channels(operator) else Role.PLAIN
        return Role.ANY if operator.op in ELEMENTWISE else Role.PLAIN

    def _keeps_channels(self, operator: Operator) -> bool:
        if operator.inputs[0] is None:
            return False
        source, result = (_shape(self.graph.values[v])[:2] for v in (operator.inputs[0], operator.outputs[0]))
        return len(source) == 2 and source == result

    def _alike(self, operator: Operator) -> list[int]:
        """Values whose axes correspond: those of the rank of the first output, or both ends of a view."""
        values = [v for v in (*operator.inputs, *operator.outputs) if v is not None and self._is_map(v)]
        if operator.op in VIEWS:
            return [v for v in values if v in (operator.inputs[0], operator.outputs[0])]
        rank = len(_shape(self.graph.values[operator.outputs[0]]))
        return [v for v in values if len(_shape(self.graph.values[v])) == rank]

    def _is_map(self, value: int) -> bool:
        """Whether it may be one. Constants are stored as it suits their readers, before any run."""
        return not self.graph.values[value].is_constant and len(_shape(self.graph.values[value])) in _RANKS


def conversion_seconds(value: Value, source: Layout, target: Layout, device: Device) -> float:
    """Time to store a feature map in another layout: that of a transposition, launch included; 0 where no element
    moves, as in maps of one pixel."""
    extent = value.extent
    block = max(source.block, target.block)
    batch, channels, *space = extent.dimensions
    sizes = (batch, channels // block, block, *space)
    before, after = _order(source, len(space)), _order(target, len(space))
    if [a for a in before if sizes[a] != 1] == [a for a in after if sizes[a] != 1] or not prod(sizes):
        return 0.0
    perm = tuple(before.index(axis) for axis in after)
    shapes = (tuple(sizes[axis] for axis in order) for order in (before, after))
    operand, result = (Extent(shape, extent.elements, extent.bytes) for shape in shapes)
    return seconds(Operation("Transpose", {"perm": perm}, (operand,), result), device)


def _order(layout: Layout, space: int) -> list[int]:
    """The order in memory of the axes: batch 0, blocks of channels 1, channels in a block 2, space from 3 on."""
    pixels = list(range(3, 3 + space))
    if layout.kind == "plain":
        return [0, 1, 2, *pixels]
    return [0, *pixels, 1, 2] if layout.kind == "channels_last" else [0, 1, *pixels, 2]


def _shape(value: Value) -> tuple[int | str, ...]:
    return () if value.type is None or value.type.shape is None else value.type.shape
