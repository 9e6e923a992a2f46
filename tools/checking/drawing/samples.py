"""Samples of a rule's left side: shapes, attributes and leaves chosen at random so that its conditions hold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

from ....ir import operators as semantics
from ....ir.operators import OPERATORS, Attribute, Unsupported
from ....ir.operators.numbers import element_type
from ....rules.sexpr import Atom, Node, walk
from .conditions import (
    Environment,
    Failed,
    Type,
    Unbound,
    Unknown,
    evaluate,
    first_known,
    holds,
    propagate,
    table_rows,
)
from .left_side import LEAVES, Application, Contradiction, LeftSide, Value, trace_facts
from .operator_draft import Choice, Misfit, Site, random_shape
from .recipes import order, recipe
from .terms import Argument, Leaf, Term, leaves
from .types import TYPES, admits, admitted

_NUMBER = re.compile(r"-?\d+\.\d+")
_TRIES = 12
"""Choices made anew where a condition would be false."""
MAX_ELEMENTS = 400
"""Samples with a tensor of more elements are not used."""


@dataclass(frozen=True)
class Sample:
    """A left side with everything chosen. `terms` gives the term of each tensor variable, `roots` those that are no
    operand of another; `environment` what the variables of the rule stand for, `made` the type of each term; `symbols`
    the size that each symbolic dimension had before it became one."""

    roots: tuple[Term | Leaf, ...]
    terms: dict[str, Term | Leaf]
    environment: Environment
    made: dict[Term, Type] = field(default_factory=dict)
    symbols: dict[int, int] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether some tensor of it has no element."""
        types = [leaf.type for root in self.roots for leaf in leaves(root)] + list(self.made.values())
        return any(0 in type_.shape for type_ in types)


