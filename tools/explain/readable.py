"""Ground terms as text: values by name, new terms spelled out, long ones under a number of their own."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ...engine.egraph.encode import opaque_type
from ...engine.egraph.graph import ENode, Literal
from ...ir.operators import OPERATORS, Operand
from ...ir.types import TensorType
from .congruence import Congruence
from .ground import Constants, flatten, reachable
from .patterns import Call, Template


@dataclass(frozen=True)
class Line:
    """`name` = `text`; the type may be unknown. `constant`: the value does not depend on the graph's inputs."""

    name: str
    text: str
    type: TensorType | None
    constant: bool

    @property
    def type_text(self) -> str:
        """The type as text; "" if it is unknown."""
        return type_text(self.type)


@dataclass
class Writer:
    """Writes terms. `names`, `types` and `symbols` (of symbolic sizes) are those of the model.

    `defined` are the terms that were given a number, in order, `mentioned` those that were written by name.
    """

    terms: Congruence
    names: Mapping[int, str]
    types: Mapping[int, TensorType]
    symbols: Mapping[int, str]
    defined: dict[int, Line] = field(default_factory=dict)
    mentioned: dict[int, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._constants = Constants(self.terms)

    def value(self, term: int) -> str:
        """A term by its name or number, or spelled out if it is short."""
        for part in reachable(self._nameless([term]), lambda t: self._nameless(flatten(self.terms, t).children)):
            if self._is_long(part):
                name, spelled = f"%{len(self.defined) + 1}", self.spell(part)
                self.defined[part] = Line(name, spelled, self.types.get(part), self.is_constant(part))
        return self._name_or_spell(term)

    def _name_or_spell(self, term: int) -> str:
        if term in self.names:
            self.mentioned.setdefault(term)
            return self.names[term]
        if term in self.defined:
            return self.defined[term].name
        return self.spell(term)

    def _nameless(self, terms: Iterable[int]) -> list[int]:
        """The terms that have neither a name nor a number."""
        return [t for t in terms if t not in self.names and t not in self.defined]

    def spell(self, term: int) -> str:
        """A term with its outermost operator, even if it has a name."""
        node = flatten(self.terms, term)
        return self._call(node, [self._name_or_spell(c) for c in node.children])

    def instance(self, template: Template, term: int) -> str:
        """A term as far as a rule spells it out; the values of the rule's variables are written by name or number."""
        if not isinstance(template, Call):
            return self.value(term)
        node = self.terms.terms[term]
        if template.op == "Op":
            return self.spell(term)
        inner = (a for a, is_term in zip(template.arguments, _is_term(node), strict=True) if is_term)
        operands = [self.instance(a, c) for a, c in zip(inner, node.children, strict=True)]
        return self._call(node, operands)

    def is_constant(self, term: int) -> bool:
        """Whether a term is made of stored constants alone."""
        return self._constants.has(term)

    def _is_long(self, term: int) -> bool:
        """Whether an operand is itself an operator over something, without a name."""
        node = flatten(self.terms, term)
        return node.op != "Out" and any(self.terms.terms[c].op not in _LEAVES for c in self._nameless(node.children))

    def _call(self, node: ENode, operands: list[str]) -> str:
        if node.op == "Out":
            return f"{operands[0]}[{node.attributes[0]}]"
        if node.op == "Full":
            return self._full(node)
        if node.op in ("Var", "Weight"):
            return str(node.attributes[0])
        if node.op == "Absent":
            return "-"
        while operands and operands[-1] == "-":
            operands.pop()
        name = opaque_type(node) if node.op == "Op" else node.op
        attributes = () if node.op == "Op" else self._attributes(node)
        return f"{name}({', '.join((*operands, *attributes))})"

    def _full(self, node: ENode) -> str:
        shape, number, dtype = node.attributes
        kind = "" if dtype == "float32" else f"{dtype} "
        size = f"[{', '.join(map(self.size, shape))}]" if shape else ""  # type: ignore[arg-type]
        return f"{kind}{number:g}{size}"

    def _attributes(self, node: ENode) -> Iterator[str]:
        declared = OPERATORS[node.op].attributes if node.op in OPERATORS else ()
        if not declared:
            yield from map(self.literal, node.attributes)
        for attribute, value in zip(declared, node.attributes, strict=False):
            if value != attribute.default:
                yield f"{attribute.name}={self.literal(value)}"

    def literal(self, value: Literal) -> str:
        """An attribute's value."""
        if isinstance(value, tuple):
            return f"[{', '.join(map(self.size, value))}]"
        return f"{value:g}" if isinstance(value, float) else str(value)

    def size(self, number: int) -> str:
        """A dimension, or another integer of a list."""
        return self.symbols.get(number, str(number))


_LEAVES = frozenset({"Var", "Weight", "Full", "Absent", "Nil"})


def _is_term(node: ENode) -> Iterator[bool]:
    """For each argument of the node's constructor whether it is an operand."""
    if node.op in OPERATORS:
        yield from (isinstance(a, Operand) for a in OPERATORS[node.op].arguments)
    elif node.op == "Out":
        yield from (True, False)
    else:
        yield from [True] * len(node.children) + [False] * len(node.attributes)


def type_text(type_: TensorType | None) -> str:
    """An element type and shape: ``float32[1, 64, n]``."""
    if type_ is None:
        return ""
    return type_.dtype + ("" if type_.shape is None else f"[{', '.join(map(str, type_.shape))}]")


def shorten(names: Iterable[str]) -> dict[str, str]:
    """For each name its shortest end after a slash or dot that begins with a letter and is no end of another name."""
    ends = {name: list(_ends(name)) for name in dict.fromkeys(names)}
    count = Counter(end for some in ends.values() for end in some)
    return {name: next((end for end in some if count[end] == 1), name) for name, some in ends.items()}


def _ends(name: str) -> Iterator[str]:
    """The ends of a name that begin with a letter, the shortest first, then all of it."""
    starts = [m.end() for m in re.finditer(r"[/.]+", name)]
    yield from (name[start:] for start in reversed(starts) if name[start : start + 1].isalpha())
    if 0 not in starts:
        yield name
