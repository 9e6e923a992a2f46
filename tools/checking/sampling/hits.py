"""Samples on which a rule fires: generated from its left side, or from the left side of its example."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import cycle, islice
from math import prod
from random import Random
from typing import Any

import numpy as np

from ....ir.operators import OPERATORS, Unsupported
from ....rules import sexpr
from ....rules.commute import orders, variables
from ....rules.records import Rule, parse_example
from ....rules.sexpr import Atom, Form, Node
from .by_key import name_operators
from .conditions import Type, Value
from .coverage import choose_various, number_settings, settings
from .elements import Range, draw
from .evaluation import Evaluation, MeaninglessError, is_float
from .left_side import Contradiction, LeftSide, directions, names_operators, rename
from .near_ties import decides_about_rounded
from .recipe_layout import EMPTYING
from .samples import SAMPLES_PER_DIRECTION, Sample, draw_sample, left_sides
from .scratch import Conflict, Fired, Scratch, ScratchNode
from .symbolic_sizes import instances, symbolic_variants, with_symbolic_types, with_symbols
from .types import admits

_ENOUGH = 4
"""Samples after which a direction of a rule stops looking if more are hard to find."""
_BATCH = 96
"""Samples drawn in one round; the most various ones of the first round are kept."""
_MOST_BASES = 8
"""Samples of known sizes from which samples of symbolic ones are made."""
_MOST_UNBOUNDED_BASES = 64
"""The same for samples that need not fulfil conditions on sizes: a symbol fulfils these in few of them, and few of
those have sizes at which a wrong rule shows."""
_MOST_VARIANTS = 48
"""Samples of symbolic sizes that are run."""
_ROUNDS = 24
"""Rounds of samples, at most, for a rule that rarely fires."""
_ATTEMPTS = 400
"""Attempts at samples in each round: an attempt takes about half a millisecond."""
_LONG = 3
"""Samples with a long axis."""
_CONSTANTS = 128
"""Choices of the constants of a rule that decides about rounded numbers. A rule that is wrong at only one constant in
thirty escapes once in eighty checks."""
_MOST_IN_A_CHOICE = 64
"""Elements of a sample with such constants, at most."""
_LONGEST = 1201
"""The size of the longest axis of some of them: float32 does not hold sums of as many products of bytes."""
_LONG_ATTEMPTS = 120
"""Attempts at samples with a long axis: fewer than at others, as few such samples are kept."""
_WIDEST = 2
"""Samples in which a leaf alone widens results."""
_WIDEST_ATTEMPTS = 12
"""Attempts at them, for each leaf."""
_EMPTY = 6
"""Samples without elements, if there are as many."""
_EMPTIED = 4
"""Samples of inputs that have elements, of which an operator leaves none."""
_FILLING = 2
"""Samples whose results have elements although an input has none."""
_FILLING_ATTEMPTS = 40
"""Attempts at them."""
_EMPTY_ATTEMPTS = 240
"""Attempts at samples without elements."""
_MOST_SUSPECTS = 2
"""Samples that are kept since two sides differ at a glance, at most: one is enough to refute a rule."""
_GLANCES: tuple[Range, ...] = ("ordinary", "special")
"""How the elements are drawn for a glance, in turn."""
_APART = 0.01
"""How far two results lie apart, as a share of the largest number: far beyond rounding."""


@dataclass(frozen=True)
class Hit:
    """A sample and what the rule made of it."""

    sample: Sample
    outcome: Fired | Conflict


def seed(rule: Rule) -> int:
    """A seed that differs between rules, and for one rule is the same in every run, however its text is wrapped."""
    return int.from_bytes(hashlib.sha256(" ".join(rule.text.split()).encode()).digest()[:6], "big")


def facts_by_direction(rule: Rule) -> list[tuple[Node, ...]]:
    """The facts to draw samples from, for each direction: those of the example if the rule names no operator."""
    return [facts if names_operators(facts) else next(example_facts(rule), facts) for facts in directions(rule)]


def operator_of_constants(rule: Rule) -> str:
    """An operator of constants alone in which the rule looks for its left side, in every way in which its conditions
    may come to hold; "" if there is none."""
    ways = [way for facts in facts_by_direction(rule) for way in left_sides(facts, Random(seed(rule)))]
    found = [way.operator_of_constants() for way in ways]
    return found[0] if found and all(found) else ""


def hits(rule: Rule, scratch: Scratch, wanted: int = SAMPLES_PER_DIRECTION) -> list[list[Hit]]:
    """For each direction of a rule up to `wanted` samples that made it fire."""
    every = []
    for i, facts in enumerate(facts_by_direction(rule)):
        random = Random(seed(rule) + i)
        ways = left_sides(facts, random)
        found = _hits(rule, ways, scratch, random, wanted)
        if found:
            found += _special_hits(rule, ways, scratch, random, found)
        every.append(found)
    return every


def example_hits(rule: Rule, scratch: Scratch) -> list[Hit]:
    """Samples of the left side of the rule's example that made it fire, with the sizes that the example writes."""
    random = Random(seed(rule) - 1)
    ways = (left_sides(facts, random) for facts in example_facts(rule))
    return next(filter(None, (_hits(rule, each, scratch, random, wanted=2, symbolic=False) for each in ways)), [])


