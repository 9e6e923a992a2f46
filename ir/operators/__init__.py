"""The table of operators: how rules see them, what they compute, which elements they read, and their FLOPs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from . import (
    contributed,
    elementwise,
    layout,
    linear,
    normalization,
    pooling,
    quantization,
    recurrent,
    reduction,
)
from .arithmetic import Arithmetic, Array, Unsupported
from .numbers import NUMBERS, full
from .schema import Attribute, Operand, OperatorSchema

__all__ = [
    "CONVOLUTIONS",
    "DOMAINS",
    "ELEMENTWISE",
    "FILTERS",
    "GLOBAL_POOLS",
    "MATRIX_PRODUCTS",
    "NUMBERS",
    "OPERATORS",
    "POOLS",
    "PRODUCTS",
    "RECURRENT",
    "REDUCTIONS",
    "RESHAPES",
    "SCHEMAS",
    "STANDARD",
    "TO_SHAPES",
    "VIEWS",
    "Arithmetic",
    "Array",
    "Attribute",
    "Operand",
    "OperatorSchema",
    "Unsupported",
    "Value",
    "evaluate",
    "full",
]

Value = int | float | str | tuple[int, ...]
"""The values that an attribute may have."""

_FAMILIES = (
    elementwise,
    linear,
    quantization,
    normalization,
    reduction,
    pooling,
    layout,
    recurrent,
    contributed,
)

SCHEMAS: Mapping[str, OperatorSchema] = {row.name: row for family in _FAMILIES for row in family.OPERATORS}
"""Every operator with a row, by name."""

OPERATORS: Mapping[str, OperatorSchema] = {name: row for name, row in SCHEMAS.items() if row.evaluate is not None}
"""The operators that rules can look into: each has a constructor in the e-graph."""

STANDARD: Mapping[str, OperatorSchema] = {name: row for name, row in OPERATORS.items() if not row.domain}
"""The operators of ONNX's own domain."""

DOMAINS = tuple(dict.fromkeys(row.domain for row in OPERATORS.values() if row.domain))
"""The other domains."""


def _named(category: str, attribute: str = "") -> frozenset[str]:
    """Operators that rules can look into, of a category, with an attribute of that name if one is given."""
    rows = (row for row in OPERATORS.values() if row.category.startswith(category))
    return frozenset(row.name for row in rows if not attribute or any(a.name == attribute for a in row.attributes))


ELEMENTWISE = _named("elementwise")
PRODUCTS = _named("linear")
CONVOLUTIONS = _named("linear", "kernel_shape")
POOLS = _named("pooling", "kernel_shape")
GLOBAL_POOLS = _named("pooling") - POOLS
REDUCTIONS = _named("reduction", "axes")
RECURRENT = _named("recurrent")
MATRIX_PRODUCTS = PRODUCTS - CONVOLUTIONS
TO_SHAPES = _named("layout", "shape")
"""Operators to which the shape of their result is given."""

VIEWS = frozenset(row.name for row in SCHEMAS.values() if row.is_view)
"""Operators that move nothing: their outputs take no memory of their own."""

RESHAPES = VIEWS & _named("layout")
FILTERS: Mapping[str, int] = {row.name: row.weights_at for row in SCHEMAS.values() if row.weights_at}
"""Convolutions that are not transposed, and the number of the operand that has the filters."""


def evaluate(
    head: str, arguments: Sequence[Array | Value | None], arithmetic: Arithmetic = NUMBERS
) -> Array | tuple[Array, ...]:
    """The value of an operator; all of them for one with several outputs.

    `arguments` are those of its constructor: operands as arrays, None for one that is absent; attributes in the
    canonical form of the rule language. Raises Unsupported if the operator has no meaning for them.
    """
    schema = OPERATORS.get(head)
    if schema is None or schema.evaluate is None:
        raise Unsupported(f"nothing says what {head} computes")
    for argument, value in zip(schema.arguments, arguments, strict=False):
        if value is None and isinstance(argument, Operand) and not argument.optional:
            raise Unsupported(f"{head}: operand {argument.name} is absent")
    try:
        value = schema.evaluate(arithmetic, *arguments)
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise Unsupported(f"{head}: {error}") from None
    return value  # type: ignore[no-any-return]
