"""One loop for the element types and attributes of a node: ``node, element types -> C text``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper

from ..base.errors import LoweringError
from .packing import ENSEMBLES, LINEAR, pack_linear, pack_trees
from .source_files import loop_files, loop_text

AttrType = defs.OpSchema.AttrType
_C_TYPES = {
    "float32": ("float", "-INFINITY", "INFINITY"),
    "float64": ("double", "-INFINITY", "INFINITY"),
    "bool": ("bool", "0", "1"),
    **{f"int{b}": (f"int{b}_t", f"INT{b}_MIN", f"INT{b}_MAX") for b in (8, 16, 32, 64)},
    **{f"uint{b}": (f"uint{b}_t", "0", f"UINT{b}_MAX") for b in (8, 16, 32, 64)},
}
"""The type in C, its least and its largest element, by numpy's name."""
_ABSENT = ("char", "0", "0")
MINIMUM_INPUTS = 9
"""Entries of every list of inputs, so that a loop may look for optional ones: QLinearConv has most."""
_RENAMED = {"value": "constant_value", "k": "K"}
"""Attributes of old versions whose input of today has another name."""
_SUCCESSORS = {"Scatter": "ScatterElements", "Upsample": "Resize"}
"""The operators that replaced others."""
_PACKINGS = {**dict.fromkeys(ENSEMBLES, pack_trees), **dict.fromkeys(LINEAR, pack_linear)}
"""How attributes with the numbers of a model are brought into the order in which its loop reads them."""
_WITHOUT_DEFAULT = {AttrType.INT: None, AttrType.INTS: (), AttrType.FLOATS: ()}
"""The value of an attribute that has no default, by its type; None is ABSENT of tensor.h."""


@dataclass(frozen=True)
class LoopInstance:
    """The text of one loop, whose function is called `NAME` in it.

    `operands` are attributes of the node that are inputs in ONNX's newest version, by their position there.
    """

    operator: str
    macros: tuple[tuple[str, str], ...]
    arrays: tuple[tuple[str, str, str], ...]
    operands: Mapping[int, np.ndarray[Any, Any]]

    @property
    def key(self) -> object:
        """Equal for two nodes that can share the loop."""
        return self.operator, self.macros, self.arrays

    def text(self, name: str) -> str:
        """The C text of the function `name`; it leaves no macro defined."""
        body, defined = loop_text(self.operator)
        lines = [f"#define NAME {name}"]
        for array, type_, elements in self.arrays:
            lines.append(f"static const {type_} {name}_{array}[] = {elements};")
            lines.append(f"#define {array} {name}_{array}")
        lines += [f"#define {macro} {value}" for macro, value in self.macros]
        names = ["NAME", *(a for a, _, _ in self.arrays), *(m for m, _ in self.macros), *defined]
        return "\n".join([*lines, body.rstrip(), *(f"#undef {macro}" for macro in names), ""])


def why_no_loop(operator: str, domain: str, dtypes: Sequence[str | None]) -> str | None:
    """Why an operator on these element types cannot be a loop; None if it can."""
    if operator not in loop_files() or not defs.has(operator, domain):
        return f"{operator} has no plain loop"
    other = next((dtype for dtype in dtypes if dtype is not None and dtype not in _C_TYPES), None)
    return f"a tensor of {operator} is of {other}" if other else None


