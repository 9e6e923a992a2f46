"""Where a tile may lie elsewhere without being another tile.

An axis that all operators of a layer pass on element by element (the batch, mostly) has no border: what a tile computes
does not change when all its parts are moved along it. Axes of values are joined to such tracks where operators connect
them; any other use pins a track to its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ....ir.graph import Operator
from ....ir.operators import OPERATORS
from ..network.boxes import Box, Shape, axis_groups
from ..network.graph import Network
from ..network.operand_boxes import REDUCTIONS

Parts = tuple[tuple[int, Box], ...]
_Axis = tuple[int, int]
"""A value and one of its axes."""


@dataclass
class Shifts:
    """The tracks of one layer: `track` gives the number of each axis of a value, None where it is pinned."""

    network: Network
    members: tuple[int, ...]
    _parents: dict[_Axis, _Axis] = field(default_factory=dict)
    _pinned: set[_Axis] = field(default_factory=set)
    _tracks: dict[int, tuple[int | None, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for index in self.members:
            self._connect(self.network.graph.operators[index])

    def normal(self, inputs: Parts, outputs: Parts) -> tuple[Parts, Parts]:
        """The same tile, moved as near to the start of every track as it can be."""
        bases: dict[int, int] = {}
        for value, box in (*inputs, *outputs):
            for track, (start, _) in zip(self._track(value), box, strict=True):
                if track is not None and start < bases.get(track, start + 1):
                    bases[track] = start
        return self._moved(inputs, bases), self._moved(outputs, bases)

    def _moved(self, parts: Parts, bases: Mapping[int, int]) -> Parts:
        if not any(bases.values()):
            return parts
        return tuple(
            [
                (
                    value,
                    tuple(
                        [
                            i if t is None else (i[0] - bases[t], i[1] - bases[t])
                            for t, i in zip(self._tracks[value], box, strict=True)
                        ]
                    ),
                )
                for value, box in parts
            ]
        )

    def _track(self, value: int) -> tuple[int | None, ...]:
        if value not in self._tracks:
            numbers: dict[_Axis, int] = {root: n for n, root in enumerate(sorted(set(map(self._root, self._parents))))}
            pinned = set(map(self._root, self._pinned))
            roots = [self._root((value, axis)) for axis in range(len(self.network.shapes[value]))]
            self._tracks[value] = tuple(None if r in pinned or r not in numbers else numbers[r] for r in roots)
        return self._tracks[value]

    def _connect(self, operator: Operator) -> None:
        """Join the axes that an operator passes on; pin every one that it also reads or makes otherwise."""
        shapes = self.network.shapes
        operands = tuple(() if v is None else shapes[v] for v in operator.inputs)
        links = set(_links(operator, operands, shapes[operator.outputs[0]]))
        read, made = {(number, axis) for number, axis, _ in links}, {axis for _, _, axis in links}
        for number, axis, result_axis in links:
            value = operator.inputs[number]
            if value is not None:
                for result in operator.outputs:
                    self._join((value, axis), (result, result_axis))
        for number, value in enumerate(operator.inputs):
            if value is not None:
                self._pinned |= {(value, axis) for axis in range(len(shapes[value])) if (number, axis) not in read}
        for result in operator.outputs:
            self._pinned |= {(result, axis) for axis in range(len(shapes[result])) if axis not in made}

    def _root(self, axis: _Axis) -> _Axis:
        while self._parents.get(axis, axis) != axis:
            axis = self._parents[axis]
        return axis

    def _join(self, first: _Axis, second: _Axis) -> None:
        for axis in (first, second):
            self._parents.setdefault(axis, axis)
        self._parents[self._root(first)] = self._root(second)


Link = tuple[int, int, int]
"""Element i of an axis of the result needs element i of an axis of an operand: its number, that axis, the result's."""
Links = Callable[[Operator, tuple[Shape, ...], Shape], Iterable[Link]]


def _links(operator: Operator, operands: tuple[Shape, ...], result: Shape) -> Iterable[Link]:
    if operator.is_opaque or (len(operator.outputs) > 1 and operator.op != "Split"):
        return ()
    known = OPERATORS.get(operator.op)
    elementwise = known is not None and known.category.startswith("elementwise")
    rule = _LINKS.get(operator.op, _broadcast if elementwise else None)
    return () if rule is None else rule(operator, operands, result)


def _broadcast(operator: Operator, operands: tuple[Shape, ...], result: Shape) -> Iterator[Link]:
    for number, shape in enumerate(operands):
        for axis, extent in enumerate(shape):
            if extent == result[len(result) - len(shape) + axis]:
                yield number, axis, len(result) - len(shape) + axis


def _first(count: int) -> Links:
    """The first axes of the first operand."""
    return lambda operator, operands, result: ((0, axis, axis) for axis in range(count))


