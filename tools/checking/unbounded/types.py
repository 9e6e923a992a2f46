"""Element types: which operands share one, and which classes of types ONNX's schemas allow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from math import prod

import onnx

from ....ir.operators import OPERATORS
from ..sampling.types import OPSET
from .world import Unproved

CLASSES = {"float": "float32", "int": "int32", "uint": "uint8", "bool": "bool"}
"""For each class a type that represents it: in symbolic arithmetic a rule holds for all types of a class or for
none."""
_WIDTHS = {
    "float": ("float16", "bfloat16", "float32", "float64", "float", "double"),
    "int": ("int8", "int16", "int32", "int64"),
    "uint": ("uint8", "uint16", "uint32", "uint64"),
    "bool": ("bool",),
}
_MOST_CASES = 16
"""Choices of classes for the types of a rule, at most: each is a proof of its own."""


@dataclass(eq=False)
class ElementType:
    """The type of elements, as far as it is known; `same` is another one to which it is equal.

    `allowed` are the classes that it may belong to, and `name` is its name, if a rule gives it. `fixed`: it is the type
    of a left side, which a right side may not restrict further.
    """

    allowed: set[str] = field(default_factory=lambda: set(CLASSES))
    name: str = ""
    fixed: bool = False
    same: ElementType | None = None

    def root(self) -> ElementType:
        """The type that represents all types that are equal to it."""
        return self if self.same is None else self.same.root()

    def unite(self, other: ElementType) -> None:
        """Make both types equal. Raises Unproved if a left side does not guarantee that they are."""
        first, second = self.root(), other.root()
        if first is second:
            return
        if second.fixed:
            first, second = second, first
        if second.fixed and not (first.exact and first.exact == second.exact):
            raise Unproved("the types may differ")
        first.restrict(second.allowed, second.exact)
        second.same = first

    @property
    def exact(self) -> str:
        """Its name, if it can be only one type; else ""."""
        root = self.root()
        return root.name or ("bool" if root.allowed == {"bool"} else "")

    def restrict(self, classes: set[str], name: str = "") -> None:
        """Restrict it to some classes, and to a name unless that is "". Raises Unproved as `unite`."""
        root = self.root()
        if root.fixed and (root.allowed - classes or (name and name != root.exact)):
            raise Unproved("the right side may not take the types of the left")
        root.allowed &= classes
        if name and root.name and name != root.name:
            root.allowed.clear()
        root.name = root.name or name


def class_of(name: str) -> str | None:
    """The class of a type by its name."""
    return next((c for c, widths in _WIDTHS.items() if name in widths), None)


@cache
def _schema(head: str) -> onnx.defs.OpSchema | None:
    return onnx.defs.get_schema(head, OPSET) if onnx.defs.has(head) else None


def constrain(head: str, operands: Sequence[ElementType | None], result: ElementType) -> None:
    """Restrict the types of operands and result to those that ONNX's schema of the operator allows."""
    schema = _schema(head)
    if schema is None:
        return
    letters: dict[str, ElementType] = {}
    allowed = {c.type_param_str: _classes(c.allowed_type_strs) for c in schema.type_constraints}
    inputs = list(schema.inputs)
    names = [o.name for o in OPERATORS[head].operands]
    for name, type_ in zip(names, operands, strict=False):
        formal = next((i for i in inputs if i.name == name), inputs[0])
        if type_ is not None:
            _unite(formal.type_str, type_, letters, allowed)
    _unite(schema.outputs[0].type_str, result, letters, allowed)


def _unite(text: str, type_: ElementType, letters: dict[str, ElementType], allowed: dict[str, set[str]]) -> None:
    """Apply a type of a schema: a letter that stands for one of several types, or the text of one."""
    if text in allowed:
        letters.setdefault(text, ElementType(set(allowed[text]))).unite(type_)
    else:
        type_.restrict(_classes([text]))


def _classes(types: Sequence[str]) -> set[str]:
    names = (text.removeprefix("tensor(").removesuffix(")") for text in types)
    return {c for c in map(class_of, names) if c}


def cases(types: Sequence[ElementType]) -> Iterator[dict[ElementType, str]]:
    """Every choice of a class for each of some types; none at all if there are too many."""
    roots = list(dict.fromkeys(t.root() for t in types))
    if prod(len(root.allowed) for root in roots) <= _MOST_CASES:
        for choice in product(*([c for c in CLASSES if c in t.allowed] for t in roots)):
            yield dict(zip(roots, choice, strict=True))
