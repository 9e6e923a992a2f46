"""Samples of a rule's left side: shapes, attributes and leaves chosen at random so that its conditions hold."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from random import Random

import numpy as np

from ....ir import operators as semantics
from ....ir.operators import OPERATORS, Array, Attribute, Unsupported
from ....ir.operators.numbers import element_type
from ....rules.sexpr import Atom, Form, Node, walk
from .conditions import (
    Environment,
    Equation,
    Failed,
    Test,
    Type,
    Unbound,
    Unknown,
    Value,
    evaluate,
    first_value,
    propagate,
    table_rows,
)
from .left_side import FACTS_OF_ELEMENTS, LEAVES, Application, Contradiction, LeftSide, trace_facts
from .operator_draft import (
    LONG,
    Choice,
    Misfit,
    OperatorDraft,
    empty_shape,
    long_shape,
    narrow_shape,
    random_shape,
    widened,
)
from .recipes import order, recipe
from .terms import Argument, Leaf, Term, leaves, subterms
from .types import admits

SAMPLES_PER_DIRECTION = 24
"""Samples to keep for each direction of a rule, by default; the time of a check grows with them."""
_NUMBER = re.compile(r"-?\d+\.\d+(e-?\d+)?")
_CONSTANTS = (0.5, 2.0, -1.5, 1.0, 0.0, 3.0, -1.0, 0.25, 1.5, 2.5, -2.0, -0.5, 7.0, 100.0, -100.0, 1e4, 1e-4, 0.1, 0.7)
"""Numbers for the constants of a rule besides those in its text. The last ones take all digits of a float type."""
_WHOLE = (4.0, 8.0, 16.0, 31.0)
"""More numbers for constants of integers, which may be bits to shift by."""
_FACTORS_BEYOND = (94906267.0, 3037000499.0, 2.0**53 - 1, 2.0**53 - 2)
"""Whole numbers whose products, or whose sums with others, float64 does not hold."""
_EXTREME_SHARE = 0.5
"""Share of the samples whose integer constants are mostly near the ends of their types."""
_DIGITS_SHARE = 0.75
"""Share of the floats that take all digits of their type, in samples drawn with `has_digits`."""
_INVERSE_SHARE = 0.2
"""Share of the permutations that undo another one of the sample."""
_INHERITED_SHARE = 0.6
"""Share of the leaves of which a fact holds that the rule asks of the result of an operator."""
_TRIES = 12
"""Choices in turn for one leaf, as long as a condition is false."""
MAX_ELEMENTS = 1024
"""Samples with a tensor of more elements are not used."""
MAX_LONG_ELEMENTS = 4096
"""The same for samples with a long axis, which are few; only an axis that a type has to outgrow is longer."""


@dataclass(frozen=True)
class Sample:
    """A left side with everything chosen.

    `terms` gives the term of each tensor variable, and `roots` has those that are no operand of another. `environment`
    has the values of the rule's variables, `types` the type of each term. `symbols` gives the size that each symbolic
    dimension had before it became one, `products` the numbers of products of two sizes, and `open_axes` has the leaves
    and axes with a symbolic dimension.
    """

    roots: tuple[Term | Leaf, ...]
    terms: dict[str, Term | Leaf]
    environment: Environment
    types: dict[Term, Type] = field(default_factory=dict)
    symbols: dict[int, int] = field(default_factory=dict)
    products: dict[tuple[int, int], int] = field(default_factory=dict)
    open_axes: tuple[tuple[str, int], ...] = ()

    @cached_property
    def subterms(self) -> tuple[Term | Leaf, ...]:
        """Every term and leaf of the roots, with repetitions."""
        return tuple(part for root in self.roots for part in subterms(root))

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """Every leaf of the roots, with repetitions."""
        return tuple(part for part in self.subterms if isinstance(part, Leaf))

    @cached_property
    def named_leaves(self) -> tuple[Leaf, ...]:
        """Every input and stored constant, once."""
        within = set(self.subterms)
        others = (leaf for term in self.terms.values() if term not in within for leaf in leaves(term))
        found: dict[str, Leaf] = {}
        for leaf in (*self.leaves, *others):
            if leaf.kind in ("Var", "Weight"):
                found.setdefault(leaf.name, leaf)
        return tuple(found.values())

    @property
    def numbers(self) -> tuple[float, ...]:
        """The floats among its constants and attributes, with repetitions."""
        return tuple(
            number
            for part in self.subterms
            for number in ((part.type.value,) if isinstance(part, Leaf) else part.arguments)
            if isinstance(number, float)
        )

    @property
    def heads(self) -> set[str]:
        """The constructors of the terms."""
        return {part.head for part in self.subterms if isinstance(part, Term)}

    @property
    def is_empty(self) -> bool:
        """Whether some tensor of the sample has no element."""
        return any(0 in type_.shape for type_ in (*(leaf.type for leaf in self.leaves), *self.types.values()))

    @property
    def fills(self) -> bool:
        """Whether a result has elements although an input has none."""
        results = [type_ for root in self.roots if (type_ := self.type_of(root))]
        return any(0 in leaf.type.shape for leaf in self.leaves) and any(0 not in type_.shape for type_ in results)

    @property
    def is_long(self) -> bool:
        """Whether an axis of an input is long."""
        return any(size >= LONG for leaf in self.leaves for size in leaf.type.shape)

    @property
    def outgrows(self) -> bool:
        """Whether an axis of an input is so long that only few draws are affordable."""
        return any(size > MAX_LONG_ELEMENTS for leaf in self.leaves for size in leaf.type.shape)

    def widens_alone(self, variable: str) -> bool:
        """Whether a leaf has an axis, counted from the last one, that every other leaf lacks or has of size 1."""
        own = self.terms[variable]
        others = [leaf.type.shape for leaf in self.leaves if leaf != own]
        return isinstance(own, Leaf) and any(
            size > 1 and all(len(other) < place or other[-place] == 1 for other in others)
            for place, size in enumerate(reversed(own.type.shape), 1)
        )

    @property
    def shortens(self) -> bool:
        """Whether a result has no long axis."""
        return any(max(type_.shape, default=0) < LONG for root in self.roots if (type_ := self.type_of(root)))

    def type_of(self, operand: Argument) -> Type | None:
        """The type of an operand; None for a term of several outputs, and for a literal."""
        return operand.type if isinstance(operand, Leaf) else self.types.get(operand)  # type: ignore[arg-type]


@dataclass
class _SampleBuilder:
    """Builds the terms of one sample, operands first."""

    left_side: LeftSide
    random: Random
    dtype: str
    most: int = MAX_ELEMENTS
    is_extreme: bool = False
    has_digits: bool = False
    """Whether floats among constants and attributes take all digits of their type."""
    widest: str = ""
    """The leaf that alone widens results; "" if any operand may."""
    environment: Environment = field(default_factory=Environment)
    terms: dict[str, Term | Leaf] = field(default_factory=dict)
    types: dict[Term, Type] = field(default_factory=dict)
    busy: set[str] = field(default_factory=set)
    equations: Sequence[Equation] = ()
    """Those of the left side that have unbound variables."""
    tests: Sequence[Test] = ()
    """Those of the left side that may still fail."""
    propagated: tuple[int, int] = (-1, -1)
    """How many literals and types were known after all equations had bound what they could."""

    def __post_init__(self) -> None:
        self.equations, self.tests = self.left_side.equations, self.left_side.tests

    def propagate(self) -> None:
        """Bind every variable that an equation gives a value."""
        literals, types = self.environment.literals, self.environment.types
        if self.propagated != (len(literals), len(types)):
            self.equations = propagate(self.equations, self.environment)
            self.propagated = len(literals), len(types)

    def build(self, variable: str, wish: Type | None) -> Type:
        """Make the term of a variable, with the wished type if that is possible. Raises Misfit."""
        if variable not in self.terms:
            if variable in self.busy:
                raise Misfit
            self.busy.add(variable)
            application = self.left_side.applications.get(variable)
            wish = wish or Type(random_shape(self.random), self.dtype)
            if application is None:
                self._build_leaf(variable, wish)
            elif application.head in LEAVES:
                self._build_constructor(variable, application, wish)
            else:
                self._build_operator(variable, application, wish)
            self.propagate()
        return self.environment.types.get(variable, Type((), ""))

    def tensors_of(self, variable: str) -> Iterator[Term | Leaf]:
        """The term of a variable, or the outputs of one that has several. Raises Misfit."""
        term = self.terms[variable]
        if isinstance(term, Leaf) or term.head == "Out" or OPERATORS[term.head].sort == "T":
            yield term
            return
        for number, output in enumerate(self._evaluate_on_ones(term)):
            if output is not None:
                self.types[each := Term("Out", (term, number))] = _type_of_array(output)
                yield each

    def _set(self, variable: str, term: Term | Leaf, type_: Type) -> None:
        self.terms[variable], self.environment.types[variable] = term, type_
        if isinstance(term, Term):
            self.types[term] = type_

    def _is_possible(self) -> bool:
        """Whether no condition is false after the choices so far."""
        trial = Environment(dict(self.environment.literals), self.environment.types)
        if self.tests and self.tests[0].holds(trial) is False:  # the last one that failed often fails again
            return False
        propagate(self.equations, trial)
        bound = self.environment.literals.keys()
        undecided = []
        for test in self.tests:
            holds = test.holds(trial)
            if holds is False:
                self.tests = [test, *(other for other in self.tests if other is not test)]
                return False
            if holds is None or not bound >= test.literals:
                undecided.append(test)
        self.tests = undecided  # the choices so far never change
        return True

    # --- leaves

    def _build_leaf(self, variable: str, wish: Type) -> None:
        lookups = self.left_side.lookups
        shape = first_value(lookups.get(f"(shape {variable})", ()), self.environment)
        dtype = first_value(lookups.get(f"(dtype {variable})", ()), self.environment)
        wished = widened(wish.shape, self.random) if variable == self.widest else wish.shape
        type_ = Type(shape if isinstance(shape, tuple) else wished, dtype if isinstance(dtype, str) else wish.dtype)
        if f"(value {variable})" in lookups:
            self._build_constant(variable, type_)
            return
        assertions = self.left_side.assertions.get(variable, set())
        constant = self.left_side.is_constant(variable)
        if "scalar" in assertions:
            type_ = Type((), type_.dtype)
        kind = "Weight" if constant or self.random.random() < 0.1 else "Var"
        self._set(variable, Leaf(kind, variable, type_, *self._facts_of_leaf(variable)), type_)

    def _facts_of_leaf(self, variable: str) -> Iterator[bool]:
        """For each fact about elements whether it holds of a leaf: if the rule asks for it, and sometimes if it asks
        for it of what may be made from the leaf."""
        asserted = self.left_side.assertions.get(variable, ())
        inherited = {fact for fact in self.left_side.facts_of_terms if self.random.random() < _INHERITED_SHARE}
        return (fact in asserted or fact in inherited for fact in FACTS_OF_ELEMENTS)

    def _build_constant(self, variable: str, type_: Type) -> None:
        """Make a constant of one number, from the rule or any other."""
        value = first_value(self.left_side.lookups[f"(value {variable})"], self.environment)
        for _ in range(_TRIES):
            number = float(value) if isinstance(value, (int, float)) else self._number_of_constant(type_.dtype)
            try:
                semantics.full((), number, type_.dtype)
            except Unsupported:
                continue
            own = Type(type_.shape, type_.dtype, number)
            self._set(variable, Leaf("Full", variable, own), own)
            if self._is_possible():
                return
        raise Misfit

    def _number_of_constant(self, dtype: str) -> float:
        """A number of the rule or one beside it, a usual number, or for integers one near the end of the type."""
        if np.dtype(dtype).kind == "f":
            if self.has_digits and self.random.random() < _DIGITS_SHARE:
                return float(np.dtype(dtype).type(self._number_of_all_digits()))
            largest = float(np.finfo(dtype).max)
            deck = self.left_side.decks.setdefault(dtype, [])
            if not deck:
                deck += [number for number in self.left_side.numbers if abs(number) <= largest]
                deck += [float(np.dtype(dtype).type(number)) for number in _CONSTANTS]
                self.random.shuffle(deck)
            return deck.pop()
        if np.dtype(dtype).kind not in "iu":
            return self.random.choice((*self.left_side.numbers, *_CONSTANTS))
        limits = np.iinfo(dtype)
        ends = (limits.min, limits.max, limits.max // 2 + 1, limits.max // 2 - 1, -(limits.max // 2) - 1)
        numbers: tuple[float, ...] = (*self.left_side.numbers, *_CONSTANTS, *_WHOLE)
        if self.is_extreme and self.random.random() < 0.8:
            numbers = (*map(float, ends), *_FACTORS_BEYOND * 2)
        return self.random.choice([n for n in numbers if n.is_integer() and limits.min <= n <= limits.max] or [1.0])

    def _number_of_all_digits(self) -> float:
        """A number of ordinary size with random last bits."""
        return self.random.choice((-1.0, 1.0, 1.0)) * self.random.uniform(1.0, 2.0) * 2.0 ** self.random.randint(-3, 3)

    def _build_constructor(self, variable: str, application: Application, wish: Type) -> None:
        """Make a leaf that the rule writes as one, or an output of an operator."""
        head, arguments = application.head, application.arguments
        if head == "Absent":
            self.terms[variable] = Leaf("Absent")
        elif head == "Full":
            draft = OperatorDraft("Full", wish, self.random)
            shape, value, dtype = (self._attribute(draft, str(i), argument) for i, argument in enumerate(arguments))
            if not isinstance(shape, tuple) or not isinstance(value, (int, float)):
                raise Misfit
            type_ = Type(shape, str(dtype), float(value))
            self._set(variable, Leaf("Full", variable, type_), type_)
        elif head == "Out":
            self._build_output(variable, arguments[0], arguments[1], wish)
        else:
            self._set(variable, Leaf(head, str(arguments[0]).strip('"'), wish, *self._facts_of_leaf(variable)), wish)

    def _build_output(self, variable: str, node: str | Node, index: str | Node, wish: Type) -> None:
        if not isinstance(node, str):
            raise Misfit
        self.build(node, wish)
        term = self.terms[node]
        number = self._attribute(OperatorDraft("Out", wish, self.random), "1", index)
        if not isinstance(term, Term) or not isinstance(number, int):
            raise Misfit
        outputs = self._evaluate_on_ones(term)
        if not isinstance(outputs, tuple) or not 0 <= number < len(outputs):
            raise Misfit
        self._set(variable, Term("Out", (term, number)), _type_of_array(outputs[number]))

    # --- operators

    def _build_operator(self, variable: str, application: Application, wish: Type) -> None:
        head = application.head
        arguments = dict(zip((a.name for a in OPERATORS[head].arguments), application.arguments, strict=True))
        attributes = {a.name for a in OPERATORS[head].attributes}
        draft = OperatorDraft(head, wish, self.random, self.dtype, is_narrow=bool(self.widest))
        for name, argument in arguments.items():  # arguments with a value already count more than any wish
            if name in attributes:
                with suppress(Unbound):
                    node = Atom(argument) if isinstance(argument, str) else argument
                    draft.attributes[name] = evaluate(node, self.environment)
            elif isinstance(argument, str) and argument in self.environment.types:
                draft.operands[name] = self.environment.types[argument]
        for name in order(head):
            if name in attributes:
                draft.attributes[name] = self._attribute(draft, name, arguments[name])
            else:
                self._choose_operand(draft, name, arguments[name])
        if not admits(head, draft.operands):
            raise Misfit
        term = Term(
            head,
            tuple(
                draft.attributes[a.name] if isinstance(a, Attribute) else self.terms[str(arguments[a.name])]
                for a in OPERATORS[head].arguments
            ),
        )
        self.terms[variable] = term
        value = self._evaluate_on_ones(term)
        if not isinstance(value, tuple):
            self._set(variable, term, _type_of_array(value))

    def _choose_operand(self, draft: OperatorDraft, name: str, variable: str | Node) -> None:
        if name in draft.operands or not isinstance(variable, str):
            return
        if variable not in self.terms and variable not in self.left_side.applications:
            self._choose_leaf(draft, name, variable)
        elif variable not in self.terms:
            choice = _choose(draft, name)
            self.build(variable, choice if isinstance(choice, Type) else None)
        type_ = self.build(variable, None)
        if self.terms[variable] != Leaf("Absent"):
            draft.operands[name] = type_

    def _choose_leaf(self, draft: OperatorDraft, name: str, variable: str) -> None:
        """Put a leaf in the place of an operand, chosen anew while that makes a condition false."""
        for _ in range(_TRIES):
            choice = _choose(draft, name)
            if isinstance(choice, Type):
                self._build_leaf(variable, choice)
            else:
                self.terms[variable] = Leaf("Absent")
            if self._is_possible():
                return
            self.environment.types.pop(variable, None)
        raise Misfit

    def _attribute(self, draft: OperatorDraft, name: str, argument: str | Node) -> Value:
        if not isinstance(argument, str):
            return evaluate(argument, self.environment)
        literals = self.environment.literals
        self.propagate()
        if argument not in literals:
            self._bind_from_tables(argument)
        for _ in range(_TRIES if argument not in literals else 0):
            choice = (
                self.random.choice((0, 1)) if draft.head == "Out" else self._choose_attribute(draft, name, argument)
            )
            if choice is None or isinstance(choice, Type):
                raise Misfit
            literals[argument] = choice
            if self._is_possible():
                break
        self.propagate()
        return literals[argument]

    def _choose_attribute(self, draft: OperatorDraft, name: str, variable: str) -> Choice:
        """Any value; a vector has the elements that conditions give it. A number is often one of the rule's, since
        conditions begin to hold near such numbers."""
        choice = _choose(draft, name)
        if isinstance(choice, float) and self.has_digits and self.random.random() < _DIGITS_SHARE:
            return self._number_of_all_digits()
        if isinstance(choice, float) and self.left_side.numbers and self.random.random() < 0.5:
            return self.random.choice(self.left_side.numbers)
        if draft.head == "Transpose" and self.random.random() < _INVERSE_SHARE:
            choice = self._inverse_permutation(draft.rank) or choice
        return self._with_known_elements(variable, choice) if isinstance(choice, tuple) else choice

    def _inverse_permutation(self, rank: int) -> tuple[int, ...]:
        """The inverse of one of the permutations of `rank` axes chosen so far; () if there is none."""
        axes = list(range(rank))
        chosen = [v for v in self.environment.literals.values() if isinstance(v, tuple) and sorted(v) == axes]
        return tuple(map(self.random.choice(chosen).index, axes)) if chosen else ()

    def _with_known_elements(self, variable: str, chosen: tuple[int, ...]) -> tuple[int, ...]:
        lengths, elements = self.left_side.components(variable)
        known = {i: v for i, each in elements.items() if isinstance(v := first_value(each, self.environment), int)}
        length = first_value(lengths, self.environment)
        if length == len(known):
            return tuple(known[i] for i in sorted(known))
        return tuple(known.get(i, number) for i, number in enumerate(chosen))

    def _bind_from_tables(self, variable: str) -> None:
        """Bind an attribute by a fact that only the rows of a table satisfy."""
        for condition in self.left_side.facts_of_tables:
            rows = [r for r in table_rows(condition, self.environment) if variable in r]
            if rows:
                self.environment.literals.update(self.random.choice(rows))
                return

    def _evaluate_on_ones(self, term: Term) -> Array | tuple[Array, ...]:
        """The value of a term whose operands are all ones; its type is the same for other elements. They are zeros if
        ones are out of place, as on an axis of one element."""

        def value(argument: Argument, number: int) -> Array | Value | None:
            if not isinstance(argument, (Term, Leaf)):
                return argument
            if argument == Leaf("Absent"):
                return None
            type_ = argument.type if isinstance(argument, Leaf) else self.types[argument]
            return np.full(type_.shape, number if type_.value is None else type_.value, element_type(type_.dtype))

        try:
            try:
                result = semantics.evaluate(term.head, [value(each, 1) for each in term.arguments])
            except (Unsupported, IndexError):
                result = semantics.evaluate(term.head, [value(each, 0) for each in term.arguments])
        except (Unsupported, ValueError, IndexError, TypeError, ZeroDivisionError):
            raise Misfit from None
        arrays = result if isinstance(result, tuple) else (result,)
        if any(array is not None and array.size > self.most for array in arrays):
            raise Misfit
        return result


def _choose(draft: OperatorDraft, name: str) -> Choice:
    try:
        return recipe(draft.head)(draft, name)
    except (IndexError, ValueError, TypeError, KeyError):
        raise Misfit from None


def _type_of_array(array: Array) -> Type:
    return Type(tuple(array.shape), array.dtype.name)


def left_sides(facts: Sequence[Node], random: Random, count: int = 8) -> list[LeftSide]:
    """The facts of a rule taken apart, several times because a relation may be derived in several ways; a way that
    comes up again is the same object."""
    numbers, known, result = _numbers(facts), dict[str, LeftSide](), []
    for _ in range(count):
        traced = trace_facts(facts, random)
        text = _without_fresh_names(" ".join(map(str, traced)))
        if text not in known:
            left_side = LeftSide(numbers=numbers)
            try:
                left_side.add_facts(traced)
            except Contradiction:
                continue
            known[text] = left_side
        result.append(known[text])
    return result


def _without_fresh_names(text: str) -> str:
    """A text with the fresh variables numbered in the order of their first mention."""
    numbers: dict[str, str] = {}
    return _FRESH.sub(lambda found: numbers.setdefault(found[0], f"?{len(numbers)}"), text)


_FRESH = re.compile(r"\?\d+")


def draw_sample(
    left_side: LeftSide,
    random: Random,
    dtype: str = "",
    *,
    has_digits: bool = False,
    long_in: str = "",
    size: int = 0,
    empty: bool = False,
    widest: str = "",
) -> Sample | None:
    """One attempt at a sample of a left side, in an element type, by default in any; None if the choices do not fit
    together.

    With `has_digits`, most floats among its constants and attributes take all digits of their type. With `long_in`, an
    element type, the wished results have that type and a long axis; with `size` in addition, this axis has that size,
    and all others size 1. With `empty`, the wished results have no element. With `widest`, that leaf alone widens
    results, unless conditions give others their shapes.
    """
    try:
        dtype = long_in or dtype or random.choice(left_side.possible_types)
        most = max(MAX_LONG_ELEMENTS, size) if long_in else MAX_ELEMENTS
        is_extreme = random.random() < _EXTREME_SHARE
        builder = _SampleBuilder(left_side, random, dtype, most, is_extreme, has_digits, widest)
        wish = Type(long_shape(random, size), dtype) if long_in else Type(empty_shape(random), dtype) if empty else None
        wish = Type(narrow_shape(random), dtype) if widest else wish
        for variable in (*left_side.roots, *left_side.tensors):
            builder.build(variable, wish)
        builder.propagate()
    except (Misfit, Unbound, Unknown, Failed, Contradiction, RecursionError):
        return None
    if any(test.holds(builder.environment) is False for test in left_side.tests):
        return None
    try:
        roots = tuple(tensor for variable in left_side.roots for tensor in builder.tensors_of(variable))
    except Misfit:
        return None
    return Sample(roots, dict(builder.terms), builder.environment, builder.types) if roots else None


def _numbers(facts: Sequence[Node]) -> tuple[float, ...]:
    """The numbers that a rule compares constants with, each four times so that constants are often such numbers; and
    numbers on both sides of each, and in the middle between two."""
    nodes = [node for fact in facts for node in walk(fact)]
    atoms = (node for node in nodes if isinstance(node, Atom))
    written = sorted({float(atom.text) for atom in atoms if _NUMBER.fullmatch(atom.text)} - set(_tolerances(nodes)))
    written = [number for number in written if number == 0 or abs(number) > _LEAST]
    beside = [number * factor for number in written if number for factor in (1 - _NEAR, 1 + _NEAR)]
    between = [(low + high) / 2 for low, high in pairwise(written)]
    return (*(number for number in written * 4 if number), *beside, *between)


def _tolerances(nodes: Sequence[Node]) -> Iterator[float]:
    """Numbers that differences are compared with, so small that the rule takes two numbers for equal."""
    for node in nodes:
        if isinstance(node, Form) and node.head in ("<", "<=") and getattr(node.items[1], "head", "") == "abs":
            bound = str(node.items[2])
            yield from [float(bound)] if _NUMBER.fullmatch(bound) and float(bound) <= _TOLERANCE else []


_TOLERANCE = 1e-4
"""The largest number that counts as a tolerance of a comparison."""
_NEAR = 2.0**-9
"""Relative distance of a neighbour from a number of a rule: as small as float16 can still tell apart."""
_LEAST = 1e-20
"""Numbers of a rule closer to zero than this are guards against a division by zero."""