def _batch_normalization(operator: Operator, operands: tuple[Shape, ...], result: Shape) -> Iterator[Link]:
    yield from ((0, axis, axis) for axis in range(len(result)))
    yield from ((number, 0, 1) for number in range(1, len(operands)))


def _before_axis(operator: Operator, operands: tuple[Shape, ...], result: Shape) -> Iterator[Link]:
    """Axes before the attribute `axis`, of a scale and a bias too where they have them."""
    cut = _axis(operator, -1, len(result))
    return (link for link in _broadcast(operator, operands, result) if link[2] < cut)


def _but_axis(operator: Operator, operands: tuple[Shape, ...], result: Shape) -> Iterator[Link]:
    """All axes but the one that is joined or split."""
    cut = _axis(operator, 0, len(result))
    return ((n, axis, axis) for n in range(len(operands)) for axis in range(len(result)) if axis != cut)


def _convolution(operator: Operator, operands: tuple[Shape, ...], result: Shape) -> Iterator[Link]:
    yield 0, 0, 0
    if operator.attributes.get("group", 1) == 1:
        yield 1, 0, 1
        if len(operands) > 2:
            yield 2, 0, 1
    for axis in range(len(result) - 2):
        if _is_pointwise(operator, axis):
            yield 0, axis + 2, axis + 2


def _pooling(operator: Operator, operands: tuple[Shape, ...], result: Shape) -> Iterator[Link]:
    yield from ((0, axis, axis) for axis in range(2))


def _is_pointwise(operator: Operator, axis: int) -> bool:
    """Whether windows of one element lie side by side along an axis."""
    kernel, strides, pads = (operator.attributes.get(n) for n in ("kernel_shape", "strides", "pads"))
    if not isinstance(kernel, tuple) or not isinstance(strides, tuple) or not isinstance(pads, tuple):
        return False
    return (kernel[axis], strides[axis], pads[axis], pads[axis + len(kernel)]) == (1, 1, 0, 0)


def _matmul(operator: Operator, operands: tuple[Shape, ...], result: Shape) -> Iterator[Link]:
    left, right = operands
    if min(len(left), len(right)) < 2:
        return
    rank = len(result)
    yield 0, len(left) - 2, rank - 2
    yield 1, len(right) - 1, rank - 1
    yield from _broadcast(operator, (left[:-2], right[:-2]), result[:-2])


def _gemm(operator: Operator, operands: tuple[Shape, ...], result: Shape) -> Iterator[Link]:
    yield 0, int(bool(operator.attributes.get("transA", 0))), 0
    yield 1, int(not operator.attributes.get("transB", 0)), 1
    for _, axis, result_axis in _broadcast(operator, operands[2:], result):
        yield 2, axis, result_axis


def _transpose(operator: Operator, operands: tuple[Shape, ...], result: Shape) -> Iterator[Link]:
    permutation = operator.attributes.get("perm")
    if isinstance(permutation, tuple):
        yield from ((0, axis, place) for place, axis in enumerate(permutation))


def _reduction(operator: Operator, operands: tuple[Shape, ...], result: Shape) -> Iterator[Link]:
    axes, rank = operator.attributes.get("axes", ()), len(operands[0])
    reduced = {a % max(rank, 1) for a in axes} if isinstance(axes, tuple) and axes else set(range(rank))
    place = 0
    for axis in range(rank):
        if axis not in reduced:
            yield 0, axis, place
        place += axis not in reduced or bool(operator.attributes.get("keepdims", 1))


def _reshape(operator: Operator, operands: tuple[Shape, ...], result: Shape) -> Iterator[Link]:
    for (a, b), (c, d) in axis_groups(operands[0], result):
        if (b - a, d - c) == (1, 1):
            yield 0, a, c


def _axis(operator: Operator, default: int, rank: int) -> int:
    found = operator.attributes.get("axis", default)
    return (found if isinstance(found, int) else default) % max(rank, 1)


_LINKS: dict[str, Links] = {
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax", "LayerNormalization", "RMSNormalization"), _before_axis),
    **dict.fromkeys((f"Reduce{name}" for name in REDUCTIONS), _reduction),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _reshape),
    **dict.fromkeys(("MaxPool", "AveragePool"), _pooling),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), _first(2)),
    **dict.fromkeys(("InstanceNormalization", "GroupNormalization", "ConvTranspose"), _first(1)),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), _first(1)),
    **dict.fromkeys(("Concat", "Split"), _but_axis),
    **dict.fromkeys(("Identity", "Expand", "Sum", "Mean"), _broadcast),
    "BatchNormalization": _batch_normalization,
    "Conv": _convolution,
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Transpose": _transpose,
}
