"""Operators that are no kernels, since kernels make or read their operands and results in place.

    A = f(X); B = g(X); Y = Concat(A, B)    =>    Y[.., :a] = f(X); Y[.., a:] = g(X)
    A, B = Split(X); Y = f(A); Z = g(B)     =>    Y = f(X[.., :a]); Z = g(X[.., a:])

All other readers of such a part read it there, too. So all that read or write one have to be kernels: a view, or an
operator without a kernel, takes dense tensors. Part and whole have to be stored in one order, in which a part is a run
of whole rows, or some columns of all: else rows that follow one another in a dense tensor would not do so in a part.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate

from ...ir.graph import Operator, OperatorGraph, Value
from ...ir.operators import RECURRENT, VIEWS
from ...ir.types import Dimension
from .feature_maps import FeatureMaps

_CUTS = frozenset({"Split", "Slice"})
_DENSE = VIEWS | RECURRENT | {"If"}
"""Operators that take and make dense tensors only."""


@dataclass(frozen=True)
class Place:
    """The place of a value: from `first` on along an axis of the value `whole`, which has `extent` elements there."""

    whole: int
    axis: int
    first: int
    extent: int


Places = Mapping[int, Place]
"""By value."""


def find_in_place(graph: OperatorGraph, alone: Collection[int] = ()) -> Mapping[int, Places]:
    """The Concats, Splits and Slices that need no kernel, by their numbers: the places of their parts.

    A value of several Concats is in the first one. `alone` are the operators that no kernel runs.
    """
    finder = _Finder(graph.at_call, frozenset(alone))
    for number in range(len(graph.operators)):
        finder.add(number)
    return finder.found


def resolve_places(found: Iterable[Places]) -> Places:
    """The places of all parts, those of a part of a part in the outermost whole."""
    places = {value: place for each in found for value, place in each.items()}
    resolved: dict[int, Place] = {}
    for value in places:
        nested = [value]
        while (whole := places[nested[-1]].whole) in places and whole not in resolved:
            nested.append(whole)
        for inner in reversed(nested):
            place = places[inner]
            around = resolved.get(place.whole)
            resolved[inner] = place if around is None else replace(around, first=around.first + place.first)
    return resolved


def parts_and_whole(operator: Operator) -> tuple[tuple[int | None, ...], int | None]:
    """The operands of a Concat and its result; the results of a Split or Slice and the value that they are parts of."""
    return (operator.outputs, operator.inputs[0]) if operator.op in _CUTS else (operator.inputs, operator.outputs[0])


def has_rows_or_columns(shape: tuple[Dimension, ...], axis: int, *, is_last: bool) -> bool:
    """Whether parts along an axis are runs of rows in memory, or columns; `is_last`: channels are."""
    axes = list(range(len(shape)))
    order = [0, *axes[2:], 1] if is_last else axes
    return axis == order[-1] or all(shape[outer] == 1 for outer in order[: order.index(axis)])


@dataclass
class _Finder:
    """What was found so far in a graph with the sizes of every call."""

    graph: OperatorGraph
    alone: frozenset[int]
    found: dict[int, Places] = field(default_factory=dict)
    places: dict[int, Place] = field(default_factory=dict)
    axes: dict[int, set[int]] = field(default_factory=dict)
    """For each whole the axes along which its parts are."""

    @cached_property
    def maps(self) -> frozenset[int]:
        """The values that may be stored with their channels last."""
        return FeatureMaps(self.graph).values

    def add(self, number: int) -> None:
        """Note the operator if it is one."""
        operator = self.graph.operators[number]
        if operator.is_opaque or not (operator.op in _CUTS or (operator.op == "Concat" and len(operator.inputs) > 1)):
            return
        parts, whole = parts_and_whole(operator)
        places = self._list_places(operator)
        is_one_order = self._are_alike((*parts, whole))
        if not places or not is_one_order or not all(self._may_be_part(v, number, places[v].axis) for v in places):
            return
        for value, place in places.items():
            self.axes.setdefault(place.whole, set()).add(place.axis)
            self.places[value] = place
        self.found[number] = places

    def _list_places(self, operator: Operator) -> Places:
        """None if an extent is not known, a part is there twice, or parts along the axis are no rows or columns."""
        parts, whole = parts_and_whole(operator)
        axis, first = _find_cut(operator)
        values = [value for value in parts if value is not None]
        if whole is None or axis is None or len(set(values)) < len(parts):
            return {}
        shapes = [_shape(self.graph.values[value]) for value in (*values, whole)]
        extents = [shape[axis] for shape in shapes if axis < len(shape) and isinstance(shape[axis], int)]
        around = self.places.get(whole)
        if len(extents) < len(shapes) or (around is not None and around.axis != axis):
            return {}
        if not has_rows_or_columns(shapes[-1], axis, is_last=bool(self._has_channels_last(whole))):
            return {}
        *sizes, extent = map(int, extents)
        firsts = accumulate(sizes, initial=first)
        return {value: Place(whole, axis, start, extent) for value, start in zip(values, firsts, strict=False)}

    def _may_be_part(self, number: int, operator: int, axis: int) -> bool:
        """Whether only kernels make and read the value, apart from the operator."""
        value, operators = self.graph.values[number], self.graph.operators
        if value.producer is None or value.is_output or value.is_constant or number in self.places:
            return False
        touching = {value.producer, *self.graph.consumers[number]} - {operator}
        is_in_kernels = touching.isdisjoint(self.alone) and not any(
            operators[each].op in _DENSE or operators[each].is_opaque or _is_copy(operators[each]) for each in touching
        )
        return is_in_kernels and self.axes.get(number, {axis}) == {axis}

    def _are_alike(self, values: Iterable[int | None]) -> bool:
        """Whether all are stored with their channels last, or none is."""
        orders = {None if value is None else self._has_channels_last(value) for value in values}
        return len(orders) == 1 and None not in orders

    def _has_channels_last(self, number: int) -> bool | None:
        """Whether it is stored so; None if that depends on kernels."""
        value = self.graph.values[number]
        if number not in self.maps or value.producer is None or value.is_output:
            return False
        touching = {value.producer, *self.graph.consumers[number]}
        is_viewed = any(self.graph.operators[each].op in _DENSE for each in touching)
        return None if is_viewed else any(extent != 1 for extent in _shape(value)[2:])


def _find_cut(operator: Operator) -> tuple[int | None, int]:
    """The axis, None if there are several or elements are left out, and the start of the first part."""
    attributes = operator.attributes
    if operator.op != "Slice":
        axis = attributes.get("axis")
        return (axis if isinstance(axis, int) and axis >= 0 else None), 0
    axes, starts, steps = (attributes.get(name) for name in ("axes", "starts", "steps"))
    if not isinstance(axes, tuple) or not isinstance(starts, tuple) or len(axes) != 1 or steps != (1,):
        return None, 0
    axis, first = axes[0], starts[0]
    is_counted = isinstance(axis, int) and isinstance(first, int) and axis >= 0 and first >= 0
    return (axis, first) if is_counted else (None, 0)


def _is_copy(operator: Operator) -> bool:
    """Whether the operator changes nothing: it copies from or for the caller."""
    return operator.op == "Concat" and len(operator.inputs) == 1


def _shape(value: Value) -> tuple[Dimension, ...]:
    return () if value.type is None or value.type.shape is None else value.type.shape
