"""Samples with symbolic dimensions: a rule that fires on them has to hold for every size a model may be run with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from random import Random
from typing import Any
from zlib import crc32

import numpy as np

from ....engine.egraph.graph import NONEMPTY_SYMBOLS
from ....ir.operators import Unsupported
from ....ir.operators.numbers import element_type
from ....ir.sizes import Size, neighbour_products, number, symbol
from .conditions import Type
from .elements import named_leaves
from .evaluation import Evaluation
from .samples import MAX_ELEMENTS, Sample
from .scratch import Classes, Fired, ScratchNode
from .terms import Argument, Leaf, Term

FIRST_SYMBOL = -2
"""Numbers from here on downwards stand for unknown sizes."""
_SIZES = (1, 2, 3, 5, 7)
_RESHAPING = frozenset({"Reshape", "Expand"})
_NEEDING_SIZES = frozenset({"Split", "Resize", "DepthToSpace", "SpaceToDepth"})
"""Operators that the encoder takes only where the sizes they depend on are known."""


def with_symbols(sample: Sample, random: Random) -> Sample | None:
    """The sample with symbols for some of the sizes of its inputs; None where a model would not have them."""
    every = list(sample.leaves())
    alike = random.random() < 0.5  # a constant may have a size of its own, against which an unknown one broadcasts
    fixed = {size for leaf in every if leaf.kind != "Var" and alike for size in leaf.type.shape}
    least = random.choice((1, 2))  # an unknown size may be one that broadcasts, or that a condition took for known
    free = sorted({s for leaf in every if leaf.kind == "Var" for s in leaf.type.shape if s >= least} - fixed)
    if not free or sample.heads & _NEEDING_SIZES:
        return None
    chosen = random.sample(free, random.randint(1, len(free)))
    first = random.choice((FIRST_SYMBOL, NONEMPTY_SYMBOLS - 1))
    symbols = {size: first - i for i, size in enumerate(chosen)}
    if not all(_keeps_symbols(term, sample, symbols) for term in sample.subterms() if isinstance(term, Term)):
        return None
    resized = _resize(sample, symbols, {symbol: size for size, symbol in symbols.items()})
    return replace(resized, products=_products(resized))


def instances(sample: Sample, fired: Fired, random: Random) -> Iterator[tuple[Sample, Fired]]:
    """A sample with symbols, and what its rule made of it, with sizes in their place: those it had, and others."""
    one = {symbol: 1 if symbol < NONEMPTY_SYMBOLS else random.choice((0, 1)) for symbol in sample.symbols}
    other = dict(zip(sample.symbols, random.sample(_SIZES * 2, len(sample.symbols)), strict=True))
    for chosen in (sample.symbols, other, one):
        sizes = dict(chosen)
        for (first, rest), product in sample.products.items():
            sizes[product] = sizes.get(first, first) * sizes.get(rest, rest)
        concrete = _resize(sample, sizes, {})
        try:
            types = _types_of_terms(concrete)
        except Unsupported:
            continue
        yield replace(concrete, types=types, symbols=sample.symbols), _resize_fired(fired, sizes)


def _products(sample: Sample) -> dict[tuple[int, int], int]:
    """What the encoder states of the products of sizes. A product has the same number in all samples."""

    def size_of(dimension: int) -> Size:
        return number(dimension) if dimension >= 0 else symbol(f"s{-dimension}")

    def number_of(size: Size) -> int:
        if size.number is not None:
            return size.number
        if (atom := size.atom) is not None:
            return -int(atom.text[1:])
        digest = crc32(str(size).encode())
        never_empty = all(-int(name[1:]) < NONEMPTY_SYMBOLS for name in size.names())
        return NONEMPTY_SYMBOLS - digest if never_empty else FIRST_SYMBOL - 2**10 - digest % 2**17

    shapes = [type_.shape for type_ in (*(leaf.type for leaf in sample.leaves()), *sample.types.values())]
    products = neighbour_products(tuple(map(size_of, shape)) for shape in shapes)
    return {(number_of(a), number_of(b)): number_of(product) for (a, b), product in products.items()}


def _keeps_symbols(term: Term, sample: Sample, symbols: Mapping[int, int]) -> bool:
    """Whether the sizes that get symbols go through a Reshape unchanged, and a Slice cuts none but to the first
    position of one that is never empty, as the encoder wants it."""
    if term.head == "Slice":
        return _cuts_no_symbols(term, sample, symbols)
    if term.head not in _RESHAPING:
        return True
    type_, shape = sample.type_of(term.arguments[0]), term.arguments[1]
    if type_ is None or not isinstance(shape, tuple):
        return False
    before, after = ([s for s in sizes if s in symbols] for sizes in (type_.shape, shape))
    if sorted(before) != sorted(after):
        return False
    rests = [prod(s for s in sizes if s not in symbols) for sizes in (type_.shape, shape)]
    return term.head == "Expand" or rests[0] == rests[1]


def _cuts_no_symbols(term: Term, sample: Sample, symbols: Mapping[int, int]) -> bool:
    type_ = sample.type_of(term.arguments[0])
    literals = [a for a in term.arguments[1:] if isinstance(a, tuple)]
    if type_ is None or 1 in symbols or len(literals) != 4:
        return False
    cuts = ((type_.shape[axis], (start, end, step)) for start, end, axis, step in zip(*literals, strict=True))
    return all(cut == (0, 1, 1) and symbols[d] < NONEMPTY_SYMBOLS for d, cut in cuts if d in symbols)


def _resize(sample: Sample, sizes: Mapping[int, int], symbols: Mapping[int, int]) -> Sample:
    resized: dict[Term | Leaf, Term | Leaf] = {}

    def resize(term: Argument) -> Argument:
        if not isinstance(term, (Term, Leaf)):
            return term
        if term not in resized:
            if isinstance(term, Term):
                arguments = tuple(map(resize, term.arguments))
                resized[term] = Term(term.head, _resize_attributes(term.head, arguments, sizes))
            elif term.kind == "Var":
                resized[term] = replace(term, type=replace(term.type, shape=_resize_shape(term.type.shape, sizes)))
            else:
                resized[term] = term
        return resized[term]

    roots = tuple(resize(root) for root in sample.roots)
    terms = {name: resize(term) for name, term in sample.terms.items()}
    types = {resize(t): replace(type_, shape=_resize_shape(type_.shape, sizes)) for t, type_ in sample.types.items()}
    return Sample(roots, terms, sample.environment, types, dict(symbols))  # type: ignore[arg-type]


def _resize_shape(shape: tuple[int, ...], sizes: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(sizes.get(size, size) for size in shape)


def _resize_attributes(head: str, arguments: tuple[Any, ...], sizes: Mapping[int, int]) -> tuple[Any, ...]:
    """The arguments of a constructor, with other sizes where they are shapes."""
    shapes = range(len(arguments)) if head in _RESHAPING else (0,) if head == "Full" else ()
    return tuple(
        _resize_shape(a, sizes) if i in shapes and isinstance(a, tuple) else a for i, a in enumerate(arguments)
    )


def _resize_fired(fired: Fired, sizes: Mapping[int, int]) -> Fired:
    """What the rule made; a number that looks like a symbol and is none stays, and has no meaning."""
    classes: Classes = {
        number: tuple(ScratchNode(n.head, _resize_attributes(n.head, n.arguments, sizes)) for n in nodes)
        for number, nodes in fired.classes.items()
    }
    return Fired(fired.roots, classes)


def _types_of_terms(sample: Sample) -> dict[Term, Type]:
    """The types of all terms. Raises Unsupported where one has no meaning or is too large."""
    elements = {x.name: np.zeros(x.type.shape, element_type(x.type.dtype)) for x in named_leaves(sample)}
    evaluation = Evaluation(sample, Fired((), {}), elements, {})
    for root in sample.roots:
        evaluation.value(root)
    types = {}
    for term, value in evaluation.terms.items():
        if isinstance(value, np.ndarray):
            if value.size > MAX_ELEMENTS:
                raise Unsupported("the tensor is too large")
            types[term] = Type(tuple(value.shape), value.dtype.name)
    return types
