"""Forms of kernels whose sizes a call decides: those of `kernel_forms`, and some anchors that matter only so.

A form is made for two sets of sizes. What differs in its inputs is a dynamic dimension; a form whose constants differ,
too, as the target of a Reshape may, has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, shape_inference

from .anchors import ANCHORS, softmax
from .kernel_forms import Form, exchange, list_forms
from .model_builder import Builder, Part, Shape

BATCH = "N"


def exchanged_product(b: Builder, x: str) -> str:
    """The product of rows with rows of another input of the same shape, as the scores of attention are."""
    other = exchange(b, b.give(b.shapes[x]))
    assert other is not None
    return b.add("MatMul", x, other)


def attention(b: Builder, x: str) -> str:
    """Scores, their Softmax, and the product with a third input."""
    weights = softmax()(b, b.add("Mul", exchanged_product(b, x), b.constant(np.float32(0.2))))
    assert isinstance(weights, str)
    return b.add("MatMul", weights, b.give(b.shapes[x]))


def product_along(columns: int) -> Part:
    """A product whose reduced axis is the last one of the input."""
    return lambda b, x: b.add("MatMul", x, b.give((*b.shapes[x][:-2], b.shapes[x][-1], columns)))


def broadcast(b: Builder, x: str) -> str:
    """The sum with an input of one column, times one of one row."""
    *outer, rows, columns = b.shapes[x]
    return b.add("Mul", b.add("Add", x, b.give((*outer, rows, 1))), b.give((*outer, 1, columns)))


def resize(mode: str) -> Part:
    """A map twice as large."""
    return lambda b, x: b.add("Resize", x, "", b.constant(np.array([1, 1, 2, 2], np.float32)), mode=mode)


def pad(mode: str) -> Part:
    """A map with a border of one on each side."""
    return lambda b, x: b.add("Pad", x, b.numbers(0, 0, 1, 1, 0, 0, 1, 1), mode=mode)


def norm_of_channels(b: Builder, x: str) -> str:
    """A LayerNormalization over the channels of maps."""
    turned = b.add("Transpose", x, perm=[0, 2, 3, 1])
    size = b.shapes[turned][-1:]
    normal = b.add("LayerNormalization", turned, b.weight(size), b.weight(size), axis=-1)
    return b.add("Transpose", normal, perm=[0, 3, 1, 2])


_OWN: dict[str, tuple[Shape, Part]] = {
    "scores": ((1, 4, 60, 32), exchanged_product),
    "attention": ((1, 4, 60, 32), attention),
    "values": ((1, 4, 60, 60), product_along(32)),
    "broadcast": ((1, 40, 96), broadcast),
    "broadcast maps": ((1, 24, 30, 30), broadcast),
    "resize nearest": ((1, 24, 20, 20), resize("nearest")),
    "resize linear": ((1, 24, 20, 20), resize("linear")),
    "pad": ((1, 24, 30, 30), pad("constant")),
    "pad reflect": ((1, 24, 30, 30), pad("reflect")),
    "global pool": ((1, 80, 14, 14), lambda b, x: b.add("GlobalAveragePool", x)),
    "global maximum": ((1, 80, 14, 14), lambda b, x: b.add("GlobalMaxPool", x)),
    "layer norm of maps": ((1, 64, 20, 20), norm_of_channels),
}
FREE_ANCHORS = ANCHORS | _OWN
_ROWS = (
    "mean of rows", "layer norm", "layer norm batch", "product", "product odd", "product of a row", "broadcast",
)  # fmt: skip
_AXES: Mapping[str, Sequence[int]] = dict.fromkeys(_ROWS, (0, 1)) | {
    "sum of last": (0, 1, 2), "softmax": (0, 2, 3), "product of inputs": (0, 2), "product of inputs flipped": (0, 2),
    "scores": (0, 2), "attention": (0, 2), "values": (0, 2, 3),
}  # fmt: skip
"""Free axes of the inputs of anchors; of all others all but that of the channels, axis 1."""
SIZES = ("one", "small", "odd", "typical", "large")


@dataclass(frozen=True)
class FreeForm:
    """A form some axes of whose input are free."""

    form: Form
    axes: Sequence[int]

    @property
    def name(self) -> str:
        """That of the form, after "free"."""
        return f"free {self.form.name}"

    @property
    def sizes(self) -> dict[str, Mapping[str, int]]:
        """Sizes of the dynamic dimensions, by their names in `SIZES`."""
        return {name: {_dimension(axis): _size(name, axis, self.form.shape[axis]) for axis in self.axes}
                for name in SIZES}  # fmt: skip

    def at(self, sizes: Mapping[str, int]) -> onnx.ModelProto | None:
        """The model of fixed sizes; None if its parts do not fit each other then."""
        shape = list(self.form.shape)
        for axis in self.axes:
            shape[axis] = sizes[_dimension(axis)]
        try:
            return replace(self.form, shape=tuple(shape)).model()
        except shape_inference.InferenceError:
            return None

    def model(self) -> onnx.ModelProto | None:
        """The model with dynamic dimensions; None if it has none, or inputs whose sizes follow from others."""
        first, second = ({_dimension(axis): factor * (self.form.shape[axis] + axis + 1) + axis for axis in self.axes}
                         for factor in (1, 2))  # fmt: skip
        model, other = self.at(first), self.at(second)
        if model is None or other is None or model.graph.initializer != other.graph.initializer:
            return None
        names = {(size, second[name]): name for name, size in first.items()}
        for one, two in zip(model.graph.input, other.graph.input, strict=True):
            shape: list[Any] = []
            for pair in zip(_shape(one), _shape(two), strict=True):
                if pair[0] != pair[1] and pair not in names:
                    return None
                shape.append(names.get(pair, pair[0]))
            one.CopyFrom(helper.make_tensor_value_info(one.name, one.type.tensor_type.elem_type, shape))
        for value in model.graph.output:
            value.type.tensor_type.ClearField("shape")
        del model.graph.value_info[:]
        return model


def _dimension(axis: int) -> str:
    return f"D{axis}" if axis else BATCH


def _size(name: str, axis: int, usual: int) -> int:
    if not axis:
        return {"odd": 3, "large": 2 * usual}.get(name, usual if name == "typical" else 1)
    return {"one": 1, "small": min(usual, 6), "odd": usual + 3 - usual % 2, "typical": usual}.get(name, 3 * usual)


def _shape(value: onnx.ValueInfoProto) -> list[int]:
    return [d.dim_value for d in value.type.tensor_type.shape.dim]


def list_free_forms(
    anchors: Sequence[str] = (), before: Sequence[str] = (), after: Sequence[str] = ()
) -> Iterator[FreeForm]:
    """All forms of anchors, or those of the given names; ones without dynamic dimensions have no model."""
    for form in list_forms(anchors, before, after, FREE_ANCHORS):
        yield FreeForm(form, _AXES.get(form.anchor, (0, *range(2, len(form.shape)))))
