"""The element types for which ONNX Runtime has no kernel of an operator, although ONNX allows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...ir.operators import CONVOLUTIONS, REDUCTIONS, VIEWS

_DOUBLE = frozenset({"float64"})
_UNSIGNED = frozenset({"uint32", "uint64"})
_SHORT = frozenset({"int16", "uint16"})
_LONG_INTEGERS = frozenset({"int32", "int64"}) | _UNSIGNED
_MISSING: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(
        (
            "Erf", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Softplus",
            "Softsign", "HardSwish", "Mish", "Elu", "Selu", "LeakyRelu", "ThresholdedRelu", "HardSigmoid", "Gelu",
            "InstanceNormalization", "Hardmax", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "RNN",
            *CONVOLUTIONS,
        ),
        _DOUBLE,
    ),
    **dict.fromkeys(REDUCTIONS, _UNSIGNED),
    **dict.fromkeys(("ArgMax", "ArgMin"), _SHORT | _UNSIGNED),
    **dict.fromkeys(("Max", "Min"), _SHORT),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), _SHORT | _LONG_INTEGERS | {"bool", "string"}),
    "QuantizeLinear": frozenset({"int32"}),
    "PRelu": _DOUBLE | _LONG_INTEGERS,
    "Gemm": _LONG_INTEGERS,
    "CumSum": _UNSIGNED,
    "Pad": _SHORT | {"string"},
    "Relu": frozenset({"int16", "int64"}),
    "Where": _SHORT | {"uint64", "bool"},
}  # fmt: skip
"""Types that some supported ONNX Runtime has no kernel for: a graph with a new node of them may not run."""
_SMALL = frozenset({"int4", "uint4", "int2", "uint2", "float4_e2m1fn", "float8_e8m0fnu"})
_RARE = _SMALL | {"float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "complex64", "complex128"}
_RARE_KERNELS = frozenset({"Cast", "Transpose"})
_BRAIN_KERNELS = _RARE_KERNELS | VIEWS | {"Slice", "Concat", "Split", "Gather"}
"""Operators with kernels for bfloat16."""
_BODY_ONLY = {"Swish": 24}
"""Operators that ONNX Runtime 1.32 runs only by their body in ONNX, which it has only up to this opset."""


def lacks_kernel(op_type: str, dtypes: Iterable[str], opset: int) -> bool:
    """Whether ONNX Runtime cannot run a node of a standard operator whose operands, in order, have these types."""
    if opset > _BODY_ONLY.get(op_type, opset):
        return True
    types = set(list(dtypes)[1 if op_type == "Where" else 0 :])  # it has the type of its choices
    if types & _RARE and op_type not in _RARE_KERNELS:
        return True
    if "bfloat16" in types and op_type not in _BRAIN_KERNELS:
        return True
    missing = _MISSING.get(op_type, frozenset())
    return bool(types & (missing | _DOUBLE if op_type == "Clip" and opset < 12 else missing))


def copying_operator(dtype: str) -> str:
    """The operator with which ONNX Runtime copies a tensor: it has no Identity of the smallest elements."""
    return "Cast" if dtype in _SMALL else "Identity"