@dataclass
class _Builder:
    pattern: LeftSide
    random: Random
    dtype: str
    environment: Environment = field(default_factory=Environment)
    terms: dict[str, Term | Leaf] = field(default_factory=dict)
    made: dict[Term, Type] = field(default_factory=dict)
    busy: set[str] = field(default_factory=set)
    numbers: tuple[float, ...] = ()

    def build(self, variable: str, wish: Type | None) -> Type:
        """Make the term of a variable, with the wished type if that is possible. Raises Misfit."""
        if variable not in self.terms:
            if variable in self.busy:
                raise Misfit
            self.busy.add(variable)
            application = self.pattern.applications.get(variable)
            if application is None:
                self._leaf(variable, wish or self._some_type())
            elif application.head in LEAVES:
                self._given_leaf(variable, application, wish or self._some_type())
            else:
                self._apply(variable, application, wish or self._some_type())
            propagate(self.pattern.equations, self.environment)
        return self.environment.types.get(variable, Type((), ""))

    def _some_type(self) -> Type:
        return Type(random_shape(self.random), self.dtype)

    # --- leaves

    def _leaf(self, variable: str, wish: Type) -> None:
        asked = self.pattern.lookups
        shape = first_known(asked.get(f"(shape {variable})", ()), self.environment)
        dtype = first_known(asked.get(f"(dtype {variable})", ()), self.environment)
        type_ = Type(shape if isinstance(shape, tuple) else wish.shape, dtype if isinstance(dtype, str) else wish.dtype)
        if f"(value {variable})" in asked:
            self._uniform(variable, type_)
            return
        asserted = self.pattern.assertions.get(variable, set())
        constant = bool(asserted & {"const", "scalar", "aged"}) or any(
            f"({function} {variable})" in asked for function in ("age", "pieces")
        )
        if "scalar" in asserted:
            type_ = Type((), type_.dtype)
        kind = "Weight" if constant or self.random.random() < 0.1 else "Var"
        told = ("nonneg" in asserted, "nonzero" in asserted, "finite" in asserted)
        leaf = Leaf(kind, variable, type_, *told)
        self.terms[variable], self.environment.types[variable] = leaf, type_

    def _uniform(self, variable: str, type_: Type) -> None:
        value = first_known(self.pattern.lookups[f"(value {variable})"], self.environment)
        for _ in range(_TRIES):
            number = self._number() if not isinstance(value, (int, float)) else float(value)
            if not _holds_number(type_.dtype, number):
                continue
            known = Type(type_.shape, type_.dtype, number)
            self.terms[variable], self.environment.types[variable] = Leaf("Full", variable, known), known
            if self._possible():
                return
        raise Misfit

    def _possible(self) -> bool:
        """Whether no condition is false as far as things are chosen."""
        trial = Environment(dict(self.environment.literals), self.environment.types)
        propagate(self.pattern.equations, trial)
        return all(holds(condition, trial) for condition in self.pattern.conditions)

    def _number(self) -> float:
        """A number that the rule speaks of, or another."""
        return self.random.choice((*self.numbers, *CONSTANTS))

    def _given_leaf(self, variable: str, application: Application, wish: Type) -> None:
        head = application.head
        if head == "Absent":
            self.terms[variable] = Leaf("Absent")
        elif head == "Full":
            shape, value, dtype = self._attributes(
                Site("Full", wish, self.random), ("0", "1", "2"), application.arguments
            )
            if not isinstance(shape, tuple) or not isinstance(value, (int, float)):
                raise Misfit
            type_ = Type(shape, str(dtype), float(value))
            self.terms[variable], self.environment.types[variable] = Leaf("Full", variable, type_), type_
        elif head == "Out":
            self._output(variable, application, wish)
        else:
            name = str(application.arguments[0]).strip('"')
            kind = "Weight" if head == "Weight" else "Var"
            self.terms[variable], self.environment.types[variable] = Leaf(kind, name, wish), wish

    def _output(self, variable: str, application: Application, wish: Type) -> None:
        node, index = application.arguments
        if not isinstance(node, str):
            raise Misfit
        self.build(node, wish)
        term = self.terms[node]
        number = self._attributes(Site("Out", wish, self.random), ("1",), (index,))[0]
        if not isinstance(term, Term) or not isinstance(number, int):
            raise Misfit
        outputs = self._evaluated(term)
        if not isinstance(outputs, tuple) or not 0 <= number < len(outputs):
            raise Misfit
        made = Term("Out", (term, number))
        self.terms[variable] = made
        self.made[made] = self.environment.types[variable] = _type_of(outputs[number])

    # --- operators

    def _apply(self, variable: str, application: Application, wish: Type) -> None:
        head = application.head
        arguments = dict(zip((a.name for a in OPERATORS[head].arguments), application.arguments, strict=True))
        site = Site(head, wish, self.random)
        self._known_first(site, arguments)
        for name in order(head):
            self._choose(site, name, arguments[name])
        if not admits(head, site.operands):
            raise Misfit
        given = {n: a for n, a in arguments.items() if isinstance(a, str)}
        chosen: list[Argument] = []
        for argument in OPERATORS[head].arguments:
            if isinstance(argument, Attribute):
                chosen.append(site.attributes[argument.name])
            else:
                chosen.append(self.terms[given[argument.name]])
        term = Term(head, tuple(chosen))
        self.terms[variable] = term
        value = self._evaluated(term)
        if not isinstance(value, tuple):
            self.made[term] = self.environment.types[variable] = _type_of(value)

    def _known_first(self, site: Site, arguments: dict[str, str | Node]) -> None:
        """Operands and attributes that are there already say more than any wish."""
        attributes = {a.name for a in OPERATORS[site.head].attributes}
        for name, argument in arguments.items():
            if name in attributes:
                with suppress(Unbound):
                    site.attributes[name] = evaluate(_as_node(argument), self.environment)
            elif isinstance(argument, str) and argument in self.environment.types:
                site.operands[name] = self.environment.types[argument]

    def _choose(self, site: Site, name: str, argument: str | Node) -> None:
        attribute = {a.name for a in OPERATORS[site.head].attributes}
        if name in attribute:
            site.attributes[name] = self._attribute(site, name, argument)
        elif name not in site.operands and isinstance(argument, str):
            if argument not in self.terms and argument not in self.pattern.applications:
                self._operand_leaf(site, name, argument)
            elif argument not in self.terms:
                choice = _chosen(site, name)
                self.build(argument, choice if isinstance(choice, Type) else None)
            built = self.build(argument, None)
            if not isinstance(self.terms[argument], Leaf) or self.terms[argument] != Leaf("Absent"):
                site.operands[name] = built

    def _operand_leaf(self, site: Site, name: str, variable: str) -> None:
        """A leaf in the place of an operand, chosen anew while that makes a condition false."""
        for _ in range(_TRIES):
            choice = _chosen(site, name)
            if isinstance(choice, Type):
                self._leaf(variable, choice)
            else:
                self.terms[variable] = Leaf("Absent")
            if self._possible():
                return
            self.environment.types.pop(variable, None)
        raise Misfit

    def _attributes(self, site: Site, names: Sequence[str], arguments: Sequence[str | Node]) -> list[Value]:
        return [self._attribute(site, name, argument) for name, argument in zip(names, arguments, strict=True)]

    def _attribute(self, site: Site, name: str, argument: str | Node) -> Value:
        if not isinstance(argument, str):
            return evaluate(argument, self.environment)
        literals = self.environment.literals
        propagate(self.pattern.equations, self.environment)
        if argument not in literals:
            self._from_tables(argument)
        for _ in range(_TRIES if argument not in literals else 0):
            choice = self.random.choice((0, 1)) if site.head == "Out" else _chosen(site, name)
            if choice is None or isinstance(choice, Type):
                raise Misfit
            literals[argument] = choice
            if self._possible():
                break
        propagate(self.pattern.equations, self.environment)
        return literals[argument]

    def _from_tables(self, variable: str) -> None:
        """Bind an attribute by a fact that only the rows of a table satisfy."""
        for condition in self.pattern.conditions:
            rows = [r for r in table_rows(condition, self.environment) if variable in r]
            if rows:
                self.environment.literals.update(self.random.choice(rows))
                return

    def _evaluated(self, term: Term) -> semantics.Array | tuple[semantics.Array, ...]:
        """The term on operands of ones, for its type."""
        arguments = [self._operand(a) for a in term.arguments]
        try:
            result = semantics.evaluate(term.head, arguments)
        except (Unsupported, ValueError, IndexError, TypeError, ZeroDivisionError):
            raise Misfit from None
        arrays = result if isinstance(result, tuple) else (result,)
        if any(array.size > MAX_ELEMENTS for array in arrays):
            raise Misfit
        return result

    def _operand(self, argument: Argument) -> semantics.Array | Value | None:
        if not isinstance(argument, (Term, Leaf)):
            return argument
        if argument == Leaf("Absent"):
            return None
        type_ = argument.type if isinstance(argument, Leaf) else self.made[argument]
        return np.full(type_.shape, 1 if type_.value is None else type_.value, _numpy(type_.dtype))


