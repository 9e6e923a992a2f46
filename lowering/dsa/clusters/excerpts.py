"""One cluster's part of a network that several run together: ``Network, layers, segments -> Excerpted``.

Of each segment the cluster computes its part of the results, from the parts of values that these need. What it reads of
other segments' results is an input of its network, and its part of results that others read is an output. Layers
become those of tiles (tiles/local_graph.py), at the size of these parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ....ir.graph import Operator, OperatorGraph, Value
from ....ir.types import TensorType
from ..network.boxes import Box, shape_of
from ..network.excerpts import Excerpt
from ..network.graph import Network
from ..network.rewriting import ConstantSlice
from ..network.subgraphs import Layer
from ..schedule.clusters import Segment
from ..tiles.local_graph import Tile, local_graph
from .segments import part_of


@dataclass(frozen=True)
class Excerpted:
    """A cluster's network: its graph and layers, where its inputs and outputs are in the whole, and of which constants
    its own are parts. `origins` has the value of the whole for each input and output."""

    graph: OperatorGraph
    layers: tuple[Layer, ...]
    excerpt: Excerpt
    slices: Mapping[str, ConstantSlice]
    origins: Mapping[int, int]


def excerpt_of(
    network: Network, layers: Sequence[Layer], segments: Sequence[Segment], cluster: int, clusters: int
) -> Excerpted:
    """The part of one of the clusters. Raises DsaError if a layer cannot be computed in parts."""
    cutter = _Cutter(network, cluster, clusters)
    for number, segment in enumerate(segments):
        cutter.add_segment(number, segment, layers[segment.first : segment.last])
    return cutter.result()


@dataclass
class _Cutter:
    network: Network
    cluster: int
    clusters: int
    operators: list[Operator] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    layers: list[Layer] = field(default_factory=list)
    stages: list[int] = field(default_factory=list)
    origins: dict[int, int] = field(default_factory=dict)
    frames: dict[int, Box] = field(default_factory=dict)
    slices: dict[str, ConstantSlice] = field(default_factory=dict)
    constants: dict[tuple[int, Box], int] = field(default_factory=dict)
    inputs: dict[tuple[int, int, Box], int] = field(default_factory=dict)
    """The new values for constants, and for inputs by the stage that reads them."""

    def result(self) -> Excerpted:
        maps = frozenset(new for new, old in self.origins.items() if self._is_map(old))
        graph = OperatorGraph(tuple(self.operators), tuple(self.values))
        excerpt = Excerpt(tuple(self.stages), self.frames, maps)
        return Excerpted(graph, tuple(self.layers), excerpt, self.slices, self.origins)

    def _is_map(self, value: int) -> bool:
        axes = self.network.axes[value]
        return axes != tuple(range(len(axes)))

    def add_segment(self, stage: int, segment: Segment, layers: Sequence[Layer]) -> None:
        """Add the operators that make this cluster's part of a segment's results."""
        graph, members = self.network.graph, sorted(index for layer in layers for index in layer)
        inside = set(members)
        wanted: dict[int, Box] = {}
        for index in members:
            for value in graph.operators[index].outputs:
                if graph.values[value].is_output or not inside >= set(graph.consumers[value]):
                    part = part_of(self.network.shapes[value], segment.axis, self.cluster, self.clusters)
                    if part is not None:
                        wanted[value] = part
        needed = self.network.needs(members, wanted)
        made: dict[int, int] = {}
        for layer in layers:
            self._layer(stage, layer, needed, wanted, made)
            for value in sorted(wanted.keys() & {v for index in layer for v in graph.operators[index].outputs}):
                is_read = not inside.difference(layer).isdisjoint(graph.consumers[value])
                self._hand_out(stage, value, made[value], needed[value], wanted[value], is_read)

    def _layer(
        self, stage: int, layer: Layer, needed: Mapping[int, Box], wanted: Mapping[int, Box], made: dict[int, int]
    ) -> None:
        """Add a layer's tile of all that the segment needs of its results; `made` are values of the segment so far."""
        graph, members = self.network.graph, tuple(sorted(layer))
        inside = set(members)
        results = [
            value
            for index in members
            for value in graph.operators[index].outputs
            if value in needed and (value in wanted or not inside >= set(graph.consumers[value]))
        ]
        if not results:
            return
        outputs = {value: needed[value] for value in results}
        boxes = self.network.needs(members, outputs)
        read = sorted({v for i in members for v in graph.operators[i].inputs if v is not None and v in boxes})
        operands = [value for value in read if graph.values[value].producer not in inside]
        inputs = [(value, needed[value] if value in made else boxes[value]) for value in operands]
        local = local_graph(self.network, Tile(members, tuple(inputs), tuple(outputs.items())))
        numbers: dict[int, int] = {}
        for place, (value, box) in enumerate(inputs):
            numbers[place] = made[value] if value in made else self._operand(stage, value, box)
        for place, value in enumerate(results, start=len(inputs)):
            made[value] = numbers[place] = self._value(graph.values[value].name, local.values[place].type)
        for place in range(len(inputs) + len(results), len(local.values)):
            name = f"{graph.values[results[-1]].name}.{local.values[place].name}"
            numbers[place] = self._value(name, local.values[place].type)
        first = len(self.operators)
        for operator in local.operators:
            self._add(stage, operator, numbers)
        self.layers.append(tuple(range(first, len(self.operators))))

    def _add(self, stage: int, operator: Operator, numbers: Mapping[int, int]) -> None:
        index = len(self.operators)
        outputs = tuple(numbers[place] for place in operator.outputs)
        inputs = tuple(None if place is None else numbers[place] for place in operator.inputs)
        name = f"{self.values[outputs[0]].name}:{operator.op}"
        self.operators.append(replace(operator, name=name, inputs=inputs, outputs=outputs))
        self.stages.append(stage)
        for value in outputs:
            self.values[value] = replace(self.values[value], producer=index)

    def _value(self, name: str, type_: TensorType | None) -> int:
        self.values.append(Value(name, type_))
        return len(self.values) - 1

    def _hand_out(self, stage: int, value: int, made: int, box: Box, part: Box, is_read: bool) -> None:
        """Make the cluster's part of a result an output: a copy, if the cluster reads it too."""
        if is_read or box != part:
            made = self._copy(stage, made, box, part)
        self.values[made] = replace(self.values[made], is_output=True)
        self._note(made, value, part)

    def _copy(self, stage: int, source: int, box: Box, part: Box) -> int:
        """A layer that copies a part of a value."""
        type_ = self.values[source].type
        assert type_ is not None
        copy = self._value(f"{self.values[source].name}.part", TensorType(type_.dtype, shape_of(part)))
        cut = [(axis, b[0] - a[0], b[1] - a[0]) for axis, (a, b) in enumerate(zip(box, part, strict=True)) if a != b]
        attributes = {
            "starts": tuple(start for _, start, _ in cut), "ends": tuple(stop for *_, stop in cut),
            "axes": tuple(axis for axis, *_ in cut), "steps": (1,) * len(cut),
        }  # fmt: skip
        operator = Operator("", "Slice", attributes, (0,), (1,)) if cut else Operator("", "Identity", {}, (0,), (1,))
        self.layers.append((len(self.operators),))
        self._add(stage, operator, {0: source, 1: copy})
        return copy

    def _operand(self, stage: int, value: int, box: Box) -> int:
        """What a layer reads of a constant, of an input of the network, or of what other segments make."""
        old = self.network.graph.values[value]
        assert old.type is not None
        type_ = TensorType(old.type.dtype, shape_of(box))
        if old.is_constant:
            if (value, box) not in self.constants:
                self.constants[value, box] = self._constant(value, box, type_)
            return self.constants[value, box]
        if (stage, value, box) not in self.inputs:
            source = self._value(f"{old.name}.{stage}", type_)
            self._note(source, value, box)
            self.inputs[stage, value, box] = source if old.producer is None else self._copy(stage, source, box, box)
        return self.inputs[stage, value, box]

    def _note(self, new: int, value: int, box: Box) -> None:
        self.origins[new] = value
        shape = self.network.shapes[value]
        self.frames[new] = tuple((-start, extent - start) for (start, _), extent in zip(box, shape, strict=True))

    def _constant(self, value: int, box: Box, type_: TensorType) -> int:
        """A part of a constant: a slice of a slice, if it is cut along several axes."""
        name = self.network.graph.values[value].name
        for axis, (interval, extent) in enumerate(zip(box, self.network.shapes[value], strict=True)):
            if interval != (0, extent):
                part = f"{name}[{axis}:{interval[0]}:{interval[1]}]"
                self.slices[part] = ConstantSlice(name, axis, *interval)
                name = part
        self.values.append(Value(name, type_, is_constant=True))
        return len(self.values) - 1
