"""A graph as a file of TOSA 1.0, by the flatbuffers schema of the specification (tosa.fbs).

A table is written by the places of its fields in the schema: nothing is generated, and no tool of Arm's is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .graph import Graph, Operator, Tensor

VERSION = (1, 0, 0)
IDENTIFIER = b"TOSA"
_ALIGNMENT = 8
"""Bytes at whose multiples the contents of constants begin, and to which they are filled up."""

_LONGEST_LIST = 64
"""The most tensors that are concatenated at once (MAX_TENSOR_LIST_SIZE of the specification, for its level 8K)."""
_OPERATORS = (
    "UNKNOWN", "ARGMAX", "AVG_POOL2D", "CONV2D", "CONV3D", "DEPTHWISE_CONV2D", "FFT2D", "MATMUL", "MAX_POOL2D",
    "RFFT2D", "TRANSPOSE_CONV2D", "CLAMP", "ERF", "SIGMOID", "TANH", "ADD", "ARITHMETIC_RIGHT_SHIFT", "BITWISE_AND",
    "BITWISE_OR", "BITWISE_XOR", "INTDIV", "LOGICAL_AND", "LOGICAL_LEFT_SHIFT", "LOGICAL_RIGHT_SHIFT", "LOGICAL_OR",
    "LOGICAL_XOR", "MAXIMUM", "MINIMUM", "MUL", "POW", "SUB", "TABLE", "ABS", "BITWISE_NOT", "CEIL", "CLZ", "COS",
    "EXP", "FLOOR", "LOG", "LOGICAL_NOT", "NEGATE", "RECIPROCAL", "RSQRT", "SIN", "SELECT", "EQUAL", "GREATER",
    "GREATER_EQUAL", "REDUCE_ALL", "REDUCE_ANY", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PRODUCT", "REDUCE_SUM",
    "CONCAT", "PAD", "RESHAPE", "REVERSE", "SLICE", "TILE", "TRANSPOSE", "GATHER", "SCATTER", "RESIZE", "CAST",
    "RESCALE", "CONST", "IDENTITY", "CUSTOM", "COND_IF", "WHILE_LOOP", "VARIABLE", "VARIABLE_WRITE",
    "VARIABLE_READ", "CONST_SHAPE",
)  # fmt: skip
"""The operators in the order of the schema's enumeration, which is also the order of the tables of their attributes."""
_TYPES = {"bool": 1, "int8": 3, "int16": 4, "int32": 5, "int48": 6}
_WORDS = {**_TYPES, "SINGLE_ROUND": 1, "INEXACT_ROUND": 2, "DOUBLE_ROUND": 3, "PROPAGATE": 1}
"""The numbers for the names that attributes have."""
_CONVOLUTION = ("pad ints", "stride ints", "dilation ints", "local_bound bool", "acc_type word")
_ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "AVG_POOL2D": ("kernel ints", "stride ints", "pad ints", "acc_type word"),
    "MAX_POOL2D": ("kernel ints", "stride ints", "pad ints", "nan_mode word"),
    "CONV2D": _CONVOLUTION,
    "DEPTHWISE_CONV2D": _CONVOLUTION,
    "CLAMP": ("min_val bytes", "max_val bytes", "nan_mode word"),
    "CONCAT": ("axis int",),
    "MAXIMUM": ("nan_mode word",),
    "REDUCE_SUM": ("axis int",),
    "REDUCE_MAX": ("axis int", "nan_mode word"),
    "REDUCE_MIN": ("axis int", "nan_mode word"),
    "ARGMAX": ("axis int", "nan_mode word"),
    "ARITHMETIC_RIGHT_SHIFT": ("round bool",),
    "TRANSPOSE_CONV2D": ("out_pad ints", "stride ints", "local_bound bool", "acc_type word"),
    "TRANSPOSE": ("perms ints",),
    "RESCALE": (
        "scale32 bool", "rounding_mode word", "per_channel bool", "input_unsigned bool", "output_unsigned bool",
    ),
}  # fmt: skip
"""The fields of the table of an operator's attributes, in the order of the schema."""


def _with_short_lists(graph: Graph) -> Graph:
    """The graph with concatenations of concatenations in place of those of more tensors than a file may have."""
    tensors, operators = dict(graph.tensors), []
    for operator in graph.operators:
        names, level = operator.inputs, 0
        while operator.op == "CONCAT" and len(names) > _LONGEST_LIST:
            level += 1
            lists = [names[start : start + _LONGEST_LIST] for start in range(0, len(names), _LONGEST_LIST)]
            names = tuple(f"{operator.output}, list {level}.{number}" for number in range(len(lists)))
            axis = operator.attributes["axis"]
            assert isinstance(axis, int)
            for name, parts in zip(names, lists, strict=True):
                shape = list(graph.tensors[operator.output].shape)
                shape[axis] = sum(tensors[part].shape[axis] for part in parts)
                tensors[name] = Tensor(name, tensors[operator.output].dtype, tuple(shape))
                operators.append(replace(operator, inputs=tuple(parts), output=name))
        operators.append(replace(operator, inputs=names))
    return replace(graph, operators=tuple(operators), tensors=tensors)


