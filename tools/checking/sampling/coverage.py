"""Settings of samples (element types, ranks, sizes, attributes): which samples to keep, and which settings none has.

Faults that take two settings together are common, those that take three rare (Kuhn, Wallace and Gallo, IEEE TSE 2004).
So the samples to keep are chosen to have as many pairs of settings as possible.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import TypeVar

import numpy as np

from ....ir.operators import OPERATORS
from .conditions import Value
from .samples import Sample
from .terms import Argument, Leaf, Term
from .types import TYPES, result_types

RANKS = range(6)
_NUMBERS = ("below -1", "-1", "between -1 and 0", "0", "between 0 and 1", "1", "above 1")
_Item = TypeVar("_Item")


def settings(sample: Sample) -> frozenset[str]:
    """The settings that distinguish a sample from others of the same rule."""
    inputs = sample.named_leaves
    result = {f"element type {leaf.type.dtype}" for leaf in inputs}
    result |= {f"rank {len(leaf.type.shape)}" for leaf in inputs}
    result |= {f"{leaf.name} is a scalar" for leaf in inputs if not leaf.type.shape}
    result |= {f"size {size}" for leaf in inputs for size in leaf.type.shape if size < 3}
    if inputs:
        first = inputs[0].type.shape
        alike = "".join("<=>"[1 + (len(i.type.shape) > len(first)) - (len(i.type.shape) < len(first))] for i in inputs)
        result.add(f"ranks {alike}")
        result.add(f"equal shapes {sum(i.type.shape == first for i in inputs)}")
    if sample.symbols:
        result |= {"symbolic sizes", *symbolic_settings(sample)}
    if sample.is_long:
        result.add("a long axis")
    result |= {f"empty {term.head}" for term, type_ in sample.types.items() if 0 in type_.shape}
    result |= _settings_of_terms(sample, _settings_of_term) | number_settings(sample)
    if any(leaf.type.dtype.startswith("int") for leaf in inputs):
        result |= {f"signed {each}" for each in result if _FLAG.fullmatch(each)}
    return frozenset(result | set(_cut_short(sample)) | set(_slices_of_broadcasts(sample)))


def number_settings(sample: Sample) -> frozenset[str]:
    """Which kinds of numbers its constants and float attributes are; none if it has no element to compute with them."""
    return frozenset() if sample.is_empty else _settings_of_terms(sample, _numbers_of_term)


def _settings_of_terms(sample: Sample, settings_of: Callable[[Term | Leaf, str], Iterator[str]]) -> frozenset[str]:
    """The settings of all leaves and terms; terms of one kind are numbered."""
    seen: Counter[str] = Counter()
    result: set[str] = set()
    for term in dict.fromkeys(sample.subterms):
        place = ""
        if isinstance(term, Term):
            place = f" {seen[term.head]}" if seen[term.head] else ""
            seen[term.head] += 1
        result |= set(settings_of(term, place))
    return frozenset(result)


_FLAG = re.compile(r"\w+( \d+)?\.\w+ [01]")
"""An attribute that is off or on. Two flags of operators whose results depend on signs show a fault only together, and
only for numbers of either sign."""


def symbolic_settings(sample: Sample) -> frozenset[str]:
    """Which axes have a symbolic size, alone or with others; whether the size in its place is 0, 1 or more, and so for
    the known sizes beside it; and which leaves have no symbolic size."""
    shapes = {leaf.name: leaf.type.shape for leaf in sample.leaves}
    result = {
        f"{'symbolic' if (name, axis) in sample.open_axes else 'known'} {name} {axis} of size {min(size, 2)}"
        for name in dict(sample.open_axes)
        for axis, size in enumerate(shapes[name])
    }
    known = (leaf for leaf in sample.leaves if leaf.name not in {name for name, _ in sample.open_axes})
    result |= {f"{leaf.kind} {leaf.name} of known sizes" for leaf in known}
    result.add("one symbolic size" if len(sample.symbols) == 1 else "several symbolic sizes")
    return frozenset({*result, f"symbols around {max(sample.symbols, default=0)}"})


def _cut_short(sample: Sample) -> Iterator[str]:
    """Which Slices end before their axis does: only these show whether a rule forgets an end."""
    slices = [term for term in sample.subterms if isinstance(term, Term) and term.head == "Slice"]
    for place, term in enumerate(slices):
        operand, result = sample.type_of(term.arguments[0]), sample.type_of(term)
        _, starts, ends, axes, steps = term.arguments
        if operand is None or result is None or not (isinstance(starts, tuple) and isinstance(axes, tuple)):
            continue
        assert isinstance(ends, tuple)
        assert isinstance(steps, tuple)
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
            size = operand.shape[axis]
            begin = max(0, start + size if start < 0 else start)
            if step > 0 and result.shape[axis] < -(-(size - begin) // step):
                yield f"Slice {place} cut short"
            if step > 0 and end > size:
                yield f"Slice {place} ends behind its axis"


def _slices_of_broadcasts(sample: Sample) -> Iterator[str]:
    """Where Slices begin on an axis that an Expand below them keeps, or widens from one element."""
    slices = [term for term in sample.subterms if isinstance(term, Term) and term.head == "Slice"]
    for place, term in enumerate(slices):
        expand, starts, _, axes, _ = term.arguments
        if not (isinstance(expand, Term) and isinstance(starts, tuple) and isinstance(axes, tuple)):
            continue
        before, after = sample.type_of(expand.arguments[0]), sample.type_of(expand)
        if expand.head != "Expand" or before is None or after is None:
            continue
        added = len(after.shape) - len(before.shape)
        for start, axis in zip(starts, axes, strict=True):
            kept = axis >= added and before.shape[axis - added] == after.shape[axis]
            begin = "from its first element" if start in (0, -after.shape[axis]) else "from a later element"
            yield f"Slice {place} of a {'kept' if kept else 'widened'} axis {begin}"


def _settings_of_term(term: Term | Leaf, place: str) -> Iterator[str]:
    """The settings of a leaf, or of a term: its attributes but for floats, and which optional operands it has. `place`
    distinguishes it from others of its kind."""
    if isinstance(term, Leaf):
        if term.kind not in ("Var", "Full"):
            yield f"{term.kind} {term.name}"
        return
    arguments = _named_arguments(term)
    for name, argument in arguments.items():
        if not isinstance(argument, (Term, Leaf, float)):
            yield from (f"{term.head}{place}.{name} {value}" for value in _value_classes(argument))
        elif isinstance(argument, Leaf) and argument.kind == "Absent":
            yield f"{term.head}{place} without {name}"
    permutation = arguments.get("perm")
    if isinstance(permutation, tuple):
        own = all(permutation[axis] == position for position, axis in enumerate(permutation))
        yield f"{term.head}{place} by {'its own' if own else 'another'} inverse"
    if "strides" in arguments:
        yield f"{term.head}{place} {_window_class(arguments)}"


def _numbers_of_term(term: Term | Leaf, place: str) -> Iterator[str]:
    """The kind of number that a leaf is, or each of the float attributes of a term."""
    if isinstance(term, Term):
        numbers = ((name, number) for name, number in _named_arguments(term).items() if isinstance(number, float))
        yield from (f"{term.head}{place}.{name} {_number_class(number)}" for name, number in numbers)
    elif term.kind == "Full" and term.type.value is not None:
        size = " near the end of its type" if _is_near_end(term.type.value, term.type.dtype) else ""
        yield f"{term.name} {_number_class(term.type.value)}{size}"


def _named_arguments(term: Term) -> dict[str, Argument]:
    """The arguments of a term by name; of one that no operator makes, such as an output, the last one alone."""
    operator = OPERATORS.get(term.head)
    if operator is None:
        return {"": term.arguments[-1]}
    return dict(zip((a.name for a in operator.arguments), term.arguments, strict=True))


def _window_class(arguments: Mapping[str, Argument]) -> str:
    """How far the windows of an operator reach, and whether they overlap: a rule that computes wrongly how far windows
    of windows reach is only seen if both are larger than one element."""
    names = ("kernel_shape", "strides", "dilations")
    kernel, strides, dilations = (v if isinstance(v, tuple) else () for v in map(arguments.get, names))
    reach = max((d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)), default=1)
    stride = max(strides, default=1)
    relation = "overlapping" if reach > stride else "adjacent" if reach == stride else "sparse"
    return f"windows {relation if reach > 1 else 'of one'}, {'moved on' if stride > 1 else 'at every position'}"


def _is_near_end(value: float, dtype: str) -> bool:
    """Whether a constant is so large that the product of two such constants leaves the type, or the range in which
    float64 holds all whole numbers."""
    return "int" in dtype and abs(value) >= min(np.iinfo(dtype).max // 4, _LARGE_FACTOR)


_LARGE_FACTOR = 2**26
"""float64 does not hold all products of two whole numbers from about here on, since it has 53 bits."""


def _value_classes(value: Value) -> Iterator[str]:
    if isinstance(value, tuple):
        yield f"of {len(value)}"
        yield from {_number_class(v) for v in value}
        if value and value != tuple(value[:1] * len(value)):
            yield "unequal"
    elif not isinstance(value, str):
        yield _number_class(value)
    elif value.startswith("{"):  # the configuration of a Resize
        for name, item in json.loads(value).items():
            numbers = [] if isinstance(item, str) else item if isinstance(item, list) else [item]
            yield f"{name} {item}" if isinstance(item, str) else name
            yield from {f"{name} {n if isinstance(n, str) else _number_class(n)}" for n in numbers}
    else:
        yield value


def _number_class(value: float) -> str:
    if value in (-1, 0, 1):
        return str(int(value))
    if value < 0:
        return "below -1" if value < -1 else "between -1 and 0"
    return "between 0 and 1" if value < 1 else "above 1"


def choose_various(
    items: Sequence[_Item],
    settings_of: Sequence[frozenset[str]],
    count: int,
    needed: Sequence[frozenset[str]] = (),
) -> list[_Item]:
    """Choose up to `count` items: as few as have all the `needed` settings that any has, and then each time the one
    that adds the most pairs of settings to those before it. `needed` has these settings by item."""
    pairs = _pairs(settings_of)
    first = _covering(needed, pairs, count)
    chosen = [items[place] for place in first]
    seen = 0
    for place in first:
        seen |= pairs[place]
    # an item never adds more than it did before: old counts are upper bounds, and few have to be computed again
    bounds = [(-own.bit_count(), place) for place, own in enumerate(pairs) if place not in first]
    heapify(bounds)
    while bounds and len(chosen) < count:
        _, place = heappop(bounds)
        now = (-(pairs[place] & ~seen).bit_count(), place)
        if bounds and now > bounds[0]:
            heappush(bounds, now)
        else:
            seen |= pairs[place]
            chosen.append(items[place])
    return chosen


def _covering(needed: Sequence[frozenset[str]], pairs: Sequence[int], count: int) -> list[int]:
    """Places of up to `count` items that have all needed settings, each the one that adds the most of them, and of
    such ones the one with the most pairs of settings."""
    missing = frozenset[str]().union(*needed)
    chosen: list[int] = []
    while missing and len(chosen) < count:
        place = max(range(len(needed)), key=lambda each: (len(needed[each] & missing), pairs[each].bit_count()))
        missing -= needed[place]
        chosen.append(place)
    return chosen


def _pairs(settings_of: Sequence[frozenset[str]]) -> list[int]:
    """For each set of settings a number whose bits stand for its settings and for pairs of them."""
    numbers = {setting: number for number, setting in enumerate(sorted(frozenset[str]().union(*settings_of)))}
    result = []
    for each in settings_of:
        own = [numbers[setting] for setting in each]
        bits = sum(1 << number for number in own)
        result.append(sum((bits >> number) << (number * (len(numbers) + 1)) for number in own))
    return result


def missing_settings(samples: Sequence[Sample], met: frozenset[str], sound: str) -> tuple[str, ...]:
    """The element types, ranks, sizes and settings that the operators of a rule admit and no sample of it has.

    `met` are the settings that its samples have.
    """
    if not samples:
        return ()
    heads = set[str]().union(*(sample.heads for sample in samples))
    types = [t for t in TYPES if all(t in result_types(head) for head in heads if result_types(head))]
    groups = {
        "element type": [t for t in types if f"element type {t}" not in met],
        "rank": [str(r) for r in RANKS if f"rank {r}" not in met],
        "size": [size for size in ("0", "1") if f"size {size}" not in met],
    }
    missing = [f"{name} {', '.join(of)}" for name, of in groups.items() if of]
    missing += ["symbolic sizes"] if "symbolic sizes" not in met else []
    missing += ["NaN and infinities"] if sound in ("approx", "step") else []
    missing += _missing_numbers(heads, met)
    return tuple(f"never {each}" for each in missing)


def _missing_numbers(heads: set[str], met: frozenset[str]) -> Iterator[str]:
    """The kinds of numbers that a float attribute never was. An attribute of one kind only is left out, because the
    rule may ask for that kind."""
    for head in sorted(heads & OPERATORS.keys()):
        for attribute in OPERATORS[head].attributes:
            had = [n for n in _NUMBERS if f"{head}.{attribute.name} {n}" in met]
            if attribute.kind == "f64" and attribute.name != "epsilon" and len(had) > 1:
                unmet = [n for n in _NUMBERS if n not in had]
                if unmet:
                    yield f"{head}.{attribute.name} {', '.join(unmet)}"
