"""One maker for every operator that moves elements or is opaque to rules, and one that repeats nodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper

from .builder import Array, Builder, Misfit
from .operators import ARITHMETIC, MIRRORED, Maker, swap

# --- layout


def anything(b: Builder, least: int = 0) -> str:
    return b.choose(lambda a: a.ndim >= least and (a.dtype.kind == "f" or b.chance(0.3)))


def transpose(b: Builder) -> str:
    x = anything(b, 1)
    perm = list(range(b.rank(x)))
    b.random.shuffle(perm)
    return b.add("Transpose", x, perm=b.pick((None, perm, perm, perm)))


def reshape(b: Builder) -> str:
    x = anything(b)
    shape = list(b.shape(x))
    match b.between(0, 4):
        case 0:
            target = [*shape[:-2], -1]
        case 1:
            target = [*shape, 1] if b.chance(0.5) else [1, *shape]
        case 2:
            target = [0, -1] if shape else [1]
        case 3:
            target = shape[::-1]
        case _:
            target = [p for d in shape for p in ((2, d // 2) if d % 2 == 0 and b.chance(0.5) else (d,))]
    return b.add("Reshape", x, b.integers(target))


def flatten(b: Builder) -> str:
    x = anything(b, 1)
    return b.add("Flatten", x, axis=b.pick((None, b.between(0, b.rank(x)))))


def axes_operator(b: Builder, op: str, x: str, axes: Sequence[int]) -> str:
    if b.opset >= 13:
        return b.add(op, x, b.integers(axes))
    return b.add(op, x, axes=list(axes))


def squeeze(b: Builder) -> str:
    x = b.choose(lambda a: 1 in a.shape)
    axes = [i - b.pick((0, b.rank(x))) for i, d in enumerate(b.shape(x)) if d == 1 and b.chance(0.8)]
    return axes_operator(b, "Squeeze", x, axes) if axes else b.add("Squeeze", x)


def unsqueeze(b: Builder) -> str:
    x = anything(b)
    if b.rank(x) > 4:
        raise Misfit
    return axes_operator(b, "Unsqueeze", x, [b.axis(b.rank(x) + 1)])


def slicing(b: Builder) -> str:
    x = anything(b, 1)
    axes = b.random.sample(range(b.rank(x)), b.between(1, min(2, b.rank(x))))
    sizes = [b.shape(x)[a] for a in axes]
    starts = [b.pick((0, 0, s // 2, -1, 1, -s)) for s in sizes]
    ends = [b.pick((s, 2**31, 2**63 - 1, s // 2, -1)) for s in sizes]
    steps = [b.pick((1, 1, 1, 2)) for _ in axes]
    if b.chance(0.05):
        starts, ends, steps = [-1 for _ in axes], [-(2**62) for _ in axes], [-1 for _ in axes]
    operands = [b.integers(starts), b.integers(ends), b.integers(axes)]
    return b.add("Slice", x, *operands, *([b.integers(steps)] if any(s != 1 for s in steps) or b.chance(0.3) else []))


def gather(b: Builder) -> str:
    x = anything(b, 1)
    axis = b.axis(b.rank(x))
    size = b.shape(x)[axis]
    shape = b.pick(((), (1,), (2,), (size,), (2, 2)))
    return b.add("Gather", x, b.weight(b.numbers.integers(-size, size, shape)), axis=axis)


def concat(b: Builder) -> str:
    x = anything(b, 1)
    axis = b.axis(b.rank(x))
    shape = np.delete(b.shape(x), axis)

    def fits(other: Array) -> bool:
        same = other.dtype == b.values[x].dtype and other.ndim == b.rank(x)
        return same and np.array_equal(np.delete(other.shape, axis), shape)

    fitting = [*b.candidates(fits), *(n for n, a in b.weights.items() if fits(a))]
    others = [b.pick(fitting) for _ in range(b.between(1, 3))]
    return b.add("Concat", *b.random.sample([x, *others], 1 + len(others)), axis=axis)


def split(b: Builder) -> list[str]:
    x = anything(b, 1)
    axis = b.axis(b.rank(x))
    size = b.shape(x)[axis]
    if size < 2:
        raise Misfit
    first = b.between(1, size - 1)
    sizes = [size // 2] * 2 if size % 2 == 0 and b.chance(0.5) else [first, size - first]
    if sizes[0] == sizes[1] and b.chance(0.5):
        return b.node("Split", [x], 2, axis=axis, **({"num_outputs": 2} if b.opset >= 18 else {}))
    if b.opset >= 13:
        return b.node("Split", [x, b.integers(sizes)], 2, axis=axis)
    return b.node("Split", [x], 2, axis=axis, split=sizes)


def expand(b: Builder) -> str:
    x = anything(b)
    shape = [b.pick((2, 3)) if d == 1 and b.chance(0.7) else b.pick((d, 1)) for d in b.shape(x)]
    return b.add("Expand", x, b.integers([2, *shape] if b.chance(0.3) and len(shape) < 4 else shape))


def tile(b: Builder) -> str:
    x = anything(b, 1)
    return b.add("Tile", x, b.integers([b.pick((1, 1, 2)) for _ in b.shape(x)]))


def pad(b: Builder) -> str:
    x = b.floats(least=1)
    rank = b.rank(x)
    pads = [b.pick((0, 0, 1)) for _ in range(2 * rank)]
    mode = b.pick((None, None, None, "constant", "edge", "reflect"))
    if mode in ("edge", "reflect"):
        return b.add("Pad", x, b.integers(pads), mode=mode)
    operands = [b.integers(pads)] + ([b.scalar(b.pick((0.0, 0.0, 0.5)), b.kind(x))] if b.chance(0.5) else [])
    return b.add("Pad", x, *operands, mode=mode)


def blocks(b: Builder) -> str:
    x = b.floats(rank=4)
    if b.chance(0.5):
        return b.add("SpaceToDepth", x, blocksize=2)
    return b.add("DepthToSpace", x, blocksize=2, mode=b.pick((None, "CRD", "DCR")))


def resize(b: Builder) -> str:
    x = b.floats(rank=4)
    mode = b.pick(("nearest", "linear", None))
    transform = b.pick((None, "asymmetric", "align_corners", "half_pixel"))
    scales = [1, 1, b.pick((1, 2, 2)), b.pick((1, 2, 2, 0.5))]
    if b.chance(0.3):
        sizes = [int(s * d) for s, d in zip(scales, b.shape(x), strict=True)]
        return b.add("Resize", x, "", "", b.integers(sizes), mode=mode, coordinate_transformation_mode=transform)
    return b.add(
        "Resize", x, "", b.weight(np.asarray(scales, np.float32)), mode=mode, coordinate_transformation_mode=transform
    )


# --- operators that rules do not look into, and repetitions


def opaque(b: Builder) -> object:
    x = b.floats(rank=2)
    match b.between(0, 3):
        case 0:
            return b.add("Einsum", x, x, equation="ij,kj->ik")
        case 1:
            return b.node("TopK", [x, b.integers([min(b.shape(x)[-1], 2)])], 2)
        case 2:
            return b.add("Trilu", x) if b.opset >= 14 else b.add("Identity", x)
        case _:
            return b.add(b.pick(("Identity", "Dropout", "Size", "IsNaN", "LpNormalization")), x)


def again(b: Builder) -> list[str]:
    """A node once more: on the same operands, swapped ones, or others of the same type."""
    node = b.pick(b.nodes[-12:])
    operands = list(node.input)
    match b.between(0, 2):
        case 0 if node.op_type in MIRRORED:
            operands.reverse()
        case 1 if operands[0]:
            first = b.values[operands[0]]
            operands[0] = b.choose(lambda a: a.dtype == first.dtype and a.shape == first.shape)
        case 2 if len(operands) > 1 and operands[1] in b.weights:
            weight = b.weights[operands[1]]
            if weight.dtype.kind == "f":
                operands[1] = b.constant(tuple(weight.shape), weight.dtype.name)
    attributes = {a.name: _attribute(a) for a in node.attribute}
    copies = b.node(node.op_type, operands, len(node.output), **attributes)
    copy, output = copies[0], node.output[0]
    if b.chance(0.6) and len(copies) == 1 and b.shape(copy) == b.shape(output) and b.kind(copy) == b.dtype:
        op = b.pick(("Add", "Add", "Sub", "Mul", "Concat"))
        return [b.add(op, *swap(b, output, copy), axis=-1 if op == "Concat" else None)]
    return copies


def _attribute(attribute: onnx.AttributeProto) -> object:
    value = helper.get_attribute_value(attribute)
    return value.decode() if isinstance(value, bytes) else value


LAYOUT: tuple[Maker, ...] = (
    transpose, transpose, reshape, reshape, flatten, squeeze, unsqueeze, slicing, slicing, gather, concat, concat,
    split, expand, tile, pad, blocks, resize, opaque, again, again, again, again, again,
)  # fmt: skip
OPERATORS = (*ARITHMETIC, *LAYOUT)
