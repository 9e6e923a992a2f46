"""Operators that read at computed places. A place outside the tensor, which ONNX forbids, reads its nearest element."""

from __future__ import annotations

from collections.abc import Mapping

from tvm import te, tirx

from .call import Call, Expr, Lowering, NotLowered, sizes


def _inside(index: Expr, size: int) -> Expr:
    """An index of an axis: a negative one counts from its end."""
    place = tirx.convert(index).astype("int32")
    place = tirx.Select(tirx.LT(place, 0), place + size, place)
    return te.max(te.min(place, tirx.const(size - 1, "int32")), tirx.const(0, "int32"))


def _gather(call: Call) -> te.Tensor:
    x, places = call.source(0), call.source(1)
    axis, rank = call.integer("axis", 0), len(places.shape)

    def element(*indices: Expr) -> Expr:
        place = places(*indices[axis : axis + rank])
        return x(*indices[:axis], _inside(place, sizes(x)[axis]), *indices[axis + rank :])

    return call.stage(call.shape, element)


def _gather_nd(call: Call) -> te.Tensor:
    x, places = call.source(0), call.source(1)
    batch, outer = call.integer("batch_dims", 0), len(places.shape) - 1
    depth = sizes(places)[-1]
    if batch + depth > len(x.shape):
        raise NotLowered("its indices have more parts than the tensor has axes")

    def element(*indices: Expr) -> Expr:
        found = [_inside(places(*indices[:outer], p), sizes(x)[batch + p]) for p in range(depth)]
        return x(*indices[:batch], *found, *indices[outer:])

    return call.stage(call.shape, element)


LOWERINGS: Mapping[str, Lowering] = {"Gather": _gather, "GatherND": _gather_nd}
