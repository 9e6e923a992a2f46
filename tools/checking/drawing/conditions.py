"""The conditions of a rule, computed in Python: they bind literals and sort out most samples before egglog sees them.

What only the e-graph can tell (a fact of its analyses) is `UNKNOWN` here and left to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

from ....rules import sexpr
from ....rules.commute import is_variable
from ....rules.places import analysis_files
from ....rules.sexpr import Atom, Form, Node
from .left_side import Value


class Unbound(Exception):
    """A variable has no value yet."""


class Unknown(Exception):
    """Python cannot tell; the e-graph can."""


class Failed(Exception):
    """A primitive has no value for these arguments, so that the condition does not hold."""


@dataclass(frozen=True)
class Type:
    """What is known of a sampled tensor; `value` is the number of all its elements."""

    shape: tuple[int, ...]
    dtype: str
    value: float | None = None


@dataclass
class Environment:
    """Values of the literal variables, and types of the tensor variables, of one sample."""

    literals: dict[str, Value] = field(default_factory=dict)
    types: dict[str, Type] = field(default_factory=dict)


def literal(atom: Atom) -> Value:
    """The value of a written literal."""
    text = atom.text
    if text.startswith('"'):
        return text[1:-1].replace('\\"', '"')
    try:
        return int(text)
    except ValueError:
        return float(text)


def evaluate(node: Node, environment: Environment) -> Value:
    """The value of an expression. Raises Unbound, Unknown or Failed."""
    if isinstance(node, Atom):
        if not is_variable(node):
            return literal(node)
        if node.text not in environment.literals:
            raise Unbound(node.text)
        return environment.literals[node.text]
    if node.head in _LOOKUPS:
        return _LOOKUPS[node.head](_type(node.items[1], environment))
    arguments = [evaluate(item, environment) for item in node.items[1:]]
    if node.head in _PRIMITIVES:
        return _apply(_PRIMITIVES[node.head], arguments)
    if node.head in _tables():
        return _looked_up(node.head, tuple(arguments))
    raise Unknown(node.head)


def _type(node: Node, environment: Environment) -> Type:
    if not isinstance(node, Atom):
        raise Unknown(str(node))
    if node.text not in environment.types:
        raise Unbound(node.text)
    return environment.types[node.text]


def _value(type_: Type) -> float:
    if type_.value is None:
        raise Failed("value")
    return type_.value


_LOOKUPS: dict[str, Callable[[Type], Value]] = {
    "shape": lambda t: t.shape,
    "dtype": lambda t: t.dtype,
    "value": _value,
}


def _apply(function: Callable[..., Any], arguments: Sequence[Value]) -> Value:
    try:
        return function(*arguments)  # type: ignore[no-any-return]
    except (IndexError, ZeroDivisionError, ValueError, TypeError, OverflowError) as error:
        raise Failed(str(error)) from None


def _get(vector: tuple[int, ...], index: int) -> int:
    if index < 0:
        raise IndexError(index)
    return vector[index]


def _set(vector: tuple[int, ...], index: int, value: int) -> tuple[int, ...]:
    _get(vector, index)
    return (*vector[:index], value, *vector[index + 1 :])


def _remove(vector: tuple[int, ...], index: int) -> tuple[int, ...]:
    _get(vector, index)
    return vector[:index] + vector[index + 1 :]


def _pop(vector: tuple[int, ...]) -> tuple[int, ...]:
    _get(vector, 0)
    return vector[:-1]


def _divide(a: Any, b: Any) -> Any:
    return a / b if isinstance(a, float) else math.trunc(a / b)


def _text(number: Value) -> str:
    return str(number)


def _each(function: Callable[[int, int], int]) -> Callable[..., tuple[int, ...]]:
    """What analysis/vectors.egg derives of two vectors of equal length."""
    return lambda u, v: tuple(function(a, b) for a, b in zip(u, v, strict=True))


_PRIMITIVES: dict[str, Callable[..., Any]] = {
    "+": lambda *a: "".join(a) if isinstance(a[0], str) else sum(a[1:], a[0]),
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _divide,
    "%": lambda a, b: int(math.fmod(a, b)),
    "^": lambda a, b: a**b if isinstance(a, float) else a ^ b,
    "min": min,
    "max": max,
    "abs": abs,
    "neg": lambda a: -a,
    "to-f64": float,
    "to-i64": int,
    "to-string": _text,
    "replace": lambda text, old, new: text.replace(old, new),
    "count-matches": lambda text, part: text.count(part),
    "vec-of": lambda *items: tuple(items),
    "vec-empty": lambda: (),
    "vec-append": lambda *vectors: sum(vectors, ()),
    "vec-pop": _pop,
    "vec-push": lambda vector, item: (*vector, item),
    "vec-length": len,
    "vec-get": _get,
    "vec-set": _set,
    "vec-remove": _remove,
    "vec-range": lambda n: tuple(range(n)),
    "vector-sum": _each(lambda a, b: a + b),
    "vector-difference": _each(lambda a, b: a - b),
    "vector-product": _each(lambda a, b: a * b),
    "vector-maximum": _each(max),
    "vector-pick": lambda vector, indices: tuple(_get(vector, i) for i in indices),
    "first-half": lambda vector: vector[: len(vector) // 2],
    "second-half": lambda vector: vector[len(vector) // 2 :],
}


def _compare(function: Callable[[Any, Any], bool]) -> Callable[..., bool]:
    return lambda *items: all(function(a, b) for a, b in pairwise(items))


_TESTS: dict[str, Callable[..., bool]] = {
    "=": _compare(lambda a, b: a == b),
    "value-eq": _compare(lambda a, b: a == b),
    "!=": _compare(lambda a, b: a != b),
    "<": _compare(lambda a, b: a < b),
    ">": _compare(lambda a, b: a > b),
    "<=": _compare(lambda a, b: a <= b),
    ">=": _compare(lambda a, b: a >= b),
    "vec-contains": lambda vector, item: item in vector,
    "vec-not-contains": lambda vector, item: item not in vector,
    "vectors-at-most": lambda u, v: len(u) == len(v) and all(a <= b for a, b in zip(u, v, strict=True)),
}


# --- tables of literals that the analyses write out


@cache
def _tables() -> Mapping[str, list[tuple[Value, ...]]]:
    """Rows of the functions and relations that the analyses fill with literals only: the arguments, then the result."""
    rows: dict[str, list[tuple[Value, ...]]] = {}
    nothing = Environment()
    for command in (d for file in analysis_files() for d in file.declarations):
        form = sexpr.read(command.text).forms[0]
        call = form.items[1] if form.head == "set" else form
        if not isinstance(call, Form) or form.head in ("relation", "function", "ruleset", "sort", "constructor"):
            continue
        cells = (*call.items[1:], *(form.items[2:3] if form.head == "set" else ()))
        rows.setdefault(call.head, []).append(tuple(evaluate(cell, nothing) for cell in cells))
    return rows


def _looked_up(table: str, arguments: tuple[Value, ...]) -> Value:
    for row in _tables()[table]:
        if row[:-1] == arguments:
            return row[-1]
    raise Unknown(table)


def table_rows(fact: Node, environment: Environment) -> list[dict[str, Value]]:
    """The bindings of its unbound variables under which a fact is one of a table's rows; [] for any other fact."""
    if not isinstance(fact, Form) or fact.head not in _tables():
        return []
    found = []
    for row in _tables()[fact.head]:
        binding: dict[str, Value] = {}
        if len(row) == len(fact.items) - 1 and all(
            _agrees(item, value, environment, binding) for item, value in zip(fact.items[1:], row, strict=True)
        ):
            found.append(binding)
    return found