def _as_node(argument: str | Node) -> Node:
    return Atom(argument) if isinstance(argument, str) else argument


def _chosen(site: Site, name: str) -> Choice:
    try:
        return recipe(site.head)(site, name)
    except (IndexError, ValueError, TypeError, KeyError):
        raise Misfit from None


def _holds_number(dtype: str, number: float) -> bool:
    try:
        semantics.full((), number, dtype)
    except Unsupported:
        return False
    return True


def _numpy(dtype: str) -> np.dtype[Any]:
    try:
        return element_type(dtype)
    except Unsupported:
        raise Misfit from None


def _type_of(array: semantics.Array) -> Type:
    return Type(tuple(array.shape), array.dtype.name)


CONSTANTS = (0.5, 2.0, -1.5, 1.0, 0.0, 3.0, -1.0, 0.25, 1.5, 2.5, -2.0, -0.5, 7.0, 100.0, -100.0, 1e4, 1e-4)
"""Numbers for the constants of a rule besides those that it speaks of."""


def patterns(facts: Sequence[Node], random: Random, count: int = 8) -> list[tuple[LeftSide, tuple[float, ...]]]:
    """The facts of a rule taken apart, in several ways where a relation can be derived in several, and the numbers
    that they speak of."""
    found = []
    for _ in range(count):
        pattern = LeftSide()
        with suppress(Contradiction):
            pattern.add_facts(trace_facts(facts, random))
            found.append((pattern, _numbers(facts)))
    return found


def sample(pattern: LeftSide, numbers: tuple[float, ...], random: Random, floating: bool = False) -> Sample | None:
    """One attempt at a sample of a pattern, in float32 or any type; None where what was chosen does not fit."""
    try:
        dtype = "float32" if floating else random.choice(_possible_types(pattern))
        builder = _Builder(pattern, random, dtype, numbers=numbers)
        for root in pattern.roots():
            builder.build(root, None)
        for variable in pattern.tensors:
            builder.build(variable, None)
        propagate(pattern.equations, builder.environment)
    except (Misfit, Unbound, Unknown, Failed, Contradiction, RecursionError):
        return None
    if not all(holds(condition, builder.environment) for condition in pattern.conditions):
        return None
    roots = tuple(builder.terms[r] for r in pattern.roots() if _is_tensor(builder.terms[r]))
    return Sample(roots, dict(builder.terms), builder.environment, builder.made) if roots else None


def _possible_types(pattern: LeftSide) -> list[str]:
    """The types that all operators of a pattern take whose results have the type of their operands."""
    every = [types for a in pattern.applications.values() if (types := admitted(a.head))]
    return [t for t in TYPES if all(t in types for types in every)] or list(TYPES)


def _numbers(facts: Sequence[Node]) -> tuple[float, ...]:
    """The numbers that a rule compares constants with, several times: they must meet by chance."""
    found = []
    for fact in facts:
        for node in walk(fact):
            if isinstance(node, Atom) and _NUMBER.fullmatch(node.text) and abs(float(node.text)) > 1e-4:
                found.append(float(node.text))
    return tuple(dict.fromkeys(found)) * 4


def _is_tensor(term: Term | Leaf) -> bool:
    return isinstance(term, Leaf) or term.head == "Out" or OPERATORS[term.head].sort == "T"
