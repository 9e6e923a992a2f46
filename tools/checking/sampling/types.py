"""The element types that ONNX's schemas allow for the operands of an operator."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from onnx import defs

from ....ir.operators import OPERATORS, Operand
from ....ir.operators.numbers import element_type
from .conditions import Type

OPSET = 24
"""The version of ONNX whose schemas give the types."""
TYPES = (
    "float32", "float64", "float16", "int32", "int64", "int8", "int16", "uint8", "uint16", "uint32", "uint64", "bool",
)  # fmt: skip
"""The types in which numpy computes the meanings of operators; bfloat16, an extension of numpy, is not among them."""
_NAMES = {"float": "float32", "double": "float64"}


@cache
def _operands(head: str) -> dict[str, tuple[str, frozenset[str]]]:
    """By operand its type parameter, which operands of the same type share, and the types that the parameter admits."""
    if OPERATORS[head].domain:  # ONNX Runtime's kernels for processors compute float32
        return {operand.name: ("T", frozenset({"float32"})) for operand in OPERATORS[head].operands}
    schema = defs.get_schema(head, OPSET)
    allowed = {c.type_param_str: frozenset(map(_name, c.allowed_type_strs)) for c in schema.type_constraints}
    operands = {}
    for position, argument in enumerate(OPERATORS[head].arguments):
        if isinstance(argument, Operand):
            is_variadic = schema.inputs[-1].option == defs.OpSchema.FormalParameterOption.Variadic
            if position >= len(schema.inputs) and not is_variadic:
                formal = schema.outputs[0]  # what a branch computes is an operand here, and the result of the operator
            else:
                formal = schema.inputs[min(position, len(schema.inputs) - 1)]
            types = allowed.get(formal.type_str, frozenset({_name(formal.type_str)}))
            operands[argument.name] = formal.type_str, types
    return operands


def _name(text: str) -> str:
    inside = text.removeprefix("tensor(").removesuffix(")")
    return _NAMES.get(inside, inside)


def admits(head: str, operands: Mapping[str, Type]) -> bool:
    """Whether ONNX defines the operator for operands of these types and constant values."""
    if head == "BitShift" and (operands["Y"].value or 0) >= 8 * element_type(operands["X"].dtype).itemsize:
        return False
    shared: dict[str, str] = {}
    for name, type_ in operands.items():
        parameter, allowed = _operands(head)[name]
        if type_.dtype not in allowed or shared.setdefault(parameter, type_.dtype) != type_.dtype:
            return False
    return True


def operand_types(head: str, name: str) -> frozenset[str]:
    """The types that ONNX allows for an operand of an operator."""
    return _operands(head)[name][1]


@cache
def result_types(head: str) -> frozenset[str]:
    """The types that the operator's result can have, if it has the type of an operand; else empty."""
    if head not in OPERATORS:
        return frozenset()
    result = "T" if OPERATORS[head].domain else defs.get_schema(head, OPSET).outputs[0].type_str
    return next((allowed for parameter, allowed in _operands(head).values() if parameter == result), frozenset())
