"""Elements that lie so near each other that rounding decides about them.

Over the real numbers ``argmax(c x)`` is ``argmax(x)``. But if two elements differ in their last bit, their products may
be equal, and another one is the first of the largest. The same operators decide, and the same ones round, for every
float type.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import isfinite, prod

import numpy as np

from ....ir.operators import OPERATORS, Array
from ....ir.operators.numbers import element_type
from .elements import index_bounds, pick, satisfy_facts
from .placement import Placement
from .samples import Sample
from .scratch import EClass, Fired, ScratchNode
from .terms import Leaf, Term

DECIDING = frozenset({
    "Floor", "Ceil", "Round", "Sign", "Mod", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "ArgMax",
    "ArgMin", "Hardmax", "ThresholdedRelu",
})  # fmt: skip
"""Operators of floats whose result jumps; a Cast to integers is another one."""
_EXACT = frozenset({
    "Abs", "Neg", "Relu", "Max", "Min", "Clip", "ReduceMax", "ReduceMin", "MaxPool", "GlobalMaxPool", "Split", "Where",
    "If", "And", "Or", "Xor", "Not", "IsNaN", "Cast",
})  # fmt: skip
"""Operators beside those that decide, and those that only move elements, whose results are never rounded."""
_USUAL = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 10.0, 0.1, 1.0 / 3.0, 1.2, 1.4, 1.7, 1.9)
"""Numbers at which operators decide, and numbers from all parts of a binade: it depends on the part whether two
neighbours have equal products."""
_MOST_MULTIPLES = 3
"""Whole multiples and fractions of the rule's numbers up to this factor are tried, too."""
_NEIGHBOURS = (0, 1, -1, 2, -2, 3)
"""Distances from a number, in units of its last bit."""
_SMALL = (0.0, 1e-9, -1e-9, 3e-8, -3e-8, 1e-6)
"""Absolute distances from a number: smaller than the last bit of a number above 1, but not lost beside zero."""
_LARGEST = 1e4
"""The largest number near which elements lie: float16 holds it, and small multiples of it."""
_SMALL_FACTOR = {"float32": 1e-24, "float16": 2e-4}
"""By type a number whose square rounds to zero, though the number itself does not."""


@dataclass(frozen=True)
class _Mode:
    """How the elements of a draw lie about its number: with which signs, and how far off. With several `multiples`,
    each leaf has its elements about one of these multiples of the number."""

    signs: tuple[float, ...] = (1.0,)
    distances: tuple[float, ...] = (0.0,)
    multiples: tuple[float, ...] = (1.0,)


_MULTIPLES = (1.0, 0.5, 1.5, 2.0, 2.5, 3.0)
"""Multiples of which sums and quotients of two are multiples again, so that sums and quotients meet near ties, too."""
_MODES = (
    _Mode(), _Mode((-1.0,)), _Mode((1.0, -1.0), _SMALL), _Mode(multiples=_MULTIPLES),
    _Mode((-1.0, 1.0), multiples=_MULTIPLES),
)  # fmt: skip
_FEW = 6
"""If all leaves together have fewer elements than this, a draw is repeated, as one meets few ties."""


def decides(sample: Sample, fired: Fired) -> bool:
    """Whether an operator of either side decides about floats."""
    has_floats = any(is_float_type(leaf.type.dtype) for leaf in sample.leaves if leaf.kind != "Absent")
    return has_floats and any(jumps(part.head, part.arguments) for part in applications(sample, fired))


def applications(sample: Sample, fired: Fired) -> Iterator[Term | ScratchNode]:
    """The operators of both sides."""
    yield from (part for part in sample.subterms if isinstance(part, Term))
    yield from (node for nodes in fired.classes.values() for node in nodes)


def jumps(head: str, arguments: Sequence[object]) -> bool:
    """Whether the result of an operator of floats jumps."""
    return head in DECIDING or (head == "Cast" and str(arguments[1]).startswith(("int", "uint", "bool")))


