"""One row of the operator table, and the notation of its signature.

    "data axes:Ints@18 | keepdims:i64=1"

Before the bar stand ONNX's inputs in order: ``X`` is an operand (a tensor), ``B?`` an optional one, and
``axes:Ints@18`` a constant list that is an input from opset 18 on and was an attribute of that name before. Behind it
stand attributes: ``name:kind=default``, the kinds being i64, f64, String and Ints; the default is ONNX's, and without
one the attribute is always written. A constructor of the rule language takes all of them in this order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ..index_maps import MakeIndexMaps
from ..operation import Operation

KINDS = ("Ints", "i64", "f64", "String")
CountFlops = Callable[[Operation], float]


@dataclass(frozen=True)
class Operand:
    """A tensor argument; an optional one is (Absent) if the model does not give it."""

    name: str
    optional: bool


@dataclass(frozen=True)
class Attribute:
    """A literal argument.

    `input_since` is the opset from which ONNX passes it as a constant input (at position `position` of the
    node's inputs) instead of an attribute; None: always an attribute.
    """

    name: str
    kind: str
    default: int | float | str | None
    input_since: int | None = None
    position: int = -1


@dataclass(frozen=True)
class OperatorSchema:
    """One operator, from which every layer derives what it has to know of it.

    `evaluate` computes the results from an arithmetic (arithmetic.py) and the arguments; None if rules cannot look into
    the operator, which then has no arguments either. `index_maps` is None if the elements that it reads are not known.
    `flops` counts the floating-point operations of one call; None: one for each element read or made.

    An operator of another domain than ONNX's has its `domain`, may be called `op_type` there, and costs as much as the
    operator that it is `like`. `weights_at` is the number of the operand that has the filters of a convolution, outputs
    before inputs, and 0 for any other operator. A view's result has the elements of its operand in their order.
    Operands of an operator that `takes_stacks` may be stacks of matrices, which broadcast.
    A total operator runs on any elements of operands whose shapes fit; a division does not: that of an integer by zero
    ends the process.
    """

    name: str
    category: str
    arguments: tuple[Operand | Attribute, ...]
    evaluate: Callable[..., Any] | None
    index_maps: MakeIndexMaps | None
    flops: CountFlops | None
    domain: str = ""
    op_type: str = ""
    like: str = ""
    outputs: int = 1
    weights_at: int = 0
    is_view: bool = False
    is_total: bool = False
    takes_stacks: bool = False

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The tensor arguments."""
        return tuple(a for a in self.arguments if isinstance(a, Operand))

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """The literal arguments."""
        return tuple(a for a in self.arguments if isinstance(a, Attribute))

    @property
    def is_elementwise(self) -> bool:
        """Whether each element of the result is computed from the elements at its place, operands being broadcast."""
        return self.category.startswith("elementwise")

    @property
    def broadcasts(self) -> bool:
        """Whether any operand may widen the result."""
        return self.takes_stacks or (self.is_elementwise and len(self.operands) > 1)

    @property
    def sort(self) -> str:
        """``N`` if the operator has several outputs, ``T`` otherwise."""
        return "N" if self.category == "multiple-output" or self.outputs > 1 else "T"

    @property
    def declaration(self) -> str:
        """The constructor in egglog text."""
        sorts = ("T" if isinstance(a, Operand) else a.kind for a in self.arguments)
        return f"({' '.join((self.name, *sorts))})"


@dataclass(frozen=True)
class Family:
    """Operators of one category, which by default have the same index maps and count as many FLOPs."""

    category: str
    index_maps: MakeIndexMaps | None = None
    flops: CountFlops | None = None
    domain: str = ""
    is_total: bool = False

    def __call__(
        self,
        name: str,
        signature: str,
        evaluate: Callable[..., Any],
        *,
        index_maps: MakeIndexMaps | None = None,
        flops: CountFlops | None = None,
        op_type: str = "",
        like: str = "",
        outputs: int = 1,
        weights_at: int = 0,
        is_view: bool = False,
        is_total: bool | None = None,
        takes_stacks: bool = False,
    ) -> OperatorSchema:
        """An operator that rules can look into. Raises ValueError on a kind of attribute that does not exist."""
        arguments = parse_signature(signature)
        return OperatorSchema(
            name, self.category, arguments, evaluate, index_maps or self.index_maps, flops or self.flops,
            self.domain, op_type or name, like or name, outputs, weights_at, is_view,
            self.is_total if is_total is None else is_total, takes_stacks,
        )  # fmt: skip

    def hidden(
        self,
        names: str,
        *,
        index_maps: MakeIndexMaps | None = None,
        weights_at: int = 0,
        is_view: bool = False,
        is_total: bool = False,
    ) -> tuple[OperatorSchema, ...]:
        """Operators that rules cannot look into; their names stand between spaces."""
        row = OperatorSchema(
            "", self.category, (), None, index_maps or self.index_maps, self.flops,
            weights_at=weights_at, is_view=is_view, is_total=is_total,
        )  # fmt: skip
        return tuple(replace(row, name=name) for name in names.split())


def per_output(count: float) -> CountFlops:
    """`count` operations for each element of the result."""
    return lambda operation: count * operation.output.elements


def per_input(count: float) -> CountFlops:
    """`count` operations for each element of the first operand."""
    return lambda operation: count * operation.operand(0).elements


def no_flops(operation: Operation) -> float:
    """Elements that are only moved, repeated or converted cost no operation."""
    return 0.0


def parse_signature(signature: str) -> tuple[Operand | Attribute, ...]:
    """The arguments that a signature lists. Raises ValueError on a kind that does not exist."""
    inputs, _, attributes = signature.partition("|")
    arguments = [
        _parse_attribute(text, position) if ":" in text else Operand(text.rstrip("?"), text.endswith("?"))
        for position, text in enumerate(inputs.split())
    ]
    return (*arguments, *(_parse_attribute(text, -1) for text in attributes.split()))


def _parse_attribute(text: str, position: int) -> Attribute:
    declaration, _, default = text.partition("=")
    name, _, kind = declaration.partition(":")
    kind, _, since = kind.partition("@")
    if kind not in KINDS:
        raise ValueError(f"unknown kind {kind!r} in {text!r}: one of {', '.join(KINDS)}")
    convert: Callable[[str], int | float | str] = {"i64": int, "f64": float}.get(kind, str)
    return Attribute(name, kind, convert(default) if default else None, int(since) if since else None, position)
