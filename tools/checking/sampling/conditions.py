"""The conditions of a rule, computed in Python: they bind literals and sort out most samples before egglog sees them.

Facts of the analyses are `Unknown` here and left to the e-graph.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

from ....rules import sexpr
from ....rules.commute import is_variable, variables
from ....rules.places import analysis_files
from ....rules.sexpr import Atom, Form, Node

Value = int | float | str | tuple[int, ...]
"""A literal of the rule language: i64, f64, String, or Ints."""


class Unbound(Exception):
    """A variable has no value yet."""


class Unknown(Exception):
    """Python cannot tell; the e-graph can."""


class Failed(Exception):
    """A primitive has no value for these arguments, so that the condition does not hold."""


@dataclass(frozen=True)
class Type:
    """The type of a sampled tensor; if it is a constant of one number, `value` is that number."""

    shape: tuple[int, ...]
    dtype: str
    value: float | None = None


@dataclass
class Environment:
    """Values of the literal variables, and types of the tensor variables, of one sample."""

    literals: dict[str, Value] = field(default_factory=dict)
    types: dict[str, Type] = field(default_factory=dict)


def literal(atom: Atom) -> Value:
    """The value of a literal."""
    text = atom.text
    if text.startswith('"'):
        return text[1:-1].replace('\\"', '"')
    try:
        return int(text)
    except ValueError:
        return float(text)


Expression = Callable[[Environment], Value]
"""Computes a value. Raises Unbound, Unknown or Failed."""


def evaluate(node: Node, environment: Environment) -> Value:
    """The value of an expression. Raises Unbound, Unknown or Failed."""
    return expression(node)(environment)


def expression(node: Node) -> Expression:
    """An expression, taken apart once to be computed in many environments."""
    if isinstance(node, Atom):
        return _variable(node.text) if is_variable(node) else _constant(literal(node))
    if node.head in _LOOKUPS:
        return _lookup(node.head, node.items[1])
    arguments = tuple(map(expression, node.items[1:]))
    if node.head in _PRIMITIVES:
        function = _PRIMITIVES[node.head]
        return lambda environment: _apply(function, [argument(environment) for argument in arguments])
    return _table_look_up(node.head, arguments)


def _constant(value: Value) -> Expression:
    return lambda environment: value


def _variable(name: str) -> Expression:
    def compute(environment: Environment) -> Value:
        if name not in environment.literals:
            raise Unbound(name)
        return environment.literals[name]

    return compute


_LOOKUPS = ("shape", "dtype", "value")
"""Functions of tensors: the fields of `Type`."""


def _lookup(function: str, tensor: Node) -> Expression:
    def compute(environment: Environment) -> Value:
        if not isinstance(tensor, Atom):
            raise Unknown(str(tensor))
        if tensor.text not in environment.types:
            raise Unbound(tensor.text)
        value: Value | None = getattr(environment.types[tensor.text], function)
        if value is None:
            raise Failed(function)
        return value

    return compute


def _table_look_up(name: str, arguments: Sequence[Expression]) -> Expression:
    def compute(environment: Environment) -> Value:
        key = tuple([argument(environment) for argument in arguments])
        for row in _tables().get(name, ()):
            if row[:-1] == key:
                return row[-1]
        raise Unknown(name)

    return compute


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


def _by_place(function: Callable[[int, int], int]) -> Callable[..., tuple[int, ...]]:
    """A function of two vectors of equal length, applied number by number, as in analysis/vectors.egg."""
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
    "to-string": str,
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
    "vector-sum": _by_place(operator.add),
    "vector-difference": _by_place(operator.sub),
    "vector-product": _by_place(operator.mul),
    "vector-maximum": _by_place(max),
    "vector-pick": lambda vector, indices: tuple(_get(vector, i) for i in indices),
    "first-half": lambda vector: vector[: len(vector) // 2],
    "second-half": lambda vector: vector[len(vector) // 2 :],
}


def _compare(function: Callable[[Any, Any], bool]) -> Callable[..., bool]:
    def compare(*items: Any) -> bool:
        return function(*items) if len(items) == 2 else all(function(a, b) for a, b in pairwise(items))

    return compare


_TESTS: dict[str, Callable[..., bool]] = {
    "=": _compare(operator.eq),
    "value-eq": _compare(operator.eq),
    "!=": _compare(operator.ne),
    "<": _compare(operator.lt),
    ">": _compare(operator.gt),
    "<=": _compare(operator.le),
    ">=": _compare(operator.ge),
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


def is_of_table(fact: Node) -> bool:
    """Whether a fact is about a function or relation that the analyses fill with literals only."""
    return isinstance(fact, Form) and fact.head in _tables()


def table_rows(fact: Node, environment: Environment) -> list[dict[str, Value]]:
    """The bindings of its unbound variables under which a fact is one of a table's rows; [] for any other fact."""
    if not isinstance(fact, Form):
        return []
    bindings = []
    for row in _tables().get(fact.head, ()):
        binding: dict[str, Value] = {}
        if len(row) == len(fact.items) - 1 and all(
            _agrees(item, value, environment, binding) for item, value in zip(fact.items[1:], row, strict=True)
        ):
            bindings.append(binding)
    return bindings


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


