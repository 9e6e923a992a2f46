"""Samples with symbolic dimensions: a rule that fires on them has to hold for every size with which a model may run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import cycle
from math import prod
from random import Random
from typing import Any
from zlib import crc32

import numpy as np

from ....engine.egraph.graph import NONEMPTY_SYMBOLS
from ....ir.operators import TO_SHAPES, Unsupported
from ....ir.operators.numbers import element_type
from ....ir.sizes import Size, neighbour_products, number, symbol
from .conditions import Type
from .evaluation import Evaluation
from .samples import MAX_ELEMENTS, Sample
from .scratch import SHAPED_BY_ENCODER, Classes, Fired, ScratchNode
from .terms import Argument, Leaf, Term

FIRST_SYMBOL = -2
"""This number and smaller ones stand for unknown sizes."""
_FIRST_DERIVED = 100
"""How far below the first symbol those begin that stand for sizes computed by operators; no sample has as many
others."""
_SIZES = (3, 7, 5, 2, 11, 4, 13)
"""Other sizes of the symbols in turn: all differ, and most are prime, so that no block divides them by chance."""
_TRIALS = ((6, 12, 18, 24, 30, 36), (12, 6, 24, 18, 36, 30), (18, 30, 6, 12, 24, 6))
"""Trial sizes of the symbols, divisible by 2 and 3 as blocks are: a size that is the same in all trials is known, and
two sizes that are equal in all trials are one symbol."""
_MOST_IN_TRIALS = 40_000
"""Elements of a tensor in a trial, at most: a larger one takes too long, and the sample is left out."""
_MOST_ALONE = 3
"""How many sizes each become a symbol alone, before all become symbols together."""


def symbolic_variants(sample: Sample) -> Iterator[Sample]:
    """The sample with symbols for the sizes of its inputs: for each of some sizes alone, and for all of them together.
    Of these, one variant includes sizes that may be empty, and another does not. The types of terms have no symbols for
    sizes that operators compute."""
    free = _free_sizes(sample, least=1)
    alone = [(size,) for size in sorted(free, reverse=True)[:_MOST_ALONE]] if len(free) > 1 else []
    for place, chosen in enumerate((*alone, tuple(free), tuple(free))):
        first = FIRST_SYMBOL if place % 2 == 0 else NONEMPTY_SYMBOLS - 1
        variant = _put_symbols(sample, {size: first - i for i, size in enumerate(chosen)})
        if variant is not None:
            yield variant


def with_symbols(sample: Sample, random: Random) -> Sample | None:
    """The sample with symbols for some of the sizes of its inputs; None if no model would have them."""
    constant = {size for leaf in sample.leaves if leaf.kind != "Var" for size in leaf.type.shape}
    alike = random.random() < 0.5  # else a constant keeps its size, and an unknown one broadcasts against it
    least = random.choice((1, 2))  # an unknown size may be one that broadcasts, or that a condition took for known
    free = [size for size in _free_sizes(sample, least) if not (alike and size in constant)]
    if not free:
        return None
    chosen = random.sample(free, random.randint(1, len(free)))
    first = random.choice((FIRST_SYMBOL, NONEMPTY_SYMBOLS - 1))
    variant = _put_symbols(sample, {size: first - i for i, size in enumerate(chosen)})
    return None if variant is None else with_symbolic_types(variant)


def with_symbolic_types(variant: Sample) -> Sample | None:
    """A variant with the symbols of all sizes in the types of its terms, and with products of sizes; None if no model
    would have them."""
    types = _symbolic_types(variant)
    if types is None and not SHAPED_BY_ENCODER.isdisjoint(variant.heads):
        return None
    variant = replace(variant, types=types or variant.types)
    return replace(variant, products=_products(variant))


def _free_sizes(sample: Sample, least: int) -> list[int]:
    """The sizes that may become symbols: those of inputs, and those to which an Expand widens, as these come from
    inputs that the rule does not mention."""
    sizes = {size for leaf in sample.leaves if leaf.kind == "Var" for size in leaf.type.shape}
    for part in sample.subterms:
        if isinstance(part, Term) and part.head == "Expand" and isinstance(part.arguments[1], tuple):
            sizes |= set(part.arguments[1])
    return sorted(size for size in sizes if size >= least)


def _put_symbols(sample: Sample, symbols: Mapping[int, int]) -> Sample | None:
    """The sample with a symbol for each of some sizes; None if no model would have them."""
    if not symbols or not all(
        _keeps_symbols(term, sample, symbols) for term in sample.subterms if isinstance(term, Term)
    ):
        return None
    resized, _ = _resize(sample, symbols, {symbol: size for size, symbol in symbols.items()})
    leaves = dict.fromkeys(resized.leaves)
    open_axes = ((leaf.name, axis) for leaf in leaves for axis, size in enumerate(leaf.type.shape) if size < -1)
    return replace(resized, open_axes=tuple(open_axes))


def _symbolic_types(sample: Sample) -> dict[Term, Type] | None:
    """The types of all terms, with further symbols for sizes that operators compute from symbols; None if the terms do
    not run at all sizes."""
    trials = [dict(zip(sample.symbols, cycle(sizes), strict=False)) for sizes in _TRIALS]
    names = {tuple(trial[symbol] for trial in trials): symbol for symbol in sample.symbols}
    computed = [_types_at(sample, trial) for trial in (*trials, dict.fromkeys(sample.symbols, 1))]
    *every, at_one = computed
    if None in every:
        return None
    first = NONEMPTY_SYMBOLS if max(sample.symbols) < NONEMPTY_SYMBOLS else FIRST_SYMBOL
    types = {}
    for term, type_ in sample.types.items():
        shapes = [known[term].shape for known in every if known is not None and term in known]
        if len(shapes) < len(every):
            continue
        ones = at_one[term].shape if at_one is not None and term in at_one else (0,) * len(shapes[0])
        dimensions = []
        for sizes, one in zip(zip(*shapes, strict=True), ones, strict=True):
            if sizes == sizes[:1] * len(sizes):
                dimensions.append(sizes[0])
            else:
                above = FIRST_SYMBOL if one < 1 else first
                dimensions.append(names.setdefault(sizes, above - _FIRST_DERIVED - len(names)))
        types[term] = replace(type_, shape=tuple(dimensions))
    return types


def runs_at_other_sizes(sample: Sample) -> bool:
    """Whether the terms of a sample with symbols run at sizes other than its own, so that a model may contain them: a
    matrix product of `n` columns and 2 rows does not. Terms without a meaning here count as running."""
    others = (dict(zip(sample.symbols, cycle(sizes), strict=False)) for sizes in (*_TRIALS, _SIZES))
    return any(_types_at(sample, sizes) for sizes in others) or _types_at(sample, sample.symbols) is None


def _types_at(sample: Sample, sizes: Mapping[int, int]) -> dict[Term, Type] | None:
    """The types of the terms of a sample with symbols, at some sizes of these; None if it does not run."""
    concrete, resized = _resize(sample, sizes, {})
    try:
        types = _types_of_terms(concrete, _MOST_IN_TRIALS)
    except Unsupported:
        return None
    return {term: types[resized[term]] for term in sample.types if resized[term] in types}  # type: ignore[index]


def instances(sample: Sample, fired: Fired) -> Iterator[tuple[Sample, Fired]]:
    """A sample with symbols and the result of its rule, both with sizes in place of the symbols: those that the sample
    had, and others."""
    others = dict(zip(sample.symbols, _SIZES * 2, strict=False))
    for chosen in (sample.symbols, others, dict.fromkeys(sample.symbols, 1), dict.fromkeys(sample.symbols, 0)):
        if 0 in chosen.values() and any(symbol < NONEMPTY_SYMBOLS for symbol in sample.symbols):
            continue
        sizes = dict(chosen)
        concrete, resized = _resize(sample, sizes, {})
        try:
            types = _types_of_terms(concrete)
        except Unsupported:
            continue
        if not _bind_derived(sample, {t: types.get(resized[t]) for t in sample.types}, sizes):  # type: ignore[arg-type]
            continue
        for (first, rest), product in sample.products.items():
            sizes[product] = sizes.get(first, first) * sizes.get(rest, rest)
        known = replace(concrete, types=types, symbols=sample.symbols, open_axes=sample.open_axes)
        yield known, _resize_fired(fired, sizes)


def _bind_derived(sample: Sample, types: Mapping[Term, Type | None], sizes: dict[int, int]) -> bool:
    """Add the sizes of derived symbols. Returns whether each symbol has one size, and all other sizes are unchanged."""
    for term, type_ in types.items():
        for dimension, size in zip(sample.types[term].shape, type_.shape if type_ else (), strict=False):
            if (sizes.setdefault(dimension, size) if dimension < -1 else dimension) != size:
                return False
    return True


def _products(sample: Sample) -> dict[tuple[int, int], int]:
    """The facts that the encoder states about products of sizes. A product has the same number in all samples."""

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

    shapes = [type_.shape for type_ in (*(leaf.type for leaf in sample.leaves), *sample.types.values())]
    products = neighbour_products(tuple(map(size_of, shape)) for shape in shapes)
    return {(number_of(a), number_of(b)): number_of(product) for (a, b), product in products.items()}


def _keeps_symbols(term: Term, sample: Sample, symbols: Mapping[int, int]) -> bool:
    """Whether a term keeps the sizes that get symbols as the encoder requires it: a Reshape leaves them unchanged, an
    Expand widens none of them, a Split is along none of them, and a Slice cuts none but to the first position of one
    that is never empty."""
    if term.head == "Slice":
        return _cuts_no_symbols(term, sample, symbols)
    if term.head == "Split":
        return _splits_no_symbol(term, sample, symbols)
    if term.head not in TO_SHAPES:
        return True
    type_, shape = sample.type_of(term.arguments[0]), term.arguments[1]
    if type_ is None or not isinstance(shape, tuple):
        return False
    if term.head == "Expand":
        aligned = zip(reversed(type_.shape), reversed(shape), strict=False)
        return all(before == after for before, after in aligned if before in symbols)
    before, after = ([s for s in sizes if s in symbols] for sizes in (type_.shape, shape))
    rests = [prod(s for s in sizes if s not in symbols) for sizes in (type_.shape, shape)]
    return sorted(before) == sorted(after) and rests[0] == rests[1]


def _cuts_no_symbols(term: Term, sample: Sample, symbols: Mapping[int, int]) -> bool:
    type_ = sample.type_of(term.arguments[0])
    literals = [a for a in term.arguments[1:] if isinstance(a, tuple)]
    if type_ is None or 1 in symbols or len(literals) != 4:
        return False
    cuts = ((type_.shape[axis], (start, end, step)) for start, end, axis, step in zip(*literals, strict=True))
    return all(cut == (0, 1, 1) and symbols[d] < NONEMPTY_SYMBOLS for d, cut in cuts if d in symbols)


def _splits_no_symbol(term: Term, sample: Sample, symbols: Mapping[int, int]) -> bool:
    type_, axis = sample.type_of(term.arguments[0]), term.arguments[1:]
    numbers = [a for a in axis if isinstance(a, int)]
    return type_ is not None and len(numbers) == 1 and type_.shape[numbers[0]] not in symbols


def _resize(
    sample: Sample, sizes: Mapping[int, int], symbols: Mapping[int, int]
) -> tuple[Sample, dict[Term | Leaf, Term | Leaf]]:
    """The sample at other sizes, and its term for each of the sample's."""
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
    return Sample(roots, terms, sample.environment, types, dict(symbols)), resized  # type: ignore[arg-type]


