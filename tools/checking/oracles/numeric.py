"""A rule tested on numbers: both sides on many draws of elements, in several precisions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, combinations
from math import prod
from typing import Any

import numpy as np

from ....ir.operators import NUMBERS, OPERATORS, Arithmetic, Array, Unsupported
from ....ir.operators.numbers import FIRST_ZERO, element_type
from ..sampling.elements import Range, draw, pick, satisfy_facts
from ..sampling.evaluation import Comparison, Evaluation, MeaninglessError, is_float, is_identical
from ..sampling.near_ties import applications, decides, is_float_type, jumps, near_ties
from ..sampling.placement import Placement
from ..sampling.samples import Sample
from ..sampling.scratch import Fired
from ..sampling.terms import Leaf, Term, readable
from .onnx_oracle import Disagreement, Oracle

_ROUNDING = {"float16": 2.0**-10, "float32": 2.0**-23, "float64": 2.0**-52, "longdouble": 2.0**-50}
"""Relative rounding error of one operation by type; literals have the precision of float64 in any type."""
_FACTORS = {"float16": 64.0, "float32": 4096.0, "float64": 4096.0, "longdouble": 256.0}
"""How far two sides may lie apart, in roundings of the largest intermediate number. Extended precision shows whether
they are equal; in the other types one side may be more accurate, such as a normalisation that adds no constant
first."""
_FEW = 24
"""Samples with a leaf of fewer elements than this are drawn several times, so that each special value has its turn."""
_WIDE: tuple[Range, ...] = ("ordinary", "special", "moderate", "large")
"""Elements of extended precision, which shows whether results are equal beyond the digits of float64, and finite
together."""
_REPETITIONS = 4
"""How often such a sample, and one with very long axes, is drawn: enough for each special value to come up."""
_MAXIMA = frozenset({"Max", "Min", "ReduceMax", "ReduceMin", "MaxPool", "GlobalMaxPool"})
_DRAWS_OF_ZEROS = 8
"""Choices of elements for a sample, half of them for maxima and half for minima."""

_DRAWS_OF_ENDS = 8
"""Choices of elements near the ends of the range for a sample about which an operator decides."""


@dataclass(frozen=True)
class Counterexample:
    """Elements for which a rule is wrong: the sample, its leaves, and the two sides at one position. `made` is the term
    that the rule makes of the sample; "" if that is not known."""

    sample: str
    elements: Mapping[str, Any]
    where: str
    left: str
    right: str
    reason: str
    made: str = ""


@dataclass(frozen=True)
class NumericTest:
    """The test of a sample: the first counterexample that counts, and what could not be tested.

    If the rule makes an operator that ONNX does not define for the element type of its first operand, which the engine
    never writes, `unwritten` is the counterexample that this would be. It is none if the rule makes other operators for
    other types.
    """

    counterexample: Counterexample | None = None
    uncovered: tuple[str, ...] = ()
    unwritten: Counterexample | None = None


@dataclass(frozen=True)
class _Draw:
    """One evaluation: how elements are drawn, which float type is computed as which, and the latter type."""

    kind: Range
    dtypes: dict[str, str] = field(default_factory=dict)
    precision: str = ""
    arithmetic: Arithmetic = NUMBERS


def test_sample(
    sample: Sample, fired: Fired, sound: str, random: np.random.Generator, oracle: Oracle, *, only_flips: bool
) -> NumericTest:
    """Compare all ways to compute the classes that the rule touched.

    ``exact``: both sides are equal bit by bit for all elements, including the sign of zero and NaN. They are so in ONNX
    Runtime, too, whose kernels may add in another order, for ordinary elements and for both zeros, of which its kernels
    take the first as the larger one.

    ``real``: for finite elements both sides are equal within rounding and finite together, as far as the wide exponents
    of extended precision show, and in any precision the right side is finite if the left side stays far from overflow.
    For NaN and infinities they are equal wherever the left side is finite, so that a guard against them still works;
    constants of the model are finite. Few integers of a QuantizeLinear may be others by one step.

    ``approx``: both sides are equal within rounding if everything is finite. ``step``: the same, within half a step of
    each QuantizeLinear of the left side.

    If an operator decides about floats, ``exact`` and ``real`` rules have to decide alike near ties, too.
    A right side without a meaning is a counterexample if the left side has one, unless the engine would not write it. A
    difference in numbers counts only if `oracle` gives the left side the same value. Implementations do not agree on
    which of two zeros is the larger one, so both are tried. With `only_flips`, the draws are those beside a few flips
    of decisions. Raises Unsupported if the left side never has a meaning.
    """
    tested = False
    refused = NumericTest()
    failed: Unsupported | None = None
    uncovered: dict[str, None] = {}
    underflows: list[str] = []
    drawn = _beside_flips if only_flips else partial(_drawn, first=oracle.elements)
    for each, elements in drawn(sample, fired, sound, random):
        underflows.clear()
        with np.errstate(all="ignore", under="call", call=lambda kind, _: underflows.append(kind)):
            evaluation = Evaluation(sample, fired, elements, each.dtypes, each.arithmetic)
            try:
                difference = _first_difference(evaluation, sound, each, underflows)
            except MeaninglessError as error:
                return _without_right_side(evaluation, str(error), uncovered)
            except Unsupported as error:
                failed = error
                continue
        if not tested and (sound == "exact" or not only_flips) and (refusal := oracle.refusal(evaluation)):
            refused = _without_right_side(evaluation, refusal, uncovered)
            if refused.counterexample is not None:
                return refused
            uncovered.update(dict.fromkeys(refused.uncovered))
        if not tested and sound == "exact" and difference is None:
            for other in (evaluation, *_zeros_in_maxima(sample, fired, random)):
                if bits := oracle.unequal_bits(other):
                    return NumericTest(_unequal_bits(other, *bits))
        tested = True
        if difference is not None and sound == "real" and each.kind != "near" and each.precision != "longdouble":
            difference = _beyond_own_error(evaluation, difference, each)
        try:
            if difference is not None:
                return NumericTest(_confirm(evaluation, difference, each, sound, oracle))
        except Disagreement as disagreement:
            uncovered.setdefault(str(disagreement))
    if not tested and failed is not None:
        raise failed
    return NumericTest(uncovered=(*uncovered, *oracle.reasons), unwritten=refused.unwritten)


def _confirm(evaluation: Evaluation, found: _Difference, drawn: _Draw, sound: str, oracle: Oracle) -> Counterexample:
    """The counterexample at a place where the oracle, too, has the value of the left side. Raises Disagreement."""
    inside = sound != "exact" and drawn.precision == "float16" and _is_lost_inside(evaluation, found, drawn)
    at = oracle.confirm(evaluation, found.pair, found.places, sound, both_sides=inside)
    return _counterexample(evaluation, found, at, "; one oracle" if oracle.alone else "")


def _beyond_own_error(evaluation: Evaluation, found: _Difference, drawn: _Draw) -> _Difference | None:
    """The difference without the places at which the rounding error of the left side itself is about as large, as in a
    quotient by the deviation of nearly equal numbers."""
    left, right = found.pair.left, found.pair.right
    if found.pair.root < 0 or left.shape != right.shape or left.dtype != right.dtype or not is_float(left):
        return found
    wide = _widen(evaluation, drawn)
    try:
        with np.errstate(all="ignore"):
            exact = wide.value(evaluation.sample.roots[found.pair.root])
    except Unsupported:
        return found
    if not isinstance(exact, np.ndarray) or exact.shape != left.shape:
        return found
    own = {at: abs(left[at] - exact[at]) for at in found.places}
    beyond = [at for at, error in own.items() if not error > _OWN_SHARE * abs(left[at] - right[at])]
    return replace(found, places=beyond) if beyond else None


def _widen(evaluation: Evaluation, drawn: _Draw) -> Evaluation:
    """The same elements in extended precision."""
    elements = {
        n: a.astype(np.longdouble) if a.dtype.name == drawn.precision else a for n, a in evaluation.elements.items()
    }
    renamed = {next(iter(drawn.dtypes), drawn.precision): "longdouble"}
    return Evaluation(evaluation.sample, evaluation.fired, elements, renamed)


def _is_lost_inside(evaluation: Evaluation, found: _Difference, drawn: _Draw) -> bool:
    """Whether two sides differ only because a number inside an operator leaves the range of float16, though all results
    lie within it. ONNX does not say in which type an operator adds up."""
    wide = _widen(evaluation, drawn)
    try:
        with np.errstate(all="ignore"):
            pairs = [p for p in wide.comparisons() if (p.node, p.root) == (found.pair.node, found.pair.root)]
    except Unsupported:
        return False
    largest = float(np.finfo(np.float16).max)
    results = [a for a in wide.intermediate if is_float(a)]
    return all(bool(np.all(np.abs(a) <= largest)) for a in results) and all(
        p.left.shape == p.right.shape and bool(np.all(np.abs(p.left - p.right) <= _SAME * np.abs(p.left)))
        for p in pairs
        if is_float(p.left)
    )


_SAME = 1e-6
"""Relative error up to which two results of extended precision are the same number."""
_OWN_SHARE = 0.25
"""Share of a difference up to which the rounding error of the left side may come: the difference counts if it is at
least four times that error."""


def draw_first(sample: Sample, sound: str, random: np.random.Generator) -> dict[str, Array]:
    """The elements of the first draw of a sample."""
    return draw(sample, "ordinary", {}, random, finite_constants=sound != "exact")


def _drawn(
    sample: Sample, fired: Fired, sound: str, random: np.random.Generator, first: Mapping[str, Array] | None
) -> Iterator[tuple[_Draw, Mapping[str, Array]]]:
    """Every draw of a sample with its elements, which are given for the `first`; near ties, too, if an operator decides
    about floats."""
    for number, each in enumerate(_draws(sample, sound)):
        if number == 0 and first is not None:
            yield each, first
        else:
            yield each, draw(sample, each.kind, each.dtypes, random, finite_constants=sound != "exact")
    if sound in ("exact", "real") and not sample.is_empty and not sample.outgrows and decides(sample, fired):
        dtypes, precision = _precisions(sample, sound)[0]
        near = chain(near_ties(sample, fired, random), beside_flips(sample, fired, dtypes, random))
        yield from ((_Draw("near", dtypes, precision), elements) for elements in near)
        for _ in range(_DRAWS_OF_ENDS if sound == "exact" else 0):
            yield _Draw("ends", dtypes, precision), draw(sample, "ends", dtypes, random)


def _beside_flips(
    sample: Sample, fired: Fired, sound: str, random: np.random.Generator
) -> Iterator[tuple[_Draw, Mapping[str, Array]]]:
    dtypes, precision = _precisions(sample, sound)[0]
    found = beside_flips(sample, fired, dtypes, random, FEW_ENDS)
    yield from ((_Draw("near", dtypes, precision), elements) for elements in found)


def _zeros_in_maxima(sample: Sample, fired: Fired, random: np.random.Generator) -> Iterator[Evaluation]:
    """Evaluations of elements among which zeros of both signs are the largest or the least ones, if an operator of
    either side takes the largest or the least of several.

    Which of the zeros it returns depends on the order in which it looks at the elements, and kernels of ONNX Runtime
    look at several at a time.
    """
    if not any(each.head in _MAXIMA for each in applications(sample, fired)):
        return
    for number in range(_DRAWS_OF_ZEROS):
        elements = draw(sample, "ordinary", {}, random)
        for leaf in sample.named_leaves:
            if is_float(elements[leaf.name]):
                zeros = np.array([0.0, -0.0, -1.0 if number % 2 else 1.0], elements[leaf.name].dtype)
                elements[leaf.name] = satisfy_facts(pick(zeros, leaf.type.shape, random), leaf)
        yield Evaluation(sample, fired, elements, {})


def _draws(sample: Sample, sound: str) -> Iterator[_Draw]:
    if sample.is_long:
        main = _precisions(sample, sound)[0]
        yield from [_Draw("ordinary", *main)] * (_REPETITIONS if sample.outgrows else 1)
        if not any(is_float_type(leaf.type.dtype) for leaf in sample.leaves if leaf.kind != "Absent"):
            yield _Draw("high", *main)  # float32 does not hold long sums of products of bytes
        # a factor below one may change its place in a sum, and the sum overflow before it
        factors = [leaf.type.value for leaf in sample.leaves if leaf.kind == "Full"]
        if sound == "real" and main[1] == "float16" and all(abs(factor or 0.0) >= 1 for factor in factors):
            yield from (_Draw("raised", *main), _Draw("high", *main), _Draw("apart", *main))
        return
    kinds: tuple[Range, ...] = ("ordinary", "special", "tiny", "large")
    wide = _WIDE
    if sound == "real" and sample.is_empty:  # no number of the left side tells that products of weights overflow
        kinds, wide = kinds[:2], wide[:2]
    for dtypes, precision in _precisions(sample, sound):
        yield from (_Draw(kind, dtypes, precision) for kind in (wide if precision == "longdouble" else kinds))
    if sound in ("approx", "step") or (sound == "real" and sample.is_empty):
        return
    sizes = [prod(leaf.type.shape) for leaf in sample.leaves]
    times = _REPETITIONS if min(sizes, default=1) < _FEW else 1
    if not any(is_float_type(leaf.type.dtype) for leaf in sample.leaves if leaf.kind != "Absent"):
        yield from [_Draw("limits")] * (times if sound == "exact" else 0)
        return
    for _ in range(times):
        if sound == "exact":
            yield from (_Draw(kind) for kind in ("zeros", "undefined", "limits"))
            yield _Draw("zeros", arithmetic=FIRST_ZERO)
        else:
            dtypes, precision = _precisions(sample, sound)[-1]
            yield _Draw("undefined", dtypes, precision)
    if sound == "real":  # with the ends of the type, among which some operators keep infinities
        yield _Draw("undefined", *_precisions(sample, sound)[0])


def _precisions(sample: Sample, sound: str) -> list[tuple[dict[str, str], str]]:
    """The types that stand in for the float type of a sample, the widest last; no type of ONNX is wider than float64,
    so that nothing needs to be exact beyond it."""
    dtypes = {leaf.type.dtype for leaf in sample.leaves if leaf.kind != "Absent"}
    dtypes |= {type_.dtype for type_ in sample.types.values()}
    main = next((d for d in ("float32", "float64", "float16") if d in dtypes), "")
    if not main:
        return [({}, "float64")]
    wider = {"float32": ("float64", "longdouble"), "float64": ("longdouble",), "float16": ("longdouble",)}[main]
    names = (main, *(w for w in wider if sound != "exact" or w != "longdouble"))
    return [({main: name} if name != main else {}, name) for name in names]


@dataclass(frozen=True)
class _Difference:
    """Two ways to compute a class that differ, at which places and in what."""

    pair: Comparison
    places: list[tuple[int, ...]]
    reason: str


def _first_difference(
    evaluation: Evaluation, sound: str, drawn: _Draw, underflows: Sequence[str]
) -> _Difference | None:
    """The first difference. If a number rounded to zero on the way (`underflows`), finite results may differ unless
    they are decisions."""
    pairs = [pair for pair in evaluation.comparisons() if not pair.is_of_one]
    limits: tuple[float, bool] | None = None
    for pair in pairs:
        if pair.left.shape != pair.right.shape:
            return _Difference(pair, [()], f"shapes {list(pair.left.shape)} and {list(pair.right.shape)}")
        if pair.left.dtype != pair.right.dtype:
            return _Difference(pair, [()], f"element types {pair.left.dtype} and {pair.right.dtype}")
        if np.all(is_identical(pair.left, pair.right)):
            continue
        limits = limits or _limits(evaluation, sound, drawn, underflows)
        scale, calm = limits
        if sound == "real" and calm and pair.root >= 0 and evaluation.overflows_on_the_right:
            scale = _scale([pair.left])  # what follows from a number that overflowed has no rounding error of its own
        wrong = _is_wrong(pair.left, pair.right, sound, drawn, scale, calm)
        if sound == "real" and pair.node.head == "QuantizeLinear":
            wrong &= _is_beyond_a_step(pair.left, pair.right)
        if sound == "step":
            wrong &= ~(np.abs(pair.left - pair.right) <= _half_steps(evaluation))
        if drawn.kind in ("raised", "high", "apart"):
            wrong &= pair.left != 0  # zero is a quotient by a number that overflowed on the left, too
        if wrong.any():
            return _Difference(pair, [tuple(map(int, at)) for at in np.argwhere(wrong)], "values differ")
    return None


def _limits(evaluation: Evaluation, sound: str, drawn: _Draw, underflows: Sequence[str]) -> tuple[float, bool]:
    """The largest number of an evaluation, or infinity if a number rounded to zero, except near ties; and whether the
    evaluation is calm."""
    loose = underflows and drawn.kind != "near"
    scale = np.inf if loose else _scale(evaluation.intermediate, evaluation.elements.values())
    is_loose = sound in ("approx", "step")
    calm = evaluation.is_calm if is_loose else evaluation.left_is_calm and not evaluation.has_lost_constant
    if drawn.kind == "large" and drawn.precision == "longdouble":  # even extended precision overflows, as in exp(x * x)
        calm &= all(bool(np.all(np.isfinite(a))) for a in evaluation.intermediate if is_float(a))
    return scale, calm


def _scale(*groups: object) -> float:
    largest = 1e-30
    for group in groups:
        for array in group:  # type: ignore[attr-defined]
            if is_float(array) and array.size:
                finite = np.abs(array[np.isfinite(array)])
                largest = max(largest, float(finite.max())) if finite.size else largest
    return largest


def _is_wrong(left: Array, right: Array, sound: str, drawn: _Draw, scale: float, calm: bool) -> Array:
    """For each element whether the right side is wrong; `test_sample` says when."""
    if sound == "exact" or not is_float(left):
        return np.asarray(~is_identical(left, right))
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    finite = np.isfinite(left) & np.isfinite(right)
    near = np.abs(left - right) <= _FACTORS[drawn.precision] * _ROUNDING[drawn.precision] * scale
    if drawn.kind == "undefined":
        return np.asarray(np.isfinite(left) & ~same & ~(finite & near))
    if not calm:
        return np.zeros(left.shape, bool)
    if sound in ("approx", "step"):
        return np.asarray(~same & ~near)
    # if both sides are undefined, either may be an infinity of any sign, or NaN
    return np.asarray((finite & ~near) | (np.isfinite(left) != np.isfinite(right)))


_FEW_ROUNDED = 8
"""Elements of which all may be rounded to another integer by chance."""


def _is_beyond_a_step(left: Array, right: Array) -> Array:
    """For each element whether it is rounded to an integer that is not beside the other; each one, if more than half of
    many elements are rounded to others: then no rounding error is the cause."""
    steps = np.abs(left.astype(np.int64) - right.astype(np.int64))
    if left.size >= _FEW_ROUNDED and np.count_nonzero(steps) > left.size / 2:
        return np.ones(left.shape, bool)
    return np.asarray(steps > 1)


def _half_steps(evaluation: Evaluation) -> float:
    """How far the quantisers of the left side may move a number: half a step of the largest scale of each, and the
    rounding of a quotient that lies in the middle between two integers."""
    terms = [term.arguments[1] for term in evaluation.terms if term.head == "QuantizeLinear"]
    scales = [evaluation.value(term) for term in terms if isinstance(term, (Term, Leaf))]
    return sum(_HALF_A_STEP * float(np.max(np.abs(s), initial=0.0)) for s in scales if isinstance(s, np.ndarray))


_HALF_A_STEP = 0.5 * (1 + 1e-4)
"""255 steps are rounded to 1.5e-5 of one in float32."""


def _counterexample(evaluation: Evaluation, found: _Difference, at: tuple[int, ...], remark: str) -> Counterexample:
    pair = found.pair
    subject = pair.node.head if pair.node.head in OPERATORS else ""
    placement = Placement(evaluation.sample, evaluation.fired)
    number = next((c for c, nodes in evaluation.fired.classes.items() if pair.node in nodes), None)
    made = None if number is None else placement.term(pair.node, number)
    types = {"longdouble": "extended precision"}
    computed = next((types.get(d, d) for d in evaluation.dtypes.values() if np.dtype(d) == pair.left.dtype), "")
    precision = f"computed in {computed}" if computed else str(pair.left.dtype)
    says = ", ".join(filter(None, (subject, precision)))
    blank = blank_counterexample(evaluation, f"{found.reason} ({says}{remark})")
    blank = replace(blank, made="" if made is None else readable(made))
    where = f"[{', '.join(map(str, at))}]"
    if pair.left.shape != pair.right.shape:
        return replace(blank, where=where)
    return replace(blank, where=where, left=str(pair.left[at]), right=str(pair.right[at]))


def _unequal_bits(evaluation: Evaluation, left: Array, right: Array, at: tuple[int, ...]) -> Counterexample:
    what = "the other of two zeros" if left[at] == right[at] == 0 else "other bits"
    blank = blank_counterexample(evaluation, f"ONNX Runtime computes {what} ({left.dtype})")
    return replace(blank, where=f"[{', '.join(map(str, at))}]", left=str(left[at]), right=str(right[at]))


def _without_right_side(evaluation: Evaluation, error: str, uncovered: Iterable[str]) -> NumericTest:
    """The test of a sample whose right side is not valid, or cannot be computed."""
    found = _meaningless(evaluation, error)
    operator = "" if evaluation.dtypes else evaluation.undefined_operator()
    if not operator:
        return NumericTest(found)
    return NumericTest(uncovered=(*uncovered, f"not used where it makes {operator}, which ONNX lacks"), unwritten=found)


def _meaningless(evaluation: Evaluation, error: str) -> Counterexample:
    blank = blank_counterexample(evaluation, f"the right side has no meaning although the left side has one: {error}")
    after = Placement(evaluation.sample, evaluation.fired).after()
    return replace(blank, made="; ".join(map(readable, after)))


def blank_counterexample(evaluation: Evaluation, reason: str) -> Counterexample:
    """A counterexample with the elements of the leaves and the reason, but no position."""
    sample = evaluation.sample
    if sample.open_axes:
        places = ", ".join(f"axis {axis} of {name}" for name, axis in sample.open_axes)
        reason = f"{reason}; the rule fires on a symbolic size: {places}"
    used = {leaf.name: leaf.type.dtype for leaf in sample.leaves if leaf.kind in ("Var", "Weight")}
    term = "; ".join(readable(root) for root in sample.roots)
    with np.errstate(all="ignore"):  # elements of a wider type are shown as the rule's own type holds them
        elements = {n: a.astype(element_type(used[n])) for n, a in evaluation.elements.items() if n in used}
    return Counterexample(term, elements, "", "", "", reason)


ENDS: tuple[Range, ...] = ("ordinary", "ordinary", "large", "large")
"""How elements are drawn; every two of these draws are the ends of a bisection."""
FEW_ENDS: tuple[Range, ...] = ("ordinary", "large", "large")
"""The same for a rule with many samples of a kind."""
_STEPS = 80
"""Halvings at most: enough to reach neighbouring numbers of float64, unless these are near zero."""
_NEIGHBOURS = 4
"""Choices of elements beside each flip."""
_FARTHEST = 2
"""Distance of elements from a flip at most, in units of their last bit."""


def beside_flips(
    sample: Sample, fired: Fired, dtypes: dict[str, str], random: np.random.Generator, ends: Sequence[Range] = ENDS
) -> Iterator[dict[str, Array]]:
    """Elements for every leaf beside flips of operators of the left side, between each two draws of the ranges `ends`;
    `dtypes` renames element types."""

    def decide(elements: dict[str, Array]) -> Array | None:
        """The decisions of all operators that decide; None if an operator has no meaning."""
        evaluation = Evaluation(sample, fired, elements, dtypes)
        try:
            with np.errstate(all="ignore"):
                evaluation.left_sides()
        except Unsupported:
            return None
        decided = [evaluation.terms[t] for t in evaluation.terms if jumps(t.head, t.arguments)]
        return np.concatenate([np.zeros(0), *(np.ravel(each).astype(float) for each in decided)])  # type: ignore[arg-type]

    leaves = {leaf.name: leaf for leaf in sample.named_leaves}
    drawn = [draw(sample, kind, dtypes, random) for kind in ends]
    starts = [{n: each[n] if is_float(array) else array for n, array in drawn[0].items()} for each in drawn]
    decided = [(each, decisions) for each in starts if (decisions := decide(each)) is not None]
    for (low, before), (high, after) in combinations(decided, 2):
        places = np.flatnonzero(before != after) if before.shape == after.shape else ()
        if not len(places):
            continue
        place = random.choice(places)
        for _ in range(_STEPS):
            middle = {n: satisfy_facts(_between(array, high[n]), leaves[n]) for n, array in low.items()}
            if all(np.all((array == low[n]) | (array == high[n])) for n, array in middle.items()):
                break
            now = decide(middle)
            if now is None or now.shape != before.shape:
                break
            with np.errstate(invalid="ignore"):  # decisions may be infinite
                is_low = abs(now[place] - before[place]) <= abs(now[place] - after[place])
            if is_low:
                low = middle
            else:
                high = middle
        yield from (low, high)
        for _ in range(_NEIGHBOURS):
            yield {n: satisfy_facts(_beside(array, random), leaves[n]) for n, array in low.items()}


def _between(low: Array, high: Array) -> Array:
    return np.asarray((low / 2 + high / 2).astype(low.dtype)) if is_float(low) else low


def _beside(array: Array, random: np.random.Generator) -> Array:
    if not is_float(array):
        return array
    steps = random.integers(-_FARTHEST, _FARTHEST, array.shape, endpoint=True).astype(array.dtype)
    return np.asarray(array + steps * np.spacing(array))