def to_bytes(graph: Graph) -> bytes:
    """The content of a file `NAME.tosa`. Raises ModuleNotFoundError without the package `flatbuffers`."""
    import flatbuffers

    graph = _with_short_lists(graph)
    builder = flatbuffers.Builder(1 << 20)
    text: Callable[[str], int] = builder.CreateSharedString
    constants = [tensor for tensor in graph.tensors.values() if tensor.data is not None]
    made = [Operator("CONST_SHAPE" if each.dtype == "shape" else "CONST", (), each.name) for each in constants]
    operators = [_operator(builder, each) for each in (*made, *graph.operators)]
    tensors = [_tensor(builder, each) for each in graph.tensors.values() if each.dtype != "shape"]
    shapes = [_shape(builder, each) for each in constants if each.dtype == "shape"]
    block = _table(
        builder,
        [
            ("offset", text("main")),
            ("offset", _offsets(builder, operators)),
            ("offset", _offsets(builder, tensors)),
            ("offset", _offsets(builder, [text(name) for name in graph.inputs])),
            ("offset", _offsets(builder, [text(name) for name in graph.outputs])),
            ("offset", _offsets(builder, shapes)),
        ],
    )
    region = _table(builder, [("offset", text("main")), ("offset", _offsets(builder, [block]))])
    version = _table(builder, [*(("int", number) for number in VERSION), ("bool", False)], written=True)
    builder.Finish(_table(builder, [("offset", version), ("offset", _offsets(builder, [region]))]), IDENTIFIER)
    return bytes(builder.Output())


def _operator(builder: Any, operator: Operator) -> int:
    number = _OPERATORS.index(operator.op)
    fields = [
        (kind, _encode(builder, kind, operator.attributes[name]))
        for name, kind in (field.split() for field in _ATTRIBUTES.get(operator.op, ()))
    ]
    attribute = _table(builder, [("offset" if kind in ("ints", "bytes") else kind, value) for kind, value in fields])
    inputs, outputs = (
        _offsets(builder, [builder.CreateSharedString(name) for name in names])
        for names in (operator.inputs, (operator.output,))
    )
    return _table(
        builder,
        [("word", number), ("byte", number), ("offset", attribute), ("offset", inputs), ("offset", outputs)],
    )


def _tensor(builder: Any, tensor: Tensor) -> int:
    shape, name = _numbers(builder, tensor.shape), builder.CreateSharedString(tensor.name)
    fields = [("offset", name), ("offset", shape), ("word", _TYPES[tensor.dtype])]
    if tensor.data is not None:
        fields.append(("offset", _bytes(builder, tensor.data.tobytes())))
    return _table(builder, fields)


def _shape(builder: Any, tensor: Tensor) -> int:
    assert tensor.data is not None, "sizes are constants"
    name, data = builder.CreateSharedString(tensor.name), _bytes(builder, tensor.data.astype("<i8").tobytes())
    return _table(builder, [("offset", name), ("word", tensor.data.size), ("offset", data)])


def _encode(builder: Any, kind: str, value: Any) -> int:
    if kind == "ints":
        return _numbers(builder, value)
    if kind == "bytes":
        return _bytes(builder, int(value).to_bytes(1, "little", signed=True))
    return _WORDS[value] if kind == "word" else int(value)


def _table(builder: Any, fields: Sequence[tuple[str, int]], *, written: bool = False) -> int:
    """A table of fields, each with its kind; with `written` those that have the default value, too."""
    builder.StartObject(len(fields))
    default = -1 if written else 0
    for place, (kind, value) in enumerate(fields):
        if kind == "offset":
            builder.PrependUOffsetTRelativeSlot(place, value, 0)
        elif kind == "bool":
            builder.PrependBoolSlot(place, bool(value), written)
        elif kind == "byte":
            builder.PrependUint8Slot(place, value, 0)
        elif kind == "int":
            builder.PrependInt32Slot(place, value, default)
        else:
            builder.PrependUint32Slot(place, value, 0)
    return int(builder.EndObject())


def _offsets(builder: Any, offsets: Sequence[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


def _numbers(builder: Any, numbers: Sequence[int]) -> int:
    return int(builder.CreateNumpyVector(np.asarray(numbers, np.int32)))


def _bytes(builder: Any, content: bytes) -> int:
    """Bytes that begin at a multiple of 8; the reference model reads them in whole words."""
    content += bytes(-len(content) % _ALIGNMENT)
    builder.StartVector(1, len(content), _ALIGNMENT)
    builder.head = builder.Head() - len(content)
    builder.Bytes[builder.Head() : builder.Head() + len(content)] = content
    return int(builder.EndVector())
