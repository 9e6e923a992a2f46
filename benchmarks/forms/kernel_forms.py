"""Forms of kernels: an operator that reads many elements for one (the anchor), what stands before it and behind it.

Schedules are made for kernels as networks have them; a form is one of them in any layout and of any size. Each is a
small ONNX model: `list_forms` gives the whole product of anchors, what precedes and what follows, where shapes fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import onnx

from .anchors import ANCHORS, convolution, unary
from .model_builder import Builder, Part, Shape


@dataclass(frozen=True)
class Form:
    """A kernel: the shape of its input, and its parts by name."""

    name: str
    shape: Shape
    parts: tuple[Part, ...]
    ahead: int = 0
    """Operators in front that are a kernel of their own."""
    anchor: str = ""

    def model(self) -> onnx.ModelProto | None:
        """The model; None if the parts do not fit each other."""
        builder = Builder()
        values: tuple[str, ...] = (builder.give(self.shape),)
        for part in self.parts:
            result = part(builder, values[-1])
            if result is None:
                return None
            values = (result,) if isinstance(result, str) else result
        return builder.finish(*values)


# --- what precedes


def nothing(b: Builder, x: str) -> str:
    """The input itself."""
    return x


def compute_map(b: Builder, x: str) -> str | tuple[str, ...] | None:
    """A 1x1 convolution, so that the anchor reads a feature map that a kernel has made."""
    if len(b.shapes[x]) not in (3, 4, 5):
        return None
    rank = len(b.shapes[x]) - 2
    return convolution(b.shapes[x][1], (1,) * rank)(b, x)


def turn(b: Builder, x: str) -> str | None:
    """A Transpose, from an input whose last two axes are exchanged: what comes out has the shape of the input."""
    shape = b.shapes[x]
    if len(shape) < 3:
        return None
    other = b.give((*shape[:-2], shape[-1], shape[-2]))
    turned = b.add("Transpose", other, perm=[*range(len(shape) - 2), len(shape) - 1, len(shape) - 2])
    return b.add("Add", x, turned)


def join(b: Builder, x: str) -> str:
    """A Concat along axis 1 whose middle is taken: the anchor reads from two tensors, from the middle of an axis."""
    size = b.shapes[x][1]
    y = b.add("Concat", x, b.give(b.shapes[x]), axis=1)
    return b.add("Slice", y, b.numbers(size // 2), b.numbers(size // 2 + size), b.numbers(1))


def unfold(b: Builder, x: str) -> str:
    """Reshape, Transpose, Reshape, as around grouped convolutions."""
    n, c, *rest = b.shapes[x]
    size = prod(rest)
    y = b.add("Transpose", b.give((n, size, c)), perm=[0, 2, 1])
    return b.add("Add", b.add("Reshape", y, b.numbers(n, c, *rest)), x)


# --- what follows


def with_activation(operator: str) -> Part:
    """The value and its activation are both outputs."""
    return lambda b, x: (x, b.add(operator, x))


def gelu(b: Builder, x: str) -> str:
    """x * 0.5 * (1 + erf(x / sqrt(2))), as exporters write it."""
    half, one, root = (b.constant(np.float32(n)) for n in (0.5, 1.0, np.sqrt(2.0)))
    y = b.add("Add", b.add("Erf", b.add("Div", x, root)), one)
    return b.add("Mul", b.add("Mul", x, y), half)


def residual(b: Builder, x: str) -> str:
    """The sum with another input."""
    return b.add("Add", x, b.give(b.shapes[x]))


def masked(b: Builder, x: str) -> str:
    """Where a mask of booleans is true, as in attention."""
    mask = b.give((*[1] * (len(b.shapes[x]) - 2), *b.shapes[x][-2:]), onnx.TensorProto.BOOL)
    return b.add("Where", mask, x, b.constant(np.float32(-3.0)))


def compared(b: Builder, x: str) -> tuple[str, str]:
    """The value where a comparison is true, and the booleans of the comparison."""
    truth = b.add("Greater", b.give(b.shapes[x]), b.constant(np.float32(0.0)))
    return b.add("Where", truth, x, b.constant(np.float32(-3.0))), truth


def arithmetic(b: Builder, x: str) -> str:
    """What image filters do with a mean: a variance, and a quotient with it."""
    other, one = b.give(b.shapes[x]), b.constant(np.float32(1.5))
    y = b.add("Sub", b.add("Mul", other, other), b.add("Mul", x, x))
    return b.add("Div", b.add("Sub", other, x), b.add("Add", b.add("Abs", y), one))


def part_of(axis: int) -> Part:
    """A Slice that leaves out the last element of an axis, and Gelu."""

    def build(b: Builder, x: str) -> str | None:
        if len(b.shapes[x]) <= axis or b.shapes[x][axis] < 2:
            return None
        y = b.add("Slice", x, b.numbers(0), b.numbers(-1), b.numbers(axis))
        return gelu(b, y)

    return build


def gate(axis: int, activation: Part) -> Part:
    """Two halves, one of which gates the other."""

    def build(b: Builder, x: str) -> str | None:
        size = b.shapes[x][axis]
        if size % 2:
            return None
        first, second = (
            b.add("Slice", x, b.numbers(low), b.numbers(high), b.numbers(axis))
            for low, high in ((0, size // 2), (size // 2, size))
        )
        activated = activation(b, second)
        assert isinstance(activated, str)
        return b.add("Mul", first, activated)

    return build


def exchange(b: Builder, x: str) -> str | None:
    """The last two axes exchanged."""
    rank = len(b.shapes[x])
    if rank < 3:
        return None
    return b.add("Transpose", x, perm=[*range(rank - 2), rank - 1, rank - 2])


def exchange_and_add(b: Builder, x: str) -> str | None:
    """The last two axes exchanged, and the sum with another input."""
    y = exchange(b, x)
    return None if y is None else residual(b, y)


def flatten(b: Builder, x: str) -> str | None:
    """A map as rows of channels, as behind a patch embedding; and the sum with a constant."""
    shape = b.shapes[x]
    if len(shape) < 4:
        return None
    y = b.add("Reshape", x, b.numbers(0, shape[1], -1))
    y = b.add("Transpose", y, perm=[0, 2, 1])
    return b.add("Add", y, b.weight((1, *b.shapes[y][1:])))


def heads(b: Builder, x: str) -> str | None:
    """Rows of channels cut into heads: Reshape, Transpose."""
    shape = b.shapes[x]
    if len(shape) != 3 or shape[-1] % 4:
        return None
    y = b.add("Reshape", x, b.numbers(0, 0, 4, shape[2] // 4))
    return b.add("Transpose", y, perm=[0, 2, 1, 3])


def rotary(b: Builder, x: str) -> str | None:
    """A rotary embedding of heads: halves exchanged, one negated, times a sine, plus the product with a cosine."""
    y = heads(b, x)
    if y is None or b.shapes[y][-1] % 2:
        return None
    half, whole = b.shapes[y][-1] // 2, b.shapes[y][-1]
    first = b.add("Slice", y, b.numbers(0), b.numbers(half), b.numbers(3))
    second = b.add("Slice", y, b.numbers(half), b.numbers(whole), b.numbers(3))
    turned = b.add("Concat", b.add("Neg", second), first, axis=-1)
    sine, cosine = (b.weight((1, 1, *b.shapes[y][2:])) for _ in range(2))
    result = b.add("Add", b.add("Mul", y, cosine), b.add("Mul", turned, sine))
    return b.add("Transpose", result, perm=[0, 1, 3, 2])


def joined(b: Builder, x: str) -> str:
    """A Concat with another input along axis 1, behind Relu."""
    return b.add("Concat", b.add("Relu", x), b.give(b.shapes[x]), axis=1)


BEFORE: dict[str, Part] = {
    "": nothing,
    "map": compute_map,
    "sigmoid": unary("Sigmoid"),
    "turn": turn,
    "join": join,
    "unfold": unfold,
}
AFTER: dict[str, Part] = {
    "": nothing,
    "and relu": with_activation("Relu"),
    "gelu": gelu,
    "residual": residual,
    "masked": masked,
    "compared": compared,
    "arithmetic": arithmetic,
    "cut rows": part_of(2),
    "cut channels": part_of(1),
    "gate channels": gate(1, unary("Sigmoid")),
    "gate last": gate(-1, gelu),
    "exchange": exchange,
    "exchange, add": exchange_and_add,
    "flatten": flatten,
    "heads": heads,
    "rotary": rotary,
    "joined": joined,
}


def list_forms(
    anchors: Sequence[str] = (), before: Sequence[str] = (), after: Sequence[str] = (),
    among: Mapping[str, tuple[Shape, Part]] = ANCHORS,
) -> Iterator[Form]:  # fmt: skip
    """All forms of `among`, or those of the given names; ones whose parts do not fit have no model."""
    for anchor, (shape, part) in among.items():
        for first, precedes in BEFORE.items():
            for last, follows in AFTER.items():
                chosen = ((anchors, anchor), (before, first), (after, last))
                if all(not names or name in names for names, name in chosen):
                    name = " > ".join(filter(None, (first, anchor, last)))
                    yield Form(name, shape, (precedes, part, follows), int(precedes is compute_map), anchor)
