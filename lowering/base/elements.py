"""The element types of tensors that compiled code takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ElementType:
    """One element: numpy's `.npy` descriptor, and DLPack's type code and bits."""

    descriptor: str
    code: int
    bits: int


ELEMENT_TYPES = {
    "float64": ElementType("<f8", 2, 64),
    "float32": ElementType("<f4", 2, 32),
    "float16": ElementType("<f2", 2, 16),
    "int64": ElementType("<i8", 0, 64),
    "int32": ElementType("<i4", 0, 32),
    "int16": ElementType("<i2", 0, 16),
    "int8": ElementType("|i1", 0, 8),
    "uint64": ElementType("<u8", 1, 64),
    "uint32": ElementType("<u4", 1, 32),
    "uint16": ElementType("<u2", 1, 16),
    "uint8": ElementType("|u1", 1, 8),
    "bool": ElementType("|b1", 6, 8),
    "bfloat16": ElementType("<V2", 4, 16),
    "float8_e4m3fn": ElementType("|V1", 10, 8),
    "float8_e4m3fnuz": ElementType("|V1", 11, 8),
    "float8_e5m2": ElementType("|V1", 12, 8),
    "float8_e5m2fnuz": ElementType("|V1", 13, 8),
}
"""No kernel computes with the types below bool: they are for what ONNX Runtime computes."""