class Test:
    """A condition that Python may decide without the e-graph; `literals` are its variables of literals."""

    def __init__(self, condition: Form) -> None:
        self.literals = _literals_of(condition)
        self._read_first = frozenset(_read_first(condition))
        self._compare = _TESTS[condition.head]
        self._sides = tuple(map(expression, condition.items[1:]))

    def holds(self, environment: Environment) -> bool | None:
        """Whether it holds; None if that depends on facts of the e-graph or on unbound variables."""
        if not environment.literals.keys() >= self._read_first:
            return None
        try:
            return self._compare(*[side(environment) for side in self._sides])
        except (Unbound, Unknown):
            return None
        except Failed:
            return False


def compile_tests(conditions: Iterable[Node]) -> list[Test]:
    """The tests among some conditions; only the e-graph knows whether the others hold."""
    return [Test(c) for c in conditions if isinstance(c, Form) and c.head in _TESTS]


def _read_first(node: Form) -> Iterator[str]:
    """The variables of literals that are read before any computation, which may fail."""
    for item in node.items[1:]:
        if isinstance(item, Form):
            if item.head not in _LOOKUPS:
                yield from _read_first(item)
            return
        if is_variable(item):
            yield item.text


@dataclass(frozen=True)
class _Side:
    """One side of an equation, and the variables without which it cannot be computed: of literals, and of tensors."""

    literals: frozenset[str]
    tensors: frozenset[str]
    compute: Expression


class Equation:
    """An equation, ready to bind the variables `names` in many environments."""

    def __init__(self, names: Iterable[str], form: Form) -> None:
        self.names = frozenset(names)
        self._sides = tuple(map(_side, form.items[1:]))

    def bind(self, environment: Environment) -> bool:
        """Give the variables that are not bound the value of the first side that can be computed, if there is one."""
        literals = environment.literals
        for side in self._sides:
            if literals.keys() >= side.literals and environment.types.keys() >= side.tensors:
                try:
                    value = side.compute(environment)
                except (Unbound, Unknown, Failed):
                    continue
                literals.update((name, value) for name in self.names if name not in literals)
                return True
        return False


def _side(node: Node) -> _Side:
    return _Side(_literals_of(node), _tensors_of(node), expression(node))


def _tensors_of(node: Node) -> frozenset[str]:
    forms = [part for part in sexpr.walk(node) if isinstance(part, Form) and part.head in _LOOKUPS]
    return frozenset(str(form.items[1]) for form in forms if isinstance(form.items[1], Atom))


def _literals_of(node: Node) -> frozenset[str]:
    return frozenset(v.text for v in variables(node)) - _tensors_of(node)


def propagate(equations: Sequence[Equation], environment: Environment) -> Sequence[Equation]:
    """Bind every variable that an equation gives a value. Return the equations that have variables without one."""
    bound = environment.literals.keys()
    changed = True
    while changed:
        changed = False
        later = []
        for equation in equations:
            if not bound >= equation.names:
                if equation.bind(environment):
                    changed = True
                else:
                    later.append(equation)
        equations = later
    return equations


def first_value(expressions: Sequence[Expression], environment: Environment) -> Value | None:
    """The value of the first expression that can be computed by now; None if none can."""
    for each in expressions:
        try:
            return each(environment)
        except (Unbound, Unknown, Failed):
            continue
    return None
