"""How tensors lie in memory: feature maps with their channels last, as the text has them ([N, H, W, C], Fig. 9).

Parts that cores, instances and tiles share are cut along samples and rows far more often than along channels; with
channels innermost such parts are long runs of bytes. Everything else lies as ONNX has it.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from ....ir.graph import Operator, OperatorGraph
from ....ir.operators import CONVOLUTIONS, ELEMENTWISE, GLOBAL_POOLS, POOLS
from .boxes import Box

Axes = tuple[int, ...]
"""The axes of a tensor, the outermost in memory first."""

_OTHER_SPATIAL = ("LpPool", "Resize", "DepthToSpace", "SpaceToDepth", "BatchNormalization", "InstanceNormalization")
_SPATIAL = CONVOLUTIONS | POOLS | GLOBAL_POOLS | frozenset(_OTHER_SPATIAL)
_ALIKE = frozenset({"Concat", "Pad", "Slice", "Split", "Clip"})


def stored_axes(graph: OperatorGraph, known: frozenset[int] = frozenset()) -> tuple[Axes, ...]:
    """Per value, the order of its axes in memory; `known` values are feature maps."""
    maps = _feature_maps(graph, known)
    return tuple(
        (0, *range(2, len(value.extent.dimensions)), 1) if index in maps else tuple(range(len(value.extent.dimensions)))
        for index, value in enumerate(graph.values)
    )


def _feature_maps(graph: OperatorGraph, known: frozenset[int]) -> frozenset[int]:
    """Values of rank 3 or more that spatial operators read or make, and those that element-wise ones make of them."""
    maps: set[int] = set(known)
    before = -1
    while len(maps) > before:
        before = len(maps)
        for operator in (*graph.operators, *reversed(graph.operators)):
            maps |= _maps_beside(graph, operator, maps)
    return frozenset(maps)


def _maps_beside(graph: OperatorGraph, operator: Operator, maps: set[int]) -> set[int]:
    """Operands and results of an operator that are feature maps, given those that are known."""
    data = [v for v in (*operator.inputs, *operator.outputs) if v is not None and not graph.values[v].is_constant]
    deep = [v for v in data if len(graph.values[v].extent.dimensions) >= 3]
    if operator.is_opaque:
        return set()
    if operator.op in _SPATIAL:
        return {v for v in deep if v == operator.inputs[0] or v in operator.outputs}
    is_alike = operator.op in _ALIKE or operator.op in ELEMENTWISE
    ranks = {len(graph.values[v].extent.dimensions) for v in deep}
    return set(deep) if is_alike and not maps.isdisjoint(deep) and len(ranks) == 1 else set()


def stored_box(axes: Axes, box: Box) -> Box:
    """A part of a tensor, its axes as in memory."""
    return tuple([box[axis] for axis in axes])


@cache
def _places(axes: Axes) -> Axes:
    """Of each axis of a tensor, its place in memory."""
    return tuple(sorted(range(len(axes)), key=axes.__getitem__))


def plain_box(axes: Axes, box: Box) -> Box:
    """A part in memory, its axes as ONNX has them."""
    return tuple([box[place] for place in _places(axes)])


def stored_array(axes: Axes, array: np.ndarray) -> np.ndarray:
    """A view of a tensor, its axes as in memory."""
    return array.transpose(axes)


def plain_array(axes: Axes, array: np.ndarray) -> np.ndarray:
    """A view of an array as stored, its axes as ONNX has them."""
    return array.transpose(np.argsort(axes)) if axes else array


def cast_array(array: np.ndarray, dtype: str) -> np.ndarray:
    """Cast an array to the type in which the accelerator stores it. Finite numbers stay finite."""
    wanted = np.dtype(dtype)
    if array.dtype == wanted or wanted.kind != "f":
        return np.asarray(array, wanted)
    limit = np.finfo(wanted).max
    with np.errstate(all="ignore"):
        return np.where(np.isfinite(array), np.clip(array, -limit, limit), array).astype(wanted)