def decides_about_rounded(sample: Sample, fired: Fired) -> bool:
    """Whether an operator of either side decides about floats that operators before it rounded, so that no proof over
    the real numbers says what it decides."""
    rounded: set[EClass] = set()
    while True:
        more = {c for c, nodes in fired.classes.items() if c not in rounded and _is_rounded(nodes, rounded)}
        if not more:
            break
        rounded |= more
    return decides(sample, fired) and any(
        jumps(node.head, node.arguments) and not rounded.isdisjoint(node.arguments)
        for nodes in fired.classes.values()
        for node in nodes
    )


def _is_rounded(nodes: Sequence[ScratchNode], rounded: set[EClass]) -> bool:
    return any(rounds(node.head) or not rounded.isdisjoint(node.arguments) for node in nodes)


def rounds(head: str) -> bool:
    """Whether the results of an operator of floats are rounded."""
    known = head in OPERATORS and head not in DECIDING and head not in _EXACT
    return known and OPERATORS[head].category != "layout"


def computes_more(sample: Sample, fired: Fired) -> bool:
    """Whether a rule made an operator whose results are rounded. If it did not, its right side only moves, compares and
    chooses numbers of the left side, and keeps those that the left side keeps."""
    written = set(map(Placement(sample, fired).node_of, sample.subterms))
    return any(rounds(node.head) and node not in written for nodes in fired.classes.values() for node in nodes)


def near_ties(sample: Sample, fired: Fired, random: np.random.Generator) -> Iterator[dict[str, Array]]:
    """Elements for every leaf, all near a few numbers: in turn the usual ones, and those that follow from the numbers
    of the rule. Elements of integers and truth values are ordinary ones."""
    bounds = index_bounds(sample)
    leaves = sample.named_leaves
    is_small = sum(prod(leaf.type.shape) for leaf in leaves) < _FEW
    small = {_SMALL_FACTOR[leaf.type.dtype] for leaf in leaves if leaf.type.dtype in _SMALL_FACTOR}
    for number, mode, _ in product((*_numbers(sample, fired), *small), _MODES, range(3 if is_small else 1)):
        yield {leaf.name: _near(leaf, number, mode, bounds, random) for leaf in leaves}


def _numbers(sample: Sample, fired: Fired) -> list[float]:
    """The usual numbers, and sums, products, quotients and small multiples of the rule's."""
    made = (a for nodes in fired.classes.values() for node in nodes for a in node.arguments if isinstance(a, float))
    own = sorted({abs(number) for number in (*sample.numbers, *made) if isfinite(number)})
    of_pairs = (x for a, b in combinations(own, 2) for x in (a + b, abs(a - b), a * b, _over(a, b), _over(b, a)))
    multiples = (x for a in own for n in range(1, _MOST_MULTIPLES + 1) for x in (a * n, a / n, _over(n, a)))
    every = dict.fromkeys((*_USUAL, *own, *of_pairs, *multiples))
    return [number for number in every if number <= _LARGEST]


def _over(a: float, b: float) -> float:
    return a / b if b else 0.0


def _near(
    leaf: Leaf, number: float, mode: _Mode, bounds: dict[str, tuple[int, int]], random: np.random.Generator
) -> Array:
    dtype, shape = element_type(leaf.type.dtype), leaf.type.shape
    if leaf.type.dtype == "bool":
        return random.random(shape) < 0.5
    if dtype.kind in "iu":
        low, high = bounds.get(leaf.name, (0, 4))
        low = 0 if leaf.nonneg else low
        return satisfy_facts(random.integers(low, max(high, low + 1), shape).astype(dtype), leaf)
    distances = pick(mode.distances, shape, random)
    numbers = np.asarray(pick(mode.signs, shape, random) * (number * random.choice(mode.multiples) + distances))
    numbers = numbers.astype(dtype)
    step = np.spacing(np.abs(numbers)) * pick(_NEIGHBOURS, shape, random).astype(dtype)
    return satisfy_facts(np.asarray(numbers + np.where(numbers == 0, np.zeros_like(step), step)), leaf)


def is_float_type(dtype: str) -> bool:
    """Whether numpy's name is that of a type of floats."""
    return element_type(dtype).kind in "fV"
