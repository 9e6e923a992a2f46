"""ONNX nodes as calls of e-graph constructors, in one canonical form whatever the opset.

Whatever does not fit (`canonical` returns None) is opaque: the encoder keeps such a node as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from ..costmodels.types import Dimension, TensorType
from ..rules.signatures import Attribute, Operand, Operator, operators
from .inference import Knowledge
from .nodes import is_standard

Literal = int | float | str | tuple[Dimension, ...]


@dataclass(frozen=True)
class Call:
    """A constructor with its arguments: operands by value name (None: absent), literals in canonical form.

    Dimensions inside a literal may still be symbols; the encoder numbers them.
    """

    operator: Operator
    operands: tuple[str | None, ...]
    attributes: tuple[Literal, ...]


class NotEncodable(Exception):
    """The node has something that the constructor cannot hold; the message says what."""


@dataclass
class Site:
    """One node with what is known around it; canonical forms read it and take its attributes away."""

    node: ir.Node
    knowledge: Knowledge
    opset: int
    raw: dict[str, Any]

    def type_of(self, value: ir.Value | None) -> TensorType:
        """The type of a value; NotEncodable where it is unknown."""
        type_ = self.knowledge.types.get(value.name or "") if value is not None else None
        if type_ is None:
            raise NotEncodable("an operand of unknown type")
        return type_

    def shape(self, index: int = 0) -> tuple[Dimension, ...]:
        """The shape of an input, with symbols."""
        shape = self.type_of(self.input(index)).shape
        if shape is None:
            raise NotEncodable("an operand of unknown rank")
        return shape

    def output_shape(self) -> tuple[Dimension, ...]:
        """The shape of the first output, every dimension a size or a declared symbol."""
        shape = self.type_of(self.node.outputs[0]).shape
        if shape is None or any(isinstance(d, str) and d not in self.knowledge.symbols for d in shape):
            raise NotEncodable("an unknown output shape")
        return shape

    def input(self, index: int) -> ir.Value | None:
        """The input at a position; None where it is absent."""
        return self.node.inputs[index] if index < len(self.node.inputs) else None

    def constant(self, index: int) -> np.ndarray[Any, Any] | None:
        """The value of a constant input; None where it is absent, NotEncodable where it is computed."""
        value = self.input(index)
        if value is None:
            return None
        array = self.knowledge.constants.get(value.name or "")
        if array is None:
            raise NotEncodable(f"input {index} is not constant")
        return array

    def axis(self, axis: int, rank: int | None = None) -> int:
        """An axis counted from 0."""
        rank = len(self.shape()) if rank is None else rank
        if not -rank <= axis < max(rank, 1):
            raise NotEncodable(f"axis {axis} outside rank {rank}")
        return axis % rank if rank else 0


def canonical(node: ir.Node, knowledge: Knowledge, opset: int) -> Call | None:
    """The node as a call, or None where it is opaque."""
    operator = operators().get(node.op_type)
    if operator is None or not is_standard(node) or not _fits(node, operator):
        return None
    site = Site(node, knowledge, opset, {n: a.value for n, a in node.attributes.items()})
    try:
        literals = _literals(site, operator)
    except NotEncodable:
        return None
    if site.raw or any(literals[a.name] is None for a in operator.attributes):
        return None
    return Call(operator, _operands(site, operator), tuple(literals[a.name] for a in operator.attributes))


_FURTHER_INPUTS = frozenset({"Concat", "Pad", "Resize"})
"""Operators whose canonical form, or the encoder, deals with inputs beyond their signature."""


def _fits(node: ir.Node, operator: Operator) -> bool:
    given = [o for o in node.outputs if o.name]
    if not given or (operator.sort == "T" and (len(given) > 1 or not node.outputs[0].name)):
        return False
    inputs = sum(_is_input(a) for a in operator.arguments)
    return len(node.inputs) <= inputs or operator.name in _FURTHER_INPUTS


def _literals(site: Site, operator: Operator) -> dict[str, Any]:
    from .canonical_forms import FORMS

    literals = {a.name: _literal(site, a) for a in operator.attributes}
    form = FORMS.get(operator.name)
    return form(site, literals) if form else literals


def _literal(site: Site, attribute: Attribute) -> Literal | None:
    if attribute.input_since is not None and site.opset >= attribute.input_since:
        array = site.constant(attribute.position)
        return None if array is None else tuple(int(v) for v in np.atleast_1d(array).ravel())
    value = site.raw.pop(attribute.name, attribute.default)
    if value is None:
        return None
    if attribute.kind == "f64":
        return float(np.float32(value))
    return tuple(value) if attribute.kind == "Ints" else value


def _operands(site: Site, operator: Operator) -> tuple[str | None, ...]:
    names = []
    for position, argument in enumerate(a for a in operator.arguments if _is_input(a)):
        if isinstance(argument, Operand):
            value = site.input(position)
            names.append(value.name if value is not None else None)
    return tuple(names)


def _is_input(argument: Operand | Attribute) -> bool:
    return isinstance(argument, Operand) or argument.input_since is not None


def expand_axes(axes: tuple[int, ...], values: tuple[int, ...], rank: int, default: int) -> tuple[int, ...]:
    """Values given for some axes, spread over all of them."""
    spread = dict(zip((a % rank for a in axes), values, strict=True))
    return tuple(spread.get(a, default) for a in range(rank))


