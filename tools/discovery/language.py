"""The terms that discovery looks at: their operators, their leaves, and the order in which they are enumerated.

A term is an expression as a rule writes it: variables ``a``, ``b``, ``c``, the number one, and operators. Attributes
are pattern variables (``axes`` and ``k`` of a reduction), or have their defaults.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from itertools import product

from ...ir.operators import OPERATORS, Attribute, OperatorSchema
from ...rules import sexpr
from ...rules.commute import variables
from ...rules.sexpr import Atom, Form, Node, substitute
from ...support.errors import UsageError
from ..checking.sampling.conditions import Type
from ..checking.sampling.terms import literal_text
from ..checking.sampling.types import admits

VARIABLES = ("a", "b", "c")
_ATTRIBUTES = {"axes": "axes", "keepdims": "k", "direction": '"LEFT"'}
"""The text of attributes without a default, and of those that a rule should leave open."""
_RING = frozenset({"Mul", "Div", "Reciprocal"})
"""Operators beside which the number one is a leaf."""


def parse_term(text: str) -> Node:
    """A term from its text, without positions in the text, so that terms with the same text are equal."""
    return _without_places(sexpr.read(text).forms[0]) if text.startswith("(") else Atom(text)


def _without_places(node: Node) -> Node:
    return Atom(node.text) if isinstance(node, Atom) else Form(tuple(map(_without_places, node.items)))


ONE = "(Full (vec-empty) 1.0 t)"
UNIFORM = "(Full (vec-empty) v t)"
"""A constant of one number, by which a tensor is shifted."""
SHIFT = frozenset({"BitShift"})


@dataclass(frozen=True)
class Domain:
    """Terms over leaves of one element type. `needed`: only rules with one of these operators are looked for, because
    the others are found in another domain."""

    dtype: str
    operators: tuple[str, ...]
    needed: frozenset[str]

    @property
    def signed(self) -> bool:
        """Whether an equation may hold for positive numbers alone."""
        return self.dtype == "float32"

    @property
    def leaves(self) -> tuple[Node, ...]:
        """The terms without an operator."""
        one = (parse_term(ONE),) if not _RING.isdisjoint(self.operators) and self.dtype != "bool" else ()
        return (*map(Atom, VARIABLES), *one)


def choose_domains(names: Sequence[str]) -> list[Domain]:
    """The element types to look at, each with the operators that are defined on it.

    Raises UsageError for an operator that does not exist or has arguments that discovery cannot choose.
    """
    chosen = list(dict.fromkeys(names))
    if not chosen:
        raise UsageError("--ops: name operators, such as Mul,Add")
    for name in chosen:
        _require_usable(name)
    domains: list[Domain] = []
    for dtype in ("float32", "uint32", "bool"):
        defined = tuple(n for n in chosen if _is_defined(n, dtype))
        seen = {n for d in domains for n in d.operators}
        needed = frozenset(defined) - seen
        if needed:
            domains.append(Domain(dtype, defined, needed))
    return domains


def _require_usable(name: str) -> None:
    operator = OPERATORS.get(name)
    if operator is None:
        usable = {other.lower(): other for other, schema in OPERATORS.items() if _usable(schema)}
        near = get_close_matches(name.lower(), list(usable), 1)
        hint = f"; did you mean {usable[near[0]]}?" if near else ""
        raise UsageError(f"--ops: there is no operator {name!r}{hint}")
    if not _usable(operator):
        raise UsageError(f"--ops: {name} cannot be enumerated, only element-wise arithmetic, logic and reductions can")


def _usable(operator: OperatorSchema) -> bool:
    """Whether it is element-wise or a reduction, and its attributes can be chosen without looking at its operands."""
    if operator.name in _JUMPING:
        return False
    unknown = any(a.default is None and a.name not in _ATTRIBUTES for a in operator.attributes)
    optional = any(o.optional for o in operator.operands)
    return operator.sort == "T" and operator.category in _CATEGORIES and not unknown and not optional


_JUMPING = frozenset({"IsNaN", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"})
"""Operators whose result changes at inputs that hardly occur at random, such as two equal numbers: wrong equations
would pass every test."""
_CATEGORIES = ("elementwise.unary", "elementwise.binary", "reduction")


def _is_defined(name: str, dtype: str) -> bool:
    if name in SHIFT and not dtype.startswith("uint"):
        return False
    return admits(name, {o.name: Type((2, 2), dtype) for o in OPERATORS[name].operands})


@cache
def arity(name: str) -> int:
    """The number of operands that the enumeration chooses for the operator."""
    return 1 if name in SHIFT else len(OPERATORS[name].operands)


def apply(name: str, operands: Sequence[Node]) -> Form:
    """An operator on terms, with its attributes as rules write them."""
    given: Iterator[Node] = iter((*operands, parse_term(UNIFORM)))
    arguments = OPERATORS[name].arguments
    return Form((Atom(name), *(_attribute(a) if isinstance(a, Attribute) else next(given) for a in arguments)))


def _attribute(attribute: Attribute) -> Node:
    if attribute.name in _ATTRIBUTES:
        return Atom(_ATTRIBUTES[attribute.name])
    return Atom(literal_text(attribute.default if attribute.default is not None else ""))


def build_terms(domain: Domain, smaller: Mapping[int, Sequence[Node]], size: int) -> Iterator[Form]:
    """Every term of `size` operators whose operands are among the `smaller` ones, given by size."""
    for name in domain.operators:
        count = arity(name)
        for sizes in product(range(size), repeat=count):
            if sum(sizes) == size - 1:
                yield from (apply(name, operands) for operands in product(*(smaller[s] for s in sizes)))


def atoms_of(term: Node) -> list[str]:
    """The names and numbers in a term, each as often as it occurs."""
    return [str(t) for t in subterms(term) if not isinstance(t, Form)]


def names_of(node: Node) -> tuple[str, ...]:
    """The tensor variables in the order of their first use."""
    return tuple(dict.fromkeys(v.text for v in variables(node) if v.text in VARIABLES))


def heads(node: Node) -> list[str]:
    """The operators of a term, outer before inner, with repetitions."""
    return [n.head for n in sexpr.walk(node) if isinstance(n, Form) and n.head in OPERATORS]


def subterms(node: Node) -> Iterator[Node]:
    """The term and every term in it, with repetitions."""
    yield node
    if isinstance(node, Form) and node.head in OPERATORS:
        for argument, item in zip(OPERATORS[node.head].arguments, node.items[1:], strict=True):
            if not isinstance(argument, Attribute):
                yield from subterms(item)


def canonical(left: Node, right: Node) -> tuple[Node, Node]:
    """Both sides with the variables named in the order of their first use."""
    used = dict.fromkeys((*names_of(left), *names_of(right)))
    names: dict[str, Node] = {old: Atom(new) for old, new in zip(used, VARIABLES, strict=False)}
    return substitute(left, names), substitute(right, names)


def reduces(node: Node) -> bool:
    """Whether there is a reduction in the term."""
    return any(OPERATORS[head].category == "reduction" for head in heads(node))
