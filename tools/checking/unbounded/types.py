"""Element types: which operands share one, and which classes of types ONNX's schemas allow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product

import onnx

from ....ir.operators import OPERATORS
from ..drawing.types import OPSET
from .world import Unproved

CLASSES = {"float": "float32", "int": "int32", "uint": "uint8", "bool": "bool"}
"""Classes of types with one name of each: within a class a rule holds for all or none, in the symbolic arithmetic."""
_WIDTHS = {
    "float": ("float16", "bfloat16", "float32", "float64", "float", "double"),
    "int": ("int8", "int16", "int32", "int64"),
    "uint": ("uint8", "uint16", "uint32", "uint64"),
    "bool": ("bool",),
}
_MOST_CASES = 16


@dataclass(eq=False)
class Type:
    """The type of elements, as far as it is known; `same` is the one that it was found to be equal to.

    `name`: which one of its class, where a rule says so. `fixed`: it is that of a left side, of which a right side may
    not ask for more.
    """

    allowed: set[str] = field(default_factory=lambda: set(CLASSES))
    name: str = ""
    fixed: bool = False
    same: Type | None = None

    def root(self) -> Type:
        """The one that stands for all that are equal to it."""
        return self if self.same is None else self.same.root()

    def unite(self, other: Type) -> None:
        """Both are one. Raises Unproved where a left side does not make sure of it."""
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
        """Its name, where it can have but one."""
        root = self.root()
        return root.name or ("bool" if root.allowed == {"bool"} else "")

    def restrict(self, classes: set[str], name: str = "") -> None:
        """It is of one of these classes, and has this name. Raises Unproved as `unite`."""
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


def constrain(head: str, operands: Sequence[Type | None], result: Type) -> None:
    """What the schema of an operator says about the types of its operands and of its result."""
    schema = _schema(head)
    if schema is None:
        return
    letters: dict[str, Type] = {}
    allowed = {c.type_param_str: _classes(c.allowed_type_strs) for c in schema.type_constraints}
    inputs = list(schema.inputs)
    names = [o.name for o in OPERATORS[head].operands]
    for name, type_ in zip(names, operands, strict=False):
        formal = next((i for i in inputs if i.name == name), inputs[0])
        if type_ is not None:
            _unite(formal.type_str, type_, letters, allowed)
    _unite(schema.outputs[0].type_str, result, letters, allowed)


def _unite(written: str, type_: Type, letters: dict[str, Type], allowed: dict[str, set[str]]) -> None:
    if written in allowed:
        letters.setdefault(written, Type(set(allowed[written]))).unite(type_)
    else:
        type_.restrict(_classes([written]))


def _classes(written: Sequence[str]) -> set[str]:
    names = (text.removeprefix("tensor(").removesuffix(")") for text in written)
    return {c for c in map(class_of, names) if c}


def cases(types: Sequence[Type]) -> Iterator[dict[Type, str]]:
    """Every choice of a class for each of some types; ends after the first few."""
    roots = list(dict.fromkeys(t.root() for t in types))
    choices = product(*([c for c in CLASSES if c in t.allowed] for t in roots))
    for number, choice in enumerate(choices):
        if number == _MOST_CASES:
            return
        yield dict(zip(roots, choice, strict=True))


def too_many(types: Sequence[Type]) -> bool:
    """Whether `cases` leaves some out."""
    count = 1
    for root in dict.fromkeys(t.root() for t in types):
        count *= len(root.allowed)
    return count > _MOST_CASES
