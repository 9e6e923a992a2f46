"""A network to schedule: an operator graph, its sizes on the accelerator, and which part of a value needs which."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from ....costmodels.flops import flops
from ....ir.graph import Operator, OperatorGraph
from ....ir.index_maps import OperatorCall
from ...base.errors import DsaError
from .alignment import round_up
from .boxes import Box, Shape, hull, size, whole
from .excerpts import Excerpt
from .operand_boxes import BoxRule, box_rule
from .storage import Axes, stored_axes

_FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})


@dataclass(frozen=True)
class Network:
    """`element_size` is the bytes that any float takes on the accelerator; other elements keep their size. With an
    `excerpt` it is a part of another network.

    Raises DsaError (from `shapes`) if the shape of a value is unknown or symbolic.
    """

    graph: OperatorGraph
    element_size: int = 2
    excerpt: Excerpt | None = None
    _rules: dict[tuple[int, int], BoxRule] = field(default_factory=dict, repr=False, compare=False)
    """By operator and result that it makes."""

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """Per value, its extents."""
        for value in self.graph.values:
            if value.type is None or not value.type.is_static:
                raise DsaError(f"tensor {value.name!r}: its shape is not static; give all shapes with --input-shapes")
        return tuple(value.extent.dimensions for value in self.graph.values)

    @cached_property
    def flops(self) -> tuple[float, ...]:
        """Per operator, its floating-point operations."""
        return tuple(map(flops, self.graph.operations))

    @cached_property
    def _widths(self) -> tuple[int, ...]:
        kinds = [v.type.dtype if v.type else "" for v in self.graph.values]
        own = [-(-v.extent.bytes // max(1, v.extent.elements)) for v in self.graph.values]
        return tuple(self.element_size if kind in _FLOATS else bytes_ for kind, bytes_ in zip(kinds, own, strict=True))

    @cached_property
    def axes(self) -> tuple[Axes, ...]:
        """Per value, the order of its axes in memory."""
        return stored_axes(self.graph, self.excerpt.maps if self.excerpt else frozenset())

    def frame(self, value: int) -> Box:
        """The box of a value's buffer in DDR: the value itself, unless it is a part of another one."""
        own = whole(self.shapes[value])
        return own if self.excerpt is None else self.excerpt.frames.get(value, own)

    def stage(self, operator: int) -> int:
        """The number of the stage of an operator: those of earlier stages run before it."""
        return 0 if self.excerpt is None else self.excerpt.stages[operator]

    def wire_bytes(self, value: int, box: Box, beat: int) -> int:
        """Bytes that a part takes on its way: each run of bytes in memory is whole beats."""
        shape, lengths = self.shapes[value], [stop - start for start, stop in box]
        run, inner = self._widths[value], list(self.axes[value])
        while inner and lengths[inner[-1]] == shape[inner[-1]]:
            run *= lengths[inner.pop()]
        if inner:
            run *= lengths[inner.pop()]
        return prod(lengths[axis] for axis in inner) * round_up(run, beat)

    def dtype(self, value: int) -> str:
        """How elements of a value are stored (numpy's name): floats of 2 bytes as float16."""
        type_ = self.graph.values[value].type
        assert type_ is not None
        return {2: "float16", 4: "float32", 8: "float64"}[self.element_size] if type_.dtype in _FLOATS else type_.dtype

    def bytes(self, value: int, box: Box | None = None) -> int:
        """Bytes of a part of a value on the accelerator, of all of it if no box is given."""
        return self._widths[value] * size(whole(self.shapes[value]) if box is None else box)

    def operands(self, index: int, result: int, box: Box) -> tuple[Box | None, ...]:
        """Per operand of an operator, the part that a part of value `result`, which it makes, needs."""
        rule = self._rules.get((index, result))
        if rule is None:
            operator = self.graph.operators[index]
            rule = box_rule(operator, self.call(operator, operator.outputs.index(result)))
            self._rules[index, result] = rule
        return rule(box)

    def call(self, operator: Operator, number: int = 0) -> OperatorCall:
        """An operator with the shapes that it reads and makes, asked for its result number `number`."""
        operands = tuple(None if v is None else self.shapes[v] for v in operator.inputs)
        return OperatorCall(operator.attributes, operands, tuple(self.shapes[v] for v in operator.outputs), number)

    def needs(
        self, members: Sequence[int], wanted: Mapping[int, Box | None], at_hand: Container[int] = ()
    ) -> dict[int, Box]:
        """The box of every value that operators, given in ascending order, need to make the wanted parts.

        It is the hull of the readers' boxes; wanted parts are included, and values that nothing needs are left out.
        What makes values that are `at_hand` is not followed.
        """
        boxes: dict[int, Box] = {value: box for value, box in wanted.items() if box is not None}
        for index in reversed(members):
            operator = self.graph.operators[index]
            for result in operator.outputs:
                if result in boxes and result not in at_hand:
                    operands = self.operands(index, result, boxes[result])
                    for value, box in zip(operator.inputs, operands, strict=True):
                        both = None if value is None else hull(boxes.get(value), box)
                        if value is not None and both is not None:
                            boxes[value] = both
        return boxes
