"""A rule tested on numbers: both sides on many draws of elements, in several precisions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from ..semantics import Array, Unsupported
from ..semantics.numbers import element_type
from .evaluation import Comparison, Evaluation, described
from .generate import Sample
from .scratch import Fired
from .terms import Argument, Leaf, Term, leaves, readable

FLOATS = ("float32", "float64", "longdouble")
RANGES = ("ordinary", "special", "tiny", "large")
"""How elements are drawn. Ordinary: between -2 and 2. Special: -2, -1, -1/2, 0, 1/2, 1, 2. Tiny: down to 1e-6.
Large: up to 1000, and for integers the ends of their range."""

INDICES = 2
"""Sampled axes to gather from have at least two elements."""
_SPECIAL = np.array([0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5])
_ROUNDING = {"float32": 2.0**-23, "float64": 2.0**-52, "longdouble": 2.0**-50}
"""Of literals, too: they have the precision of float64 whatever they meet."""
_FACTORS = {"float32": 4096.0, "float64": 4096.0, "longdouble": 256.0}
"""How many roundings of the largest intermediate number two sides may lie apart. Extended precision tells whether they
are equal; in the others a side may be the more accurate one, as a normalisation that adds no constant first."""


@dataclass(frozen=True)
class Counterexample:
    """Elements for which a rule is wrong: the sample, its leaves, and what the two sides are at one position."""

    sample: str
    elements: Mapping[str, Any]
    where: str
    left: str
    right: str
    reason: str


@dataclass(frozen=True)
class Difference:
    """The largest distance seen between the two sides, over the largest number met in float64 arithmetic."""

    absolute: float = 0.0
    relative: float = 0.0


def test_sample(sample: Sample, fired: Fired, sound: str, random: np.random.Generator) -> Counterexample | None:
    """Compare all ways to compute what the rule touched.

    ``exact``: equal bit by bit, but for the sign of zero. ``real``: within rounding; defined together, as far as the
    wide exponents of extended precision show; and in any precision finite where the left side stays far from overflow.
    ``approx``: within rounding where everything is finite.
    Raises Unsupported where an operator of the sample has no meaning.
    """
    tested = False
    failed: Unsupported | None = None
    for kind, dtype in product(RANGES, _dtypes(sample)):
        elements = draw(sample, kind, dtype, random)
        dtypes = {"float32": dtype} if dtype else {}
        with np.errstate(all="ignore"):
            try:
                found = _compare_all(Evaluation(sample, fired, elements, dtypes), sound, dtype, kind)
                tested = True
            except Unsupported as error:
                failed = error
                continue
        if found is not None:
            return found
    if not tested and failed is not None:
        raise failed
    return None


def _dtypes(sample: Sample) -> tuple[str, ...]:
    floating = any(leaf.type.dtype == "float32" for root in sample.roots for leaf in leaves(root))
    return FLOATS if floating else ("",)


def _compare_all(evaluation: Evaluation, sound: str, dtype: str, kind: str) -> Counterexample | None:
    pairs = list(evaluation.comparisons())
    scale = _scale(evaluation.intermediate, evaluation.elements.values())
    calm = evaluation.is_calm if sound == "approx" else evaluation.left_is_calm
    if kind == "large" and dtype == "longdouble":  # even extended precision overflows, as in exp(x * x)
        calm &= all(bool(np.all(np.isfinite(a))) for a in evaluation.intermediate if a.dtype.kind == "f")
    for pair in pairs:
        reason = _difference(pair, sound, dtype, scale, calm)
        if reason is not None:
            return _counterexample(evaluation, pair, *reason)
    return None


def _scale(*groups: object) -> float:
    largest = 1e-30
    for group in groups:
        for array in group:  # type: ignore[attr-defined]
            if array.dtype.kind == "f" and array.size:
                finite = np.abs(array[np.isfinite(array)])
                largest = max(largest, float(finite.max())) if finite.size else largest
    return largest


def _difference(
    pair: Comparison, sound: str, dtype: str, scale: float, calm: bool
) -> tuple[tuple[int, ...], str] | None:
    left, right = pair.left, pair.right
    if left.shape != right.shape:
        return (), f"shapes {list(left.shape)} and {list(right.shape)}"
    if left.dtype != right.dtype:
        return (), f"element types {left.dtype} and {right.dtype}"
    wrong = _wrong(left, right, sound, dtype, scale, calm)
    return (tuple(map(int, np.argwhere(wrong)[0])), "values differ") if wrong.any() else None


def _wrong(left: Array, right: Array, sound: str, dtype: str, scale: float, calm: bool) -> Array:
    same = left == right
    if left.dtype.kind != "f":
        return np.asarray(~same)
    same |= np.isnan(left) & np.isnan(right)
    if sound == "exact":
        return np.asarray(~same)
    with_limits = np.isfinite(left) & np.isfinite(right)
    precision = dtype or "float64"
    near = np.abs(left - right) <= _FACTORS[precision] * _ROUNDING[precision] * scale
    if sound == "approx":
        return np.asarray(~same & ~near) if calm else np.zeros(left.shape, bool)
    # where both sides are undefined, which infinity stands for that does not matter
    wrong = (with_limits & ~near) | (np.isfinite(left) != np.isfinite(right))
    return np.asarray(wrong if calm else np.zeros_like(wrong))


def _counterexample(evaluation: Evaluation, pair: Comparison, at: tuple[int, ...], reason: str) -> Counterexample:
    sample = evaluation.sample
    described_left = str(pair.left[at]) if pair.left.shape == pair.right.shape else ""
    described_right = str(pair.right[at]) if pair.left.shape == pair.right.shape else ""
    used = {leaf.name for root in sample.roots for leaf in leaves(root) if leaf.kind in ("Var", "Weight")}
    return Counterexample(
        "; ".join(readable(root) for root in sample.roots),
        {n: a for n, a in evaluation.elements.items() if n in used},
        f"[{', '.join(map(str, at))}]",
        described_left,
        described_right,
        f"{reason} ({described(pair.node, sample)}, {pair.left.dtype})",
    )


# --- elements


def draw(sample: Sample, kind: str, dtype: str, random: np.random.Generator) -> dict[str, Array]:
    """Elements for every leaf of a sample; `dtype` stands in for float32."""
    small = bounded(sample)
    found: dict[str, Array] = {}
    for leaf in named_leaves(sample):
        wanted = dtype if leaf.type.dtype == "float32" and dtype else leaf.type.dtype
        limit = small.get(leaf.name)
        if limit is not None:
            found[leaf.name] = random.integers(0, limit, leaf.type.shape).astype(wanted)
        else:
            found[leaf.name] = _signed(_elements(leaf, kind, wanted, random), leaf)
    return found


def named_leaves(sample: Sample) -> Iterator[Leaf]:
    """Every input and stored constant of a sample, once."""
    seen = set()
    for root in (*sample.roots, *sample.terms.values()):
        for leaf in leaves(root):
            if leaf.kind in ("Var", "Weight") and leaf.name not in seen:
                seen.add(leaf.name)
                yield leaf


def bounded(sample: Sample) -> dict[str, int]:
    """Leaves whose elements must stay below a limit: indices, and numbers of bits to shift by."""
    found: dict[str, int] = {}

    def visit(term: Argument) -> None:
        if not isinstance(term, Term):
            return
        if term.head in ("Gather", "BitShift"):
            limit = INDICES if term.head == "Gather" else 8
            found.update((leaf.name, limit) for leaf in leaves(term.arguments[1]))
        for argument in term.arguments:
            visit(argument)

    for root in sample.roots:
        visit(root)
    return found


def _elements(leaf: Leaf, kind: str, dtype: str, random: np.random.Generator) -> Array:
    shape = leaf.type.shape
    if dtype == "bool":
        return random.random(shape) < 0.5
    if dtype.startswith(("int", "uint")):
        return _integers(shape, kind, np.dtype(dtype), random)
    if kind == "special":
        numbers = random.choice(_SPECIAL, shape)
    elif kind == "ordinary":
        numbers = random.uniform(-2, 2, shape)
    else:
        low, high = (-6.0, -3.0) if kind == "tiny" else (0.0, 3.0)
        numbers = random.choice((-1.0, 1.0), shape) * 10 ** random.uniform(low, high, shape)
    return np.asarray(numbers).astype(element_type(dtype))


def _integers(shape: tuple[int, ...], kind: str, dtype: np.dtype[np.generic], random: np.random.Generator) -> Array:
    limits = np.iinfo(dtype)  # type: ignore[type-var]
    if kind == "large":
        return random.choice(np.array([limits.min, limits.min + 1, limits.max, limits.max - 1, 1], dtype), shape)
    low, high = (max(-9, limits.min), 10) if kind == "ordinary" else (max(-2, limits.min), 3)
    if kind == "tiny":
        return random.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
    return np.asarray(random.integers(low, high, shape)).astype(dtype)


def _signed(array: Array, leaf: Leaf) -> Array:
    """The elements, kept to the signs that the e-graph was told."""
    if array.dtype.kind == "b":
        return np.ones_like(array) if leaf.nonzero else array
    if leaf.nonneg and array.dtype.kind != "u":
        array = np.where(array < 0, np.negative(array), array)
        array = np.where(array < 0, np.zeros_like(array), array)  # the least integer has no opposite
    return np.where(array == 0, np.ones_like(array), array) if leaf.nonzero else array
