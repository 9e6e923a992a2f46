"""Elements for the leaves of a sample, drawn from all that their type can hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import ml_dtypes
import numpy as np

from ....ir.operators import OPERATORS, RECURRENT, Array
from ....ir.operators.numbers import element_type
from .samples import Sample
from .terms import Leaf, Term, leaves

Range = Literal[
    "ordinary", "special", "tiny", "moderate", "large", "raised", "high", "apart", "zeros", "undefined", "limits",
    "ends", "near",
]  # fmt: skip
"""Ordinary: between -2 and 2. Special: small whole numbers and odd halves, which repeat. Tiny: down to 1e-6. Moderate:
between -16 and 16, where functions come so near their limits that few digits tell numbers apart. Large: up to 1000, in
float16 to 128, and for integers the ends of their range. Raised and high: between 20 and 30, or 500 and 1000, so that
long sums of squares, or of numbers, overflow in float16. Apart: the same with either sign, so that squares of
differences do; high integers are the largest ones. Zeros: both, and numbers that round to them. Undefined: special
numbers among NaN, infinities and both zeros. Limits: these, subnormal numbers, the largest ones, those next to 1, and
those that narrower types round or cannot hold. Ends: numbers near the largest ones, whose sums and small multiples are
all infinite, and the least ones, whose halves are all zero. Near: see `near_ties`."""

_BOUNDS: dict[Range, tuple[float, float]] = {
    "ordinary": (-2.0, 2.0), "moderate": (-16.0, 16.0), "raised": (20.0, 30.0), "high": (500.0, 1000.0),
}  # fmt: skip
_SPECIAL = np.array([0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 1.5, -1.5, 2.5, 3.0, -3.0])
_UNDEFINED = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0])
_UNDEFINED_OR_SPECIAL = np.concatenate([_UNDEFINED, _SPECIAL])
_ZEROS = np.array([0.0, -0.0, 0.25, -0.25])
_HALVES = (3, 4, 8, 11, 24)
"""Binary places behind the point of half the last bit of narrower types, from float8 to float32. A number just above
such a half is rounded to another result if a type in between rounds it first."""
_BEYOND_INT32 = 3e9
"""A whole number that int64 holds and int32 does not."""
SIGNS = np.array([-1.0, 1.0])
_SHARE_OF_NUMBERS = 0.125
"""Share of the elements that become numbers of the rule, at which its comparisons flip."""
_LARGEST_OF_FLOAT16 = float(np.log10(128))
"""Exponent of ten of the largest number that is promised not to overflow in float16 (rules/README.md)."""
_SHARES = (0.0, 0.1, 0.3, 1.0)
"""Shares of the elements of a leaf that are not ordinary ones; with a large share, no sum is finite."""
_FEW = 6
_SHARES_OF_FEW = (0.0, 0.5, 1.0, 1.0)
"""The same for a leaf of fewer than `_FEW` elements, which would mostly have none."""


def pick(values: Sequence[float] | Array, shape: tuple[int, ...], random: np.random.Generator) -> Array:
    """Any of the values for each element: numpy's own `choice` takes twice as long."""
    return np.asarray(np.asarray(values)[random.integers(len(values), size=shape)])


def draw(
    sample: Sample, kind: Range, dtypes: dict[str, str], random: np.random.Generator, *, finite_constants: bool = True
) -> dict[str, Array]:
    """Elements for every leaf of a sample; `dtypes` renames element types."""
    bounds = index_bounds(sample)
    computed = _leaves_of_computed_places(sample) if bounds else set()
    # draw from few numbers, so that equal ones meet in the operands of one operator
    pool = random.choice(_UNDEFINED_OR_SPECIAL, 3) if kind == "undefined" and random.random() < 0.5 else None
    numbers = sorted(set(sample.numbers)) if kind in ("special", "large") else []  # comparisons flip at them
    elements: dict[str, Array] = {}
    for leaf in sample.named_leaves:
        dtype = dtypes.get(leaf.type.dtype, leaf.type.dtype)
        bound = bounds.get(leaf.name)
        if bound is not None:
            low, high = (0, bound[1]) if kind == "ordinary" or leaf.nonneg else bound
            shift = int(random.choice(_SHIFTS)) if leaf.name in computed and kind != "ordinary" else 0
            low, size = low + (abs(shift) if leaf.nonneg else shift) * (high - low), max(high - low, 1)
            elements[leaf.name] = random.integers(low, low + size, leaf.type.shape).astype(dtype)
        else:
            usual = finite_constants and kind == "undefined" and leaf.kind == "Weight"
            drawn = _elements(leaf.type.shape, "special" if usual else kind, dtype, random)
            if pool is not None and not usual and drawn.dtype.kind == "f":
                drawn = pick(pool, leaf.type.shape, random).astype(drawn.dtype)
            drawn = _put_in(np.asarray(drawn), numbers, random)
            elements[leaf.name] = satisfy_facts(np.asarray(drawn), leaf)
    return elements