def _resize_shape(shape: tuple[int, ...], sizes: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(sizes.get(size, size) for size in shape)


def _resize_attributes(head: str, arguments: tuple[Any, ...], sizes: Mapping[int, int]) -> tuple[Any, ...]:
    """The arguments of a constructor, with other sizes in those that are shapes."""
    shapes = range(len(arguments)) if head in TO_SHAPES else (0,) if head == "Full" else ()
    return tuple(
        _resize_shape(a, sizes) if i in shapes and isinstance(a, tuple) else a for i, a in enumerate(arguments)
    )


def _resize_fired(fired: Fired, sizes: Mapping[int, int]) -> Fired:
    """The result of a rule at other sizes. A number that looks like a symbol and is none stays, and has no meaning."""
    classes: Classes = {
        number: tuple(ScratchNode(n.head, _resize_attributes(n.head, n.arguments, sizes)) for n in nodes)
        for number, nodes in fired.classes.items()
    }
    return Fired(fired.roots, classes)


def _types_of_terms(sample: Sample, most: int = MAX_ELEMENTS) -> dict[Term, Type]:
    """The types of all terms. Raises Unsupported if one has no meaning or more than `most` elements."""
    if any(prod(x.type.shape) > most for x in sample.named_leaves):
        raise Unsupported("an input is too large")
    elements = {x.name: np.zeros(x.type.shape, element_type(x.type.dtype)) for x in sample.named_leaves}
    evaluation = Evaluation(sample, Fired((), {}), elements, {})
    for root in sample.roots:
        evaluation.value(root)
    types = {}
    for term, value in evaluation.terms.items():
        if isinstance(value, np.ndarray):
            if value.size > most:
                raise Unsupported("the tensor is too large")
            types[term] = Type(tuple(value.shape), value.dtype.name)
    return types