def loop_instance(
    node: onnx.NodeProto, opset: int, inputs: Sequence[str | None], outputs: Sequence[str | None]
) -> LoopInstance:
    """The loop of a node whose tensors have these element types, None if they are absent.

    Raises LoweringError if it has no loop.
    """
    reason = why_no_loop(node.op_type, node.domain, [*inputs, *outputs])
    if reason:
        raise LoweringError(reason)
    schema = defs.get_schema(node.op_type, opset, node.domain)
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    newest = defs.get_schema(_SUCCESSORS.get(node.op_type, node.op_type), node.domain)
    values = {**_defaults(newest), **_defaults(schema), **given}
    operands = dict(_find_operands(schema, values, inputs))
    for name, attribute in newest.attributes.items():
        if attribute.type in _WITHOUT_DEFAULT:
            values.setdefault(name, _WITHOUT_DEFAULT[attribute.type])
    if node.op_type in _PACKINGS:
        values = _PACKINGS[node.op_type](node.op_type, values, inputs)
    macros = [(f"OP_{node.op_type}", "1"), ("OPERATOR_NAME", f'"{node.op_type}"'), ("OPSET", str(schema.since_version))]
    macros += [("INPUTS", str(len(inputs))), ("OUTPUTS", str(len(outputs)))]
    extended = [*inputs, *[None] * (MINIMUM_INPUTS - len(inputs))]
    for position, array in operands.items():
        extended[position] = array.dtype.name
    for letter, dtypes in (("I", extended), ("O", [*outputs, *[None] * (4 - len(outputs))])):
        for number, dtype in enumerate(dtypes):
            type_, lowest, highest = _ABSENT if dtype is None else _C_TYPES[dtype]
            macros.append((f"{letter}{number}", type_))
            macros += [(f"LOWEST_{letter}{number}", lowest), (f"HIGHEST_{letter}{number}", highest)]
    arrays = []
    for name, value in sorted(values.items()):
        if isinstance(value, onnx.GraphProto):
            raise LoweringError(f"{node.op_type} has a body")
        initialiser = _array_text(value)
        if initialiser is None:
            macros.append((f"A_{name}", _literal(value)))
        else:
            arrays.append((f"A_{name}", *initialiser))
            macros.append((f"A_{name}_count", str(len(_elements(value)))))
    return LoopInstance(node.op_type, tuple(macros), tuple(arrays), operands)


def _defaults(schema: defs.OpSchema) -> dict[str, Any]:
    attributes = ((name, a.default_value) for name, a in schema.attributes.items())
    return {name: helper.get_attribute_value(value) for name, value in attributes if value.type}


def _find_operands(
    schema: defs.OpSchema, values: dict[str, Any], inputs: Sequence[str | None]
) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
    """The attributes that are inputs in the newest version of an operator; they are taken out of `values`."""
    if not defs.has(schema.name, schema.domain):
        return
    newest = {i.name: position for position, i in enumerate(defs.get_schema(schema.name, schema.domain).inputs)}
    for name in list(values):
        position = newest.get(name, newest.get(_RENAMED.get(name, ""), -1))
        if position < len(schema.inputs) or (position < 0):
            continue
        value = values.pop(name)
        is_whole = all(isinstance(v, int) for v in (value if isinstance(value, list | tuple) else [value]))
        yield position, np.asarray(value, "int64" if is_whole else inputs[0])


def _elements(value: Any) -> Sequence[Any]:
    if isinstance(value, onnx.TensorProto):
        return list(numpy_helper.to_array(value).ravel().tolist())
    return list(value)


def _array_text(value: Any) -> tuple[str, str] | None:
    """Type and initialiser of a list or tensor; None of a single value."""
    if isinstance(value, onnx.TensorProto):
        array = numpy_helper.to_array(value)
        dtype = array.dtype.name
        if dtype not in _C_TYPES:
            raise LoweringError(f"an attribute is of {dtype}")
        type_ = _C_TYPES[dtype][0]
        if dtype == "int32" and array.size:  # of which ensembles of trees have hundreds of thousands
            return type_, f"{{{str(array.ravel().tolist())[1:-1]}}}"
    elif isinstance(value, list | tuple):
        first = value[0] if value else 0
        type_ = "float" if isinstance(first, float) else "char *const" if isinstance(first, bytes) else "int64_t"
    else:
        return None
    return type_, "{" + (", ".join(map(_literal, _elements(value))) or "0") + "}"


def _literal(value: Any) -> str:
    if value is None:
        return "ABSENT"
    if isinstance(value, bytes | str):
        text = value if isinstance(value, bytes) else value.encode()
        plain = (chr(b) if chr(b).isalnum() and b < 128 else f"\\{b:03o}" for b in text)
        return f'"{"".join(plain)}"'
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int):
        return "INT64_MIN" if value == -(2**63) else f"({value}{'u' if value >= 2**63 else ''}ll)"
    if not math.isfinite(value):
        return "NAN" if math.isnan(value) else "INFINITY" if value > 0 else "(-INFINITY)"
    single = float(np.float32(value))
    return f"({float(value)!r}{'f' if single == value else ''})"