def _put_in(array: Array, numbers: list[float], random: np.random.Generator) -> Array:
    """The elements, some replaced by those of the numbers that their type holds."""
    kind = array.dtype.kind
    if kind in "iu":
        limits = np.iinfo(array.dtype)
        numbers = [n for n in numbers if n.is_integer() and limits.min <= n < limits.max]
    if kind == "b" or not numbers:
        return array
    chosen = pick(np.array([int(n) if kind in "iu" else n for n in numbers], array.dtype), array.shape, random)
    return np.asarray(np.where(random.random(array.shape) < _SHARE_OF_NUMBERS, chosen, array))


_INDICES = {"Gather": 1, "BitShift": 1, **dict.fromkeys(RECURRENT, 4)}
"""For operators with an operand of indices, numbers of bits or lengths the place of that operand; other operands bound
its values."""


def index_bounds(sample: Sample) -> dict[str, tuple[int, int]]:
    """By name the ranges of leaves that are indices, lengths or numbers of bits to shift by: the first number, and the
    number after the last."""
    bounds: dict[str, tuple[int, int]] = {}
    for term in sample.subterms:
        operand = _INDICES.get(term.head) if isinstance(term, Term) else None
        if isinstance(term, Term) and operand is not None:
            bound = _index_bound(term, sample)
            for leaf in leaves(term.arguments[operand]):
                low, high = bounds.get(leaf.name, bound)
                bounds[leaf.name] = max(low, bound[0]), min(high, bound[1])
    return bounds


_SHIFTS = (0, 0, -1, 1)
"""By how many sizes the numbers lie beside the places of an axis from which operators compute places: these may be on
the axis although the numbers are not."""


def _leaves_of_computed_places(sample: Sample) -> set[str]:
    """The names of leaves from which operators compute the indices of a Gather."""
    gathers = (term for term in sample.subterms if isinstance(term, Term) and term.head == "Gather")
    computed = (term.arguments[_INDICES["Gather"]] for term in gathers)
    return {leaf.name for argument in computed if isinstance(argument, Term) for leaf in leaves(argument)}


def _index_bound(term: Term, sample: Sample) -> tuple[int, int]:
    type_ = sample.type_of(term.arguments[0])
    if type_ is None:
        return 0, 1
    if term.head == "BitShift":
        return 0, 8 * element_type(type_.dtype).itemsize
    if term.head in RECURRENT:
        names = [argument.name for argument in OPERATORS[term.head].arguments]
        return 0, type_.shape[1 if term.arguments[names.index("layout")] else 0] + 1
    axis = term.arguments[2]
    size = type_.shape[axis] if isinstance(axis, int) and axis < len(type_.shape) else 0
    return -size, size


def _elements(shape: tuple[int, ...], kind: Range, dtype: str, random: np.random.Generator) -> Array:
    if dtype == "bool":
        return random.random(shape) < 0.5
    target = element_type(dtype)
    if target.kind in "iu":
        return _integers(shape, kind, target, random)
    with np.errstate(all="ignore"):
        return _floats(shape, kind, target, random).astype(target)