def _agrees(item: Node, value: Value, environment: Environment, binding: dict[str, Value]) -> bool:
    try:
        return evaluate(item, environment) == value
    except Unbound:
        if isinstance(item, Atom):
            return binding.setdefault(item.text, value) == value
        return True
    except (Unknown, Failed):
        return False


# --- whole conditions


def holds(condition: Node, environment: Environment) -> bool:
    """Whether a condition holds, for all that is known here: one about unknown facts may."""
    if not isinstance(condition, Form) or condition.head not in _TESTS:
        return True
    try:
        return _TESTS[condition.head](*(evaluate(item, environment) for item in condition.items[1:]))
    except (Unbound, Unknown):
        return True
    except Failed:
        return False


def propagate(equations: Sequence[tuple[tuple[str, ...], Form]], environment: Environment) -> None:
    """Bind every variable that an equation gives a value. Each comes with the variables that it may bind."""
    open_ = list(equations)
    changed = True
    while changed:
        changed = False
        later = []
        for names, equation in open_:
            unbound = [name for name in names if name not in environment.literals]
            if unbound and not (bound := _bind(equation, unbound, environment)):
                later.append((names, equation))
            elif unbound:
                changed |= bound
        open_ = later


def _bind(equation: Form, unbound: Sequence[str], environment: Environment) -> bool:
    for item in equation.items[1:]:
        if isinstance(item, Atom) and item.text in unbound:
            continue
        try:
            value = evaluate(item, environment)
        except (Unbound, Unknown, Failed):
            continue
        environment.literals.update(dict.fromkeys(unbound, value))
        return True
    return False


def first_known(expressions: Sequence[Node], environment: Environment) -> Value | None:
    """The value of the first expression that can be computed yet."""
    for expression in expressions:
        try:
            return evaluate(expression, environment)
        except (Unbound, Unknown, Failed):
            continue
    return None
