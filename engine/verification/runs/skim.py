"""Reading the structure of an ONNX file without its weights.

The file is mapped and walked at the level of protobuf's wire format (protobuf.dev, "Encoding"): messages that may hold
large tensors are entered, the data of large tensors is left out, everything else is copied and then parsed as usual.
So a model of any size costs no more than its structure.
"""

from __future__ import annotations

import mmap
from pathlib import Path

import onnx

LARGEST_KEPT_BYTES = 1024
"""Tensors of at most this size keep their values; shapes, axes, depths and scalars are smaller."""

_ENTERED = {
    "model": {7: "graph"},
    "graph": {1: "node", 5: "tensor"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph"},
    "tensor": {},
}
"""Field numbers in onnx.proto of the messages inside a message that can hold tensors."""

_TENSOR_DATA = frozenset({4, 5, 7, 9, 10, 11})
"""float_data, int32_data, int64_data, raw_data, double_data and uint64_data of TensorProto."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def read_structure(path: Path) -> onnx.ModelProto:
    """The model without the data of large tensors. Raises OSError, ValueError or a protobuf error for other files."""
    with path.open("rb") as file:
        mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    model = onnx.ModelProto()
    try:
        model.ParseFromString(_skim(mapped, "model"))
    except IndexError as error:
        raise ValueError("the file ends early") from error
    return model


def _skim(data: memoryview, message: str) -> bytes:
    """The serialized message without large tensor data."""
    entered = _ENTERED[message]
    kept: list[bytes | memoryview] = []
    position = 0
    while position < len(data):
        start = position
        tag, position = _varint(data, position)
        field, wire = tag >> 3, tag & 7
        body, position = _extent(data, position, wire)
        size = position - body
        if wire != _BYTES or size <= LARGEST_KEPT_BYTES or not (field in entered or message == "tensor"):
            kept.append(data[start:position])
        elif field in entered:
            inner = _skim(data[body:position], entered[field])
            kept.extend((_encode_varint(tag), _encode_varint(len(inner)), inner))
        elif field not in _TENSOR_DATA:
            kept.append(data[start:position])
    return b"".join(kept)


def _extent(data: memoryview, position: int, wire: int) -> tuple[int, int]:
    """(start of the payload, end of the field)."""
    if wire == _VARINT:
        return position, _varint(data, position)[1]
    if wire == _BYTES:
        size, position = _varint(data, position)
        end = position + size
    elif wire in (_FIXED64, _FIXED32):
        end = position + (8 if wire == _FIXED64 else 4)
    else:
        raise ValueError("not a protobuf message")
    if end > len(data):
        raise ValueError("the file ends early")
    return position, end


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _encode_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def has_data(tensor: onnx.TensorProto) -> bool:
    """Whether the values of a tensor are there (neither external nor left out)."""
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return False
    fields = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")
    return bool(tensor.raw_data) or any(len(getattr(tensor, field)) for field in fields)