def _floats(shape: tuple[int, ...], kind: Range, dtype: np.dtype[np.generic], random: np.random.Generator) -> Array:
    if kind in ("undefined", "limits"):
        odd = _UNDEFINED if kind == "undefined" else _limits(dtype)
        usual = pick(_SPECIAL, shape, random)
        share = random.choice(_SHARES if usual.size >= _FEW else _SHARES_OF_FEW)
        return np.where(random.random(shape) < share, pick(odd, shape, random), usual)
    if kind == "ends":
        return _near_ends(shape, dtype, random)
    if kind in ("special", "zeros"):
        return pick(_SPECIAL if kind == "special" else _ZEROS, shape, random)
    if kind == "apart":
        return pick(SIGNS, shape, random) * random.uniform(*_BOUNDS["high"], shape)
    if kind in _BOUNDS:
        return np.asarray(random.uniform(*_BOUNDS[kind], shape))
    least = -4.0 if dtype.itemsize == 2 else -6.0  # the reciprocals of smaller ones are infinite in float16
    most = _LARGEST_OF_FLOAT16 if dtype == np.float16 else 3.0
    low, high = (least, -3.0) if kind == "tiny" else (0.0, most)
    return np.asarray(pick(SIGNS, shape, random) * 10 ** random.uniform(low, high, shape))


def _near_ends(shape: tuple[int, ...], dtype: np.dtype[np.generic], random: np.random.Generator) -> Array:
    """Numbers of one sign near one end of the range, or of both signs near either."""
    limits_of: Callable[..., Any] = ml_dtypes.finfo if dtype.kind == "V" else np.finfo
    ends = limits_of(dtype)
    large = float(ends.max) * random.uniform(0.25, 1.0, shape)
    small = float(ends.smallest_subnormal) * random.integers(0, _LEAST_ONES, shape)
    chosen = random.choice((0.0, 0.5, 1.0))
    signs = pick((SIGNS, SIGNS[:1], SIGNS[1:])[random.integers(3)], shape, random)
    return np.asarray(signs * np.where(random.random(shape) < chosen, large, small))


_LEAST_ONES = 8
"""How many multiples of the least number are among the ends."""


def _limits(dtype: np.dtype[np.generic]) -> Array:
    limits_of: Callable[..., Any] = ml_dtypes.finfo if dtype.kind == "V" else np.finfo
    ends = limits_of(dtype)
    extremes = [float(e) for e in (ends.smallest_subnormal, ends.tiny, ends.eps, ends.max)]
    extremes += [1 - float(ends.epsneg), 1 + float(ends.eps)]  # a narrower type rounds them to 1
    extremes += [1 + 0.5**bits + float(ends.eps) for bits in _HALVES if bits < ends.nmant]
    extremes += [_BEYOND_INT32] if float(ends.max) > _BEYOND_INT32 else []
    return np.array([*_UNDEFINED, *extremes, *(-e for e in extremes)])


_BELOW_THE_LARGEST = 4
"""How far high integers lie below the largest one at most."""


def _integers(shape: tuple[int, ...], kind: Range, dtype: np.dtype[np.generic], random: np.random.Generator) -> Array:
    limits = np.iinfo(dtype)  # type: ignore[type-var]
    if kind in ("large", "limits", "ends"):
        ends = [limits.min, limits.min + 1, limits.max, limits.max - 1, 1, 0, *([-1] if limits.min else [])]
        return pick(np.array(ends, dtype), shape, random)
    if kind == "high":
        return random.integers(limits.max - _BELOW_THE_LARGEST, limits.max, shape, dtype=dtype, endpoint=True)
    if kind == "tiny":
        return random.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
    low, high = (max(-2, limits.min), 3) if kind in ("special", "zeros") else (max(-9, limits.min), 10)
    return np.asarray(random.integers(low, high, shape)).astype(dtype)


def satisfy_facts(array: Array, leaf: Leaf) -> Array:
    """The elements, with others in place of those that contradict the facts about the leaf."""
    if leaf.finite and array.dtype.kind not in "iub":
        array = np.where(np.isfinite(array), array, np.ones_like(array))
    if array.dtype.kind == "b":
        return np.ones_like(array) if leaf.nonzero else array
    if leaf.nonneg and array.dtype.kind != "u":
        array = np.where(array < 0, np.negative(array), array)
        array = np.where(array < 0, np.zeros_like(array), array)  # the least integer has no opposite
    return np.where(array == 0, np.ones_like(array), array) if leaf.nonzero else array
