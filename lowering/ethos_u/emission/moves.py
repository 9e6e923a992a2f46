"""Operators that only move integers, or choose among them: their results have the scale of their operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from ..tosa.graph import Builder
from .places import take_part, take_places
from .reductions import take_extreme
from .requantize import as_map
from .resizing import repeat
from .values import Constant, Integers, Number, Value, memory_order, refuse, reorder


def move(builder: Builder, value: Number, operands: Sequence[Value | None]) -> Integers:
    """The integers that an operator moves. Raises LoweringError for a form of it that the NPU does not have."""
    first = operands[0]
    if not isinstance(first, Integers):
        raise refuse(value, "its operand is not quantised")
    if first.columns is not None and value.op not in ("Reshape", "Flatten", "Identity"):
        raise refuse(value, "reads a feature map that was flattened")
    return _MOVES[value.op](builder, value, first, operands)


def _reshape(builder: Builder, value: Number, x: Integers, operands: Sequence[Value | None]) -> Integers:
    shape = value.shape
    if x.shape == shape:
        return x
    if x.columns is not None:
        raise refuse(value, "reads a feature map that was flattened")
    rank = len(shape)
    long = [n for n in x.shape if n > 1]
    in_memory = [x.shape[axis] for axis in x.order if x.shape[axis] > 1]
    order = memory_order(rank, is_map=rank == 4)
    target = [shape[axis] for axis in order]
    if [axis for axis in x.order if x.shape[axis] > 1] == [axis for axis, n in enumerate(x.shape) if n > 1]:
        # The elements lie in ONNX's order; they do in the new order, too, if at most one long axis moves.
        if [n for n in shape if n > 1] != [n for n in target if n > 1] or _moves(shape, order):
            order, target = tuple(range(rank)), list(shape)
        tensor = builder.add("RESHAPE", [x.tensor, builder.sizes(*target)], "int8", target)
        return Integers(tensor, shape, order, x.scale, x.zero)
    if [n for n in shape if n > 1] == long and not _moves(shape, order) and in_memory == [n for n in target if n > 1]:
        tensor = builder.add("RESHAPE", [x.tensor, builder.sizes(*target)], "int8", target)
        return Integers(tensor, shape, order, x.scale, x.zero)
    if rank == 2 and shape[0] == x.shape[0] and x.order[0] == 0:
        inner = x.shape[1:]
        places = np.arange(prod(inner)).reshape(inner).transpose([axis - 1 for axis in x.order[1:]]).reshape(-1)
        tensor = builder.add("RESHAPE", [x.tensor, builder.sizes(*shape)], "int8", shape)
        return Integers(tensor, shape, (0, 1), x.scale, x.zero, places)
    plain = reorder(builder, x, tuple(range(len(x.shape))))
    tensor = builder.add("RESHAPE", [plain.tensor, builder.sizes(*shape)], "int8", shape)
    return Integers(tensor, shape, tuple(range(rank)), x.scale, x.zero)


def _moves(shape: Sequence[int], order: Sequence[int]) -> bool:
    """Whether an order changes the sequence of the elements of a shape."""
    return [axis for axis in order if shape[axis] > 1] != [axis for axis, n in enumerate(shape) if n > 1]


def _transpose(builder: Builder, value: Number, x: Integers, operands: Sequence[Value | None]) -> Integers:
    """Nothing moves: the axes only have other numbers."""
    permutation = value.attributes["perm"]
    return replace(x, shape=value.shape, order=tuple(permutation.index(axis) for axis in x.order))


def _concat(builder: Builder, value: Number, x: Integers, operands: Sequence[Value | None]) -> Integers:
    parts = []
    for each in operands:
        if not isinstance(each, Integers) or each.columns is not None:
            raise refuse(value, "an operand is no quantised feature map")
        parts.append(reorder(builder, each, x.order).tensor)
    axis = x.order.index(int(value.attributes["axis"]) % len(value.shape))
    shape = [value.shape[each] for each in x.order]
    return replace(x, tensor=builder.add("CONCAT", parts, "int8", shape, axis=axis), shape=value.shape)


def _max_pool(builder: Builder, value: Number, x: Integers, operands: Sequence[Value | None]) -> Integers:
    if len(x.shape) != 4:
        raise refuse(value, "its operand is no feature map of two axes of positions")
    x = as_map(x, builder)
    if value.op == "GlobalMaxPool":
        kernel, stride, pads = x.shape[2:], (1, 1), (0, 0, 0, 0)
    else:
        kernel, stride, pads = (tuple(value.attributes[name]) for name in ("kernel_shape", "strides", "pads"))
        if any(each != 1 for each in value.attributes.get("dilations", ()) or ()):
            raise refuse(value, "has dilated windows")
    top, left = pads[:2]
    counts = value.shape[2:]
    # Windows end where the padded map ends, for TOSA: rows and columns that none reads are taken away, or added.
    ends = [(n - 1) * s + k - size - before for n, s, k, size, before in
            zip(counts, stride, kernel, x.shape[2:], (top, left), strict=True)]  # fmt: skip
    tensor = x.tensor
    sides = (n + min(0, end) for n, end in zip(tensor.shape[1:3], ends, strict=True))
    sizes = [tensor.shape[0], *sides, tensor.shape[3]]
    if tuple(sizes) != tensor.shape:
        tensor = builder.add("SLICE", [tensor, builder.sizes(0, 0, 0, 0), builder.sizes(*sizes)], "int8", sizes)
    result = builder.add(
        "MAX_POOL2D", [tensor], "int8", [value.shape[axis] for axis in x.order], value.node, kernel=tuple(kernel),
        stride=tuple(stride), pad=(top, max(0, ends[0]), left, max(0, ends[1])), nan_mode="PROPAGATE",
    )  # fmt: skip
    return replace(x, tensor=result, shape=value.shape)


def _slice(builder: Builder, value: Number, x: Integers, operands: Sequence[Value | None]) -> Integers:
    starts, sizes = [0] * len(x.shape), list(value.shape)
    attributes = value.attributes
    for start, axis, step in zip(attributes["starts"], attributes["axes"], attributes["steps"], strict=True):
        if step < 1:
            raise refuse(value, "goes backwards, which the NPU does not")
        size = x.shape[axis]
        starts[axis] = min(max(start + size if start < 0 else start, 0), size)
        if step > 1:
            x = _every(builder, x, axis, starts[axis], step, sizes[axis])
            starts[axis] = 0
    return x if x.shape == value.shape else take_part(builder, x, starts, sizes)


def _every(builder: Builder, x: Integers, axis: int, start: int, step: int, count: int) -> Integers:
    """Elements of an axis at a distance of `step` from each other: the first of each group of `step`."""
    groups = list(x.shape)
    groups[axis] = min(x.shape[axis] - start, count * step)
    starts = [0] * len(groups)
    starts[axis] = start
    x = take_part(builder, x, starts, groups)
    place = x.order.index(axis)
    shape, tensor = [x.shape[each] for each in x.order], x.tensor
    outer, inner = prod(shape[:place]), prod(shape[place + 1 :])
    if missing := count * step - shape[place]:
        flat = (1, outer, shape[place], inner)
        tensor = builder.add("RESHAPE", [tensor, builder.sizes(*flat)], "int8", flat)
        operands = [tensor, builder.sizes(0, 0, 0, 0, 0, missing, 0, 0), builder.constant([0], "int8", "padding")]
        tensor = builder.add("PAD", operands, "int8", (1, outer, count * step, inner))
    grouped = (outer, count, step, inner)
    tensor = builder.add("RESHAPE", [tensor, builder.sizes(*grouped)], "int8", grouped)
    first = (outer, count, 1, inner)
    tensor = builder.add("SLICE", [tensor, builder.sizes(0, 0, 0, 0), builder.sizes(*first)], "int8", first)
    shape[place] = groups[axis] = count
    tensor = builder.add("RESHAPE", [tensor, builder.sizes(*shape)], "int8", shape)
    return replace(x, tensor=tensor, shape=tuple(groups))


def _split(builder: Builder, value: Number, x: Integers, operands: Sequence[Value | None]) -> Integers:
    place, axis = int(value.attributes["output"]), int(value.attributes["axis"]) % len(x.shape)
    starts = [0] * len(x.shape)
    starts[axis] = sum(value.attributes["split"][:place])
    return take_part(builder, x, starts, value.shape)


def _pad(builder: Builder, value: Number, x: Integers, operands: Sequence[Value | None]) -> Integers:
    pads, constant = value.attributes["pads"], operands[1] if len(operands) > 1 else None
    rank, mode = len(x.shape), value.attributes["mode"]
    if min(pads) < 0 or not isinstance(constant, Constant | None):
        raise refuse(value, "takes elements away, or pads with what is not constant")
    if mode != "constant":
        for axis, size in enumerate(x.shape):
            if pads[axis] or pads[axis + rank]:
                places = np.pad(np.arange(size), (pads[axis], pads[axis + rank]), mode=mode)
                x = take_places(builder, value, x, axis, places)
        return x
    number = 0.0 if constant is None else float(constant.numbers.reshape(()))
    integer = int(np.clip(np.rint(number / x.scale) + x.zero, -128, 127))
    amounts = [amount for axis in x.order for amount in (pads[axis], pads[axis + rank])]
    shape = [value.shape[axis] for axis in x.order]
    operator = [x.tensor, builder.sizes(*amounts), builder.constant([integer], "int8", "padding")]
    return replace(x, tensor=builder.add("PAD", operator, "int8", shape), shape=value.shape)


def _extreme(builder: Builder, value: Number, x: Integers, operands: Sequence[Value | None]) -> Integers:
    return take_extreme(builder, value, x)


def _gather(builder: Builder, value: Number, x: Integers, operands: Sequence[Value | None]) -> Integers:
    """Slices in the order of indices that are known."""
    indices = operands[1]
    if not isinstance(indices, Constant):
        raise refuse(value, "its indices are no constants")
    axis = int(value.attributes["axis"]) % len(x.shape)
    places = np.asarray(indices.numbers).reshape(-1).astype(int) % x.shape[axis]
    return _reshape(builder, value, take_places(builder, value, x, axis, places), ())


def _identity(builder: Builder, value: Number, x: Integers, operands: Sequence[Value | None]) -> Integers:
    return x


_Move = Callable[[Builder, Number, Integers, Sequence[Value | None]], Integers]
_MOVES: Mapping[str, _Move] = {
    "Reshape": _reshape, "Flatten": _reshape, "Squeeze": _reshape, "Unsqueeze": _reshape, "Transpose": _transpose,
    "Concat": _concat, "MaxPool": _max_pool, "GlobalMaxPool": _max_pool, "Slice": _slice, "Split": _split, "Pad": _pad,
    "Identity": _identity, "Resize": repeat, "ReduceMax": _extreme, "ReduceMin": _extreme, "Gather": _gather,
}  # fmt: skip


def is_move(op: str, attributes: Mapping[str, Any]) -> bool:
    """Whether an operator only moves integers, or chooses among them."""
    return op in _MOVES and (op != "Resize" or attributes["mode"] == "nearest")