def _hits(
    rule: Rule, ways: Sequence[LeftSide], scratch: Scratch, random: Random, wanted: int, symbolic: bool = True
) -> list[Hit]:
    every: list[Hit] = []
    for attempt in range(_ROUNDS if ways else 0):
        samples = candidates(ways, random, min(max(_BATCH, 2 * wanted), (4 * wanted) << attempt), symbolic=symbolic)
        every += _run(rule, scratch, samples if attempt else [*_widest_samples(ways, random), *samples])
        enough = wanted if attempt < 1 else min(wanted, _ENOUGH) if attempt < 6 else 1
        if len(every) >= enough or _conflicts(every):
            break
    if conflicts := _conflicts(every):
        return conflicts
    chosen = _choose_hits(every, wanted)
    if not symbolic:
        return chosen
    bases = [hit.sample for hit in chosen if not hit.sample.symbols][:_MOST_BASES]
    different = {id(each): each for each in ways}.values()
    unbounded = [way for each in different if (way := each.without_bounds_of_sizes()) is not None]
    bases += candidates(unbounded, random, _MOST_UNBOUNDED_BASES) if unbounded else []
    variants = list({variant.roots: variant for base in bases for variant in symbolic_variants(base)}.values())
    various = choose_various(variants, list(map(settings, variants)), _MOST_VARIANTS)
    at_sizes = _run(rule, scratch, [each for each in map(with_symbolic_types, various) if each is not None])
    if conflicts := _conflicts(at_sizes):
        return [*conflicts, *chosen]
    chosen += choose_various(at_sizes, [settings(h.sample) for h in at_sizes], max(wanted // 2, 1))
    return [*chosen, *_suspects([*every, *at_sizes], chosen, random)]


def _suspects(every: Sequence[Hit], chosen: Sequence[Hit], random: Random) -> list[Hit]:
    """A few of the hits that were not chosen, although their two sides differ for a draw of usual numbers, as numpy
    computes them, or although the right side cannot be computed, or is not defined, for their types or ranks; and one
    for each type of which the engine does not write an operator of the right side."""
    known, generator = set(map(id, chosen)), np.random.default_rng(random.getrandbits(32))
    others = (hit for hit in every if id(hit) not in known and not (hit.sample.is_empty or hit.sample.outgrows))
    fired = ((hit, hit.outcome) for hit in others if isinstance(hit.outcome, Fired))
    differing: list[Hit] = []
    unwritten: dict[str, Hit] = {}
    for (hit, outcome), kind in zip(fired, cycle(_GLANCES), strict=False):
        evaluation = Evaluation(hit.sample, outcome, draw(hit.sample, kind, {}, generator), {})
        if _differs(evaluation):
            operator = evaluation.undefined_operator()
            if operator:
                unwritten.setdefault(operator, hit)
            else:
                differing.append(hit)
        if len(differing) == _MOST_SUSPECTS:
            break
    return [*differing, *unwritten.values()]


def _differs(evaluation: Evaluation) -> bool:
    try:
        with np.errstate(all="ignore"):
            pairs = [pair for pair in evaluation.comparisons() if not pair.is_of_one]
    except MeaninglessError:
        return True
    except Unsupported:
        return False
    return any(_are_apart(pair.left, pair.right) for pair in pairs) or not all(
        _is_defined(step.node, evaluation) for step in evaluation.fired.steps
    )


def _is_defined(node: ScratchNode, evaluation: Evaluation) -> bool:
    """Whether ONNX defines an operator for the element types of its operands, of which all are computed."""
    if node.head not in OPERATORS:
        return True
    values = zip(OPERATORS[node.head].arguments, map(evaluation.classes.get, node.arguments), strict=True)  # type: ignore[arg-type]
    return admits(node.head, {a.name: Type(v.shape, v.dtype.name) for a, v in values if isinstance(v, np.ndarray)})


def _are_apart(left: Any, right: Any) -> bool:
    if left.shape != right.shape or left.dtype != right.dtype:
        return True
    if not is_float(left):
        return bool(np.any(left != right))
    with np.errstate(all="ignore"):
        apart = np.abs(left - right) > _APART * np.max(np.abs(left), initial=0.0)
    return bool(np.any(apart & np.isfinite(left)))


def _conflicts(every: Sequence[Hit]) -> list[Hit]:
    """The hits that refute the rule whatever else holds: two terms that cannot be equal became so."""
    return [hit for hit in every if isinstance(hit.outcome, Conflict)]


def _run(rule: Rule, scratch: Scratch, samples: Sequence[Sample]) -> list[Hit]:
    """What the rule makes of samples; of one with symbolic sizes, at several sizes in their place."""
    result: list[Hit] = []
    outcomes = scratch.run(rule.program, rule.ruleset, samples) if samples else []
    for sample, found in zip(samples, outcomes, strict=True):
        outcome = name_operators(found) if isinstance(found, Fired) else found
        if isinstance(outcome, Conflict) or (outcome is not None and not sample.symbols):
            result.append(Hit(sample, outcome))
        elif outcome is not None:
            result += [Hit(*instance) for instance in instances(sample, outcome)]
    return result


def _special_hits(
    rule: Rule, ways: Sequence[LeftSide], scratch: Scratch, random: Random, found: Sequence[Hit]
) -> list[Hit]:
    """A few samples without elements, if few of those `found` are such, with a long axis, and with an axis that a type
    has to outgrow."""
    missing = max(_EMPTY - sum(hit.sample.is_empty for hit in found), 0)
    fills = sum(hit.sample.fills for hit in found) >= _FILLING
    kinds = (
        (_empty_samples(ways, random, missing), missing + _EMPTIED),
        ([] if fills else _filling_samples(ways, random), _FILLING),
        (_long_samples(rule, ways, random), _LONG),
        (_outgrowing_samples(rule, ways, random), len(_sizes_to_outgrow(rule)) * _OUTGROWING),
    )
    every = _run(rule, scratch, [sample for samples, _ in kinds for sample in samples])
    result: list[Hit] = []
    for samples, most in kinds:
        own = set(map(id, samples))
        result += [hit for hit in every if id(hit.sample) in own][:most]
    return result


def _empty_samples(ways: Sequence[LeftSide], random: Random, missing: int) -> list[Sample]:
    """Samples without elements, which need not fit where the sizes of others have to. If an operator of the left side
    can leave no elements of some, a few have inputs with elements."""
    empties = {each.head for way in ways for each in way.applications.values()} & EMPTYING
    most = {True: 2 * missing, False: _EMPTIED if empties else 0}
    kinds: dict[bool, dict[object, Sample]] = {True: {}, False: {}}
    for attempt in range(_EMPTY_ATTEMPTS if ways and (missing or empties) else 0):
        sample = draw_sample(ways[attempt % len(ways)], random, "float32" if attempt % 2 == 0 else "", empty=True)
        if sample is not None and sample.is_empty:
            kind = any(0 in leaf.type.shape for leaf in sample.leaves)
            if len(kinds[kind]) < most[kind]:
                kinds[kind].setdefault(sample.roots, sample)
            if all(len(kinds[each]) == most[each] for each in kinds):
                break
    return [*kinds[False].values(), *kinds[True].values()]


def _filling_samples(ways: Sequence[LeftSide], random: Random) -> list[Sample]:
    """Samples whose results have elements although an input has none, as sums do: these show what a rule takes to be
    the result of nothing."""
    combining = [way for way in ways if any(_combines(each.head) for each in way.applications.values())]
    samples: dict[object, Sample] = {}
    for attempt in range(_FILLING_ATTEMPTS if combining else 0):
        way = combining[attempt % len(combining)]
        sample = draw_sample(way, random, "float32" if attempt % 2 == 0 else "", empty=True)
        if sample is not None and sample.fills:
            samples.setdefault(sample.roots, sample)
            if len(samples) == 2 * _FILLING:
                break
    return list(samples.values())


def _combines(head: str) -> bool:
    """Whether an operator combines several elements."""
    row = OPERATORS.get(head)
    return row is not None and not row.is_elementwise and row.category not in ("layout", "control", "multiple-output")


def _widest_samples(ways: Sequence[LeftSide], random: Random) -> list[Sample]:
    """For each leaf whose conditions allow it, samples in which it alone widens a result: a rule that forgets this
    leaf makes another shape, although its elements may count nowhere, as those of a choice that is never taken."""
    samples: dict[object, Sample] = {}
    for way in {id(each): each for each in ways}.values():
        for variable in way.widening_leaves:
            kept = 0
            for attempt in range(_WIDEST_ATTEMPTS):
                types = way.possible_types
                dtype = "float32" if "float32" in types else types[attempt % len(types)]
                sample = draw_sample(way, random, dtype, widest=variable)
                if sample is not None and sample.widens_alone(variable):
                    samples.setdefault(sample.roots, sample)
                    kept += 1
                if kept == _WIDEST:
                    break
    return list(samples.values())


def _long_samples(rule: Rule, ways: Sequence[LeftSide], random: Random) -> list[Sample]:
    """Samples with a long axis.

    They are of float32 for a rule that claims equal bits, because runtimes add long axes up in parts. For other rules
    with operators that combine elements they are of float16, because their sums may overflow.
    """
    dtype = {"exact": "float32", "real": "float16"}.get(rule.sound, "")
    if not dtype or (dtype == "float16" and not _adds(rule)):
        return []
    samples: dict[object, Sample] = {}
    heads = {each.head for way in ways for each in way.applications.values()} & OPERATORS.keys()
    may_shorten = not all(OPERATORS[head].is_elementwise or OPERATORS[head].category == "layout" for head in heads)
    for attempt in range(_LONG_ATTEMPTS if ways else 0):
        size = _LONGEST if rule.sound == "exact" and attempt % 3 == 2 else 0
        sample = draw_sample(ways[attempt % len(ways)], random, long_in=dtype, size=size)
        if sample is not None and sample.is_long:
            samples.setdefault(sample.roots, sample)
            if sum(each.shortens for each in samples.values()) == 4 * _LONG:  # the longest of them are kept
                break
            if len(samples) == 2 * _LONG and not may_shorten:
                break
    return sorted(samples.values(), key=lambda each: (not each.shortens, -_longest_axis(each)))[: 3 * _LONG]


def _longest_axis(sample: Sample) -> int:
    """The size of the longest axis: the longer a sum, the sooner a type does not hold it."""
    return max(size for leaf in sample.leaves for size in leaf.type.shape)


def _outgrowing_samples(rule: Rule, ways: Sequence[LeftSide], random: Random) -> list[Sample]:
    """Samples with an axis whose positions a narrow type does not hold, if the rule casts places or counts to one."""
    samples: list[Sample] = []
    for size in _sizes_to_outgrow(rule) if ways else ():
        drawn = (draw_sample(ways[i % len(ways)], random, long_in="float32", size=size) for i in range(_LONG_ATTEMPTS))
        fitting = islice((s for s in drawn if s is not None and _has_axis(s, size)), 4 * _OUTGROWING)
        samples += sorted(fitting, key=lambda each: not each.shortens)[:_OUTGROWING]
    return samples


def hits_of_many_constants(rule: Rule, scratch: Scratch, found: Sequence[Hit]) -> list[Hit]:
    """Samples that differ in their constants, which take all digits, if an operator of the samples `found` decides
    about rounded numbers. Rounding changes its decision at few constants only, so many are tried."""
    if not any(isinstance(h.outcome, Fired) and decides_about_rounded(h.sample, h.outcome) for h in found):
        return []
    result: list[Hit] = []
    for i, facts in enumerate(facts_by_direction(rule)):
        random = Random(seed(rule) + i)
        ways = left_sides(facts, random)
        samples: dict[tuple[Value, ...], Sample] = {}
        for attempt in range(_ATTEMPTS if ways else 0):
            sample = draw_sample(ways[attempt % len(ways)], random, "float32", has_digits=True)
            if sample is not None and 0 < sum(prod(leaf.type.shape) for leaf in sample.leaves) <= _MOST_IN_A_CHOICE:
                samples.setdefault(sample.numbers, sample)
                if len(samples) == _CONSTANTS:
                    break
        result += _run(rule, scratch, list(samples.values())) if len(samples) > 1 else []
    return result


def _has_axis(sample: Sample, size: int) -> bool:
    """Whether a leaf of floats or truth values has an axis of this size: the largest float may be anywhere along it,
    and truth values can be counted."""
    return any(size in leaf.type.shape and leaf.type.dtype in ("float32", "bool") for leaf in sample.leaves)


def _sizes_to_outgrow(rule: Rule) -> list[int]:
    """Sizes of an axis at which most places, and sums of truth values, are beyond the whole numbers of a type to which
    the rule casts them."""
    forms = [node for node in sexpr.walk(sexpr.read(rule.text).forms[0]) if isinstance(node, Form)]
    heads = {form.head for form in forms}
    narrow = {str(form.items[2]).strip('"') for form in forms if form.head == "Cast"} & _WHOLE_NUMBERS.keys()
    counted = narrow if heads & {"ArgMax", "ArgMin"} else {name for name in narrow if "int" in name}
    return sorted({_TIMES * _WHOLE_NUMBERS[name] + 1 for name in counted}) if heads & _COUNTING else []


_COUNTING = frozenset({"ArgMax", "ArgMin", "ReduceSum", "CumSum"})
"""Operators whose results are places, or grow with a size as whole numbers do. A sum of floats is rounded anyway."""
_WHOLE_NUMBERS = {"int8": 2**7, "uint8": 2**8, "bfloat16": 2**8, "float16": 2**11, "int16": 2**15, "uint16": 2**16}
"""By type the first power of two behind which it lacks a whole number."""
_TIMES = 4
"""How many times longer than that an axis is, so that few random places lie within the range of the type."""
_OUTGROWING = 2
"""Samples for each such size."""


def _adds(rule: Rule) -> bool:
    """Whether an operator of the rule combines several elements."""
    nodes = sexpr.walk(sexpr.read(rule.text).forms[0])
    names = (str(node.items[0]) for node in nodes if isinstance(node, Form) and node.items)  # `:when ()` has none
    return any(map(_combines, names))


def _choose_hits(every: Sequence[Hit], wanted: int) -> list[Hit]:
    """Various samples, half of them with elements that can be NaN or infinite if there are as many. Each kind of number
    that a constant is in any sample is among them: a rule may be wrong for zero alone."""

    def has_floats(sample: Sample) -> bool:
        return not sample.is_empty and any(leaf.type.dtype == "float32" for leaf in sample.leaves)

    def choose(pool: Sequence[Hit], count: int, known: Set[str]) -> list[Hit]:
        needed = [number_settings(hit.sample) - known for hit in pool]
        return choose_various(pool, [settings(hit.sample) for hit in pool], count, needed)

    first = choose([hit for hit in every if has_floats(hit.sample)], -(-wanted // 2), frozenset())
    chosen = set(map(id, first))
    known = frozenset[str]().union(*(number_settings(hit.sample) for hit in first))
    rest = [hit for hit in every if id(hit) not in chosen]
    return [*first, *choose(rest, wanted - len(first), known)]


def candidates(ways: Sequence[LeftSide], random: Random, most: int, *, symbolic: bool = False) -> list[Sample]:
    """Up to `most` samples of left sides, in all element types; some of `symbolic` sizes."""
    found: dict[object, Sample] = {}
    for attempt in range(_ATTEMPTS):
        turn, way = divmod(attempt // 2, len(ways))
        types = ways[way].possible_types
        dtype = "float32" if attempt % 2 == 0 else types[(turn + way) % len(types)]
        sample = draw_sample(ways[way], random, dtype)
        if sample is not None and symbolic and attempt % 5 == 4:
            sample = with_symbols(sample, random)
        if sample is not None:
            found.setdefault(sample.roots, sample)
            if len(found) >= most:
                break
    return list(found.values())


def example_facts(rule: Rule) -> Iterator[tuple[Node, ...]]:
    """The facts of the rule, with the left side of the example in the place of the term that the rule rewrites.

    A rule without operators has to unite both sides of its example by facts of the analyses alone.
    """
    example = parse_example(rule.example)
    lefts = [rename_apart(left) for left in example.lefts]
    for facts in directions(rule):
        if not names_operators(facts):
            yield (*lefts, rename_apart(example.right))
            continue
        for with_example in _equate_example(rule, facts, lefts):
            try:
                LeftSide().add_facts(with_example)
            except Contradiction:
                continue
            yield with_example


def rename_apart(node: Node) -> Node:
    """The example with variables of its own, because its ``x`` is not the rule's."""
    return rename(node, {v.text: f"{v.text}'" for v in variables(node)})


def _equate_example(rule: Rule, facts: Sequence[Node], lefts: Sequence[Node]) -> Iterator[tuple[Node, ...]]:
    """The facts, with equations between rewritten terms and left sides of the example."""
    form = sexpr.read(rule.text).forms[0]
    if form.head != "rule":
        for first in orders(facts[0], frozenset(rule.commutes)):
            yield (Form((Atom("="), first, lefts[0])), *facts[1:])
        return
    actions = form.items[2].items if isinstance(form.items[2], Form) else ()
    united = [a.items[1] for a in actions if isinstance(a, Form) and a.head == "union"]
    yield (*facts, *(Form((Atom("="), name, left)) for name, left in zip(united, lefts, strict=False)))
