"""Samples with symbolic dimensions: a rule that fires on them has to hold for every size a model may be run with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from random import Random

import numpy as np

from ....ir import operators as semantics
from ....ir.operators import Array, Unsupported
from ....ir.operators.numbers import element_type
from .conditions import Type
from .left_side import Value
from .samples import MAX_ELEMENTS, Sample
from .scratch import Class, Fired, Node
from .terms import Argument, Leaf, Term, leaves

FIRST_SYMBOL = -2
"""Numbers from here on downwards stand for sizes that are not known."""
_SIZES = (1, 2, 3, 5, 7)
_RESHAPING = frozenset({"Reshape", "Expand"})
_KNOWN_SIZES = frozenset({"Slice", "Split", "Resize", "DepthToSpace", "SpaceToDepth"})
"""Operators that the encoder takes where the sizes they are about are known."""


def with_symbols(sample: Sample, random: Random) -> Sample | None:
    """The sample with symbols for some of the sizes of its inputs; None where a model would not have them."""
    every = [leaf for root in sample.roots for leaf in leaves(root)]
    alike = random.random() < 0.5  # a constant may have a size of its own, against which an unknown one broadcasts
    fixed = {size for leaf in every if leaf.kind != "Var" and alike for size in leaf.type.shape}
    least = random.choice((1, 2))  # an unknown size may be one that broadcasts, or that a condition took for known
    free = sorted({s for leaf in every if leaf.kind == "Var" for s in leaf.type.shape if s >= least} - fixed)
    heads = {term.head for root in sample.roots for term in _terms(root)}
    if not free or heads & _KNOWN_SIZES:
        return None
    chosen = random.sample(free, random.randint(1, len(free)))
    symbols = {size: FIRST_SYMBOL - i for i, size in enumerate(chosen)}
    if not all(_keeps(term, sample, symbols) for root in sample.roots for term in _terms(root)):
        return None
    return _resized(sample, symbols, {symbol: size for size, symbol in symbols.items()})


def instances(sample: Sample, fired: Fired, random: Random) -> Iterator[tuple[Sample, Fired]]:
    """A sample with symbols, and what its rule made of it, with sizes in their place: those it had, and others."""
    one = {symbol: random.choice((0, 1)) for symbol in sample.symbols}
    other = dict(zip(sample.symbols, random.sample(_SIZES * 2, len(sample.symbols)), strict=True))
    for sizes in (sample.symbols, other, one):
        concrete = _resized(sample, sizes, {})
        try:
            made = _types(concrete)
        except Unsupported:
            continue
        yield replace(concrete, made=made, symbols=sample.symbols), _fired(fired, sizes)


def _keeps(term: Term, sample: Sample, symbols: Mapping[int, int]) -> bool:
    """Whether the sizes that get symbols go through a Reshape as they are."""
    if term.head not in _RESHAPING:
        return True
    data = term.arguments[0]
    type_ = data.type if isinstance(data, Leaf) else sample.made.get(data)  # type: ignore[arg-type]
    shape = term.arguments[1]
    if type_ is None or not isinstance(shape, tuple):
        return False
    sides = ([s for s in type_.shape if s in symbols], [s for s in shape if s in symbols])
    rests = (prod(s for s in type_.shape if s not in symbols), prod(s for s in shape if s not in symbols))
    return sorted(sides[0]) == sorted(sides[1]) and (term.head == "Expand" or rests[0] == rests[1])


def _resized(sample: Sample, sizes: Mapping[int, int], symbols: Mapping[int, int]) -> Sample:
    known: dict[Term | Leaf, Term | Leaf] = {}

    def resize(term: Argument) -> Argument:
        if not isinstance(term, (Term, Leaf)):
            return term
        if term not in known:
            if isinstance(term, Leaf) and term.kind != "Var":
                known[term] = term
            elif isinstance(term, Leaf):
                known[term] = replace(term, type=replace(term.type, shape=_shape(term.type.shape, sizes)))
            else:
                arguments = tuple(map(resize, term.arguments))
                known[term] = Term(term.head, tuple(_resized_attributes(term.head, arguments, sizes)))
        return known[term]

    roots = tuple(resize(root) for root in sample.roots)
    terms = {name: resize(term) for name, term in sample.terms.items()}
    made = {resize(t): replace(type_, shape=_shape(type_.shape, sizes)) for t, type_ in sample.made.items()}
    return Sample(roots, terms, sample.environment, made, dict(symbols))  # type: ignore[arg-type]


def _shape(shape: tuple[int, ...], sizes: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(sizes.get(size, size) for size in shape)


def _resized_attributes(head: str, arguments: tuple[Argument, ...], sizes: Mapping[int, int]) -> Iterator[Argument]:
    for position, argument in enumerate(arguments):
        shaped = isinstance(argument, tuple) and (head in _RESHAPING or (head == "Full" and position == 0))
        yield _shape(argument, sizes) if shaped else argument  # type: ignore[arg-type]


def _fired(fired: Fired, sizes: Mapping[int, int]) -> Fired:
    """What the rule made; a number that looks like a symbol and is none stays, and has no meaning."""
    classes: dict[Class, tuple[Node, ...]] = {}
    for number, nodes in fired.classes.items():
        classes[number] = tuple(
            Node(n.head, tuple(_resized_attributes(n.head, n.arguments, sizes)))  # type: ignore[arg-type]
            for n in nodes
        )
    return Fired(fired.roots, classes)


def _terms(term: Argument) -> Iterator[Term]:
    if isinstance(term, Term):
        yield term
        for argument in term.arguments:
            yield from _terms(argument)


def _types(sample: Sample) -> dict[Term, Type]:
    """The types of all terms. Raises Unsupported where one has no meaning or is too large."""
    found: dict[Term, Type] = {}
    values: dict[Term | Leaf, Array | tuple[Array, ...] | None] = {}

    def value(term: Argument) -> Array | tuple[Array, ...] | Value | None:
        if not isinstance(term, (Term, Leaf)):
            return term
        if term not in values:
            values[term] = _of_leaf(term) if isinstance(term, Leaf) else _of_term(term)
            result = values[term]
            if isinstance(term, Term) and isinstance(result, np.ndarray):
                if result.size > MAX_ELEMENTS:
                    raise Unsupported("the tensor is too large")
                found[term] = Type(tuple(result.shape), result.dtype.name)
        return values[term]

    def _of_term(term: Term) -> Array | tuple[Array, ...]:
        arguments = [value(a) for a in term.arguments]
        if term.head == "Out":
            return arguments[0][arguments[1]]  # type: ignore[index,return-value]
        return semantics.evaluate(term.head, arguments)  # type: ignore[arg-type]

    for root in sample.roots:
        value(root)
    return found


def _of_leaf(leaf: Leaf) -> Array | None:
    if leaf.kind == "Absent":
        return None
    return np.full(leaf.type.shape, 0 if leaf.type.value is None else leaf.type.value, element_type(leaf.type.dtype))
