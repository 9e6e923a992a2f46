"""ONNX nodes as calls of e-graph constructors, in one canonical form whatever the opset.

Whatever does not fit (`canonical` returns None) is opaque: the encoder keeps such a node as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from ...ir.operation import VARIADIC
from ...ir.operators import OPERATORS, Attribute, Operand, OperatorSchema
from ...ir.types import Dimension
from ..onnx.nodes import is_standard
from ..shapes.inference import Knowledge
from .canonical_forms import FORMS, NotEncodable, Site

Literal = int | float | str | tuple[Dimension, ...]


@dataclass(frozen=True)
class Call:
    """A constructor with its arguments: operands by value name (None: absent), literals in canonical form.

    Dimensions inside a literal may still be symbols; the encoder numbers them.
    """

    operator: OperatorSchema
    operands: tuple[str | None, ...]
    attributes: tuple[Literal, ...]
    auto_pad: str = ""
    """How the pads of a call follow from its sizes, where they do; `attributes` have the largest ones."""


_ROWS = {(operator.domain, operator.op_type): operator for operator in OPERATORS.values()}


def canonical(
    node: ir.Node, knowledge: Knowledge, opset: int, *, keeps_auto_pad: bool = False, follows_result: bool = False
) -> Call | None:
    """The node as a call, or None where it is opaque.

    A window whose pads depend on the sizes of a call is opaque, unless its `auto_pad` is kept; so is an operator with
    an operand that computes the shape of its result, unless it `follows_result`, the shape that inference gives it.
    """
    op_type = "Add" if node.op_type == "Sum" and len(node.inputs) == 2 else node.op_type
    operator = _ROWS.get(("" if is_standard(node) else node.domain, op_type))
    if operator is None or not _fits(node, operator):
        return None
    attributes = {n: a.value for n, a in node.attributes.items()}
    site = Site(node, knowledge, opset, attributes, keeps_auto_pad, follows_result)
    try:
        literals = _literals(site, operator)
    except NotEncodable:
        return None
    if site.raw or any(literals[a.name] is None for a in operator.attributes):
        return None
    values = tuple(literals[a.name] for a in operator.attributes)
    return Call(operator, _operands(site, operator), values, site.auto_pad)


_SAY_RESULT = frozenset({"shape", "ends", "repeats"})
"""Attributes that follow from the shape of the result: the target of a Reshape or Expand, the ends of a Slice."""
_FURTHER_INPUTS = VARIADIC | {"Pad", "Resize"}
"""Operators whose canonical form, or the encoder, deals with inputs beyond their signature."""


def _fits(node: ir.Node, operator: OperatorSchema) -> bool:
    given = [o for o in node.outputs if o.name]
    if not given or (operator.sort == "T" and (len(given) > 1 or not node.outputs[0].name)):
        return False
    if operator.name in VARIADIC and None in node.inputs:
        return False
    inputs = sum(_is_input(a) for a in operator.arguments)
    return len(node.inputs) <= inputs or operator.name in _FURTHER_INPUTS


def _literals(site: Site, operator: OperatorSchema) -> dict[str, Any]:
    literals = {a.name: _literal(site, a) for a in operator.attributes}
    form = FORMS.get(operator.name)
    return form(site, literals) if form else literals


def _literal(site: Site, attribute: Attribute) -> Literal | None:
    if attribute.input_since is not None and site.opset >= attribute.input_since:
        says_result = attribute.name in _SAY_RESULT
        array = site.target(attribute.position) if says_result else site.constant(attribute.position)
        return None if array is None else tuple(int(v) for v in np.atleast_1d(array).ravel())
    value = site.raw.pop(attribute.name, attribute.default)
    if value is None:
        return None
    if attribute.kind == "f64":
        return float(np.float32(value))
    return tuple(value) if attribute.kind == "Ints" else value


def _operands(site: Site, operator: OperatorSchema) -> tuple[str | None, ...]:
    names = []
    for position, argument in enumerate(a for a in operator.arguments if _is_input(a)):
        if isinstance(argument, Operand):
            value = site.input(position)
            names.append(value.name if value is not None else None)
    return tuple(names)


def _is_input(argument: Operand | Attribute) -> bool:
    return isinstance(argument, Operand) or argument.input_since is not None
