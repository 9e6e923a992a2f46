"""What samples are about: element types, ranks, sizes, attributes; which to keep, and what none of them reached.

Faults of two settings together are common, of three rare (Kuhn, Wallace and Gallo, IEEE TSE 2004): samples are kept so
that every pair of settings that was met stays.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import TypeVar

from ....ir.operators import OPERATORS
from .elements import named_leaves
from .left_side import Value
from .samples import Sample
from .terms import Argument, Leaf, Term
from .types import TYPES, admitted

RANKS = range(6)
_NUMBERS = ("below -1", "-1", "between -1 and 0", "0", "between 0 and 1", "1", "above 1")
_Kept = TypeVar("_Kept")


def settings(sample: Sample) -> frozenset[str]:
    """What distinguishes a sample from others of the same rule."""
    known = list(named_leaves(sample))
    found = {f"element type {leaf.type.dtype}" for leaf in known}
    found |= {f"rank {len(leaf.type.shape)}" for leaf in known}
    found |= {f"size {size}" for leaf in known for size in leaf.type.shape if size < 3}
    if known:
        first = known[0].type.shape
        alike = "".join("<=>"[1 + (len(k.type.shape) > len(first)) - (len(k.type.shape) < len(first))] for k in known)
        found.add(f"ranks {alike}")
        found.add(f"equal shapes {sum(k.type.shape == first for k in known)}")
    if sample.symbols:
        found.add("symbolic sizes")
    found |= {f"empty {term.head}" for term, type_ in sample.made.items() if 0 in type_.shape}
    for root in sample.roots:
        found |= set(_of_term(root))
    return frozenset(found)


def _of_term(term: Argument) -> Iterator[str]:
    if isinstance(term, Leaf):
        if term.kind == "Full" and term.type.value is not None:
            yield f"a constant {_number(term.type.value)}"
        elif term.kind != "Var":
            yield f"{term.kind} {term.name}"
    elif isinstance(term, Term):
        operator = OPERATORS.get(term.head)
        names = [a.name for a in operator.arguments] if operator else [""] * len(term.arguments)
        for name, argument in zip(names, term.arguments, strict=True):
            if isinstance(argument, (Term, Leaf)):
                yield from _of_term(argument)
            else:
                yield from (f"{term.head}.{name} {value}" for value in _classes(argument))


def _classes(value: Value) -> Iterator[str]:
    if isinstance(value, tuple):
        yield f"of {len(value)}"
        yield from {_number(v) for v in value}
        if value and value != tuple(value[:1] * len(value)):
            yield "unequal"
    elif isinstance(value, str):
        yield from (f"{v}" for v in _configured(value))
    else:
        yield _number(value)


def _configured(text: str) -> Iterator[str]:
    if not text.startswith("{"):
        yield text
        return
    for name, value in json.loads(text).items():
        yield f"{name} {value}" if isinstance(value, str) else name


def _number(value: float) -> str:
    if value in (-1, 0, 1):
        return str(int(value))
    if value < 0:
        return "below -1" if value < -1 else "between -1 and 0"
    return "between 0 and 1" if value < 1 else "above 1"


def various(found: Sequence[_Kept], of: Sequence[frozenset[str]], wanted: int) -> list[_Kept]:
    """So many of them that meet, together, as many pairs of settings as one after the other can."""
    pairs = [frozenset((*((s,) for s in each), *combinations(sorted(each), 2))) for each in of]
    left, seen = list(range(len(found))), set[tuple[str, ...]]()
    kept: list[_Kept] = []
    while left and len(kept) < wanted:
        best = max(left, key=lambda i: (len(pairs[i] - seen), -i))
        left.remove(best)
        seen |= pairs[best]
        kept.append(found[best])
    return kept


def never_met(samples: Sequence[Sample], sound: str) -> tuple[str, ...]:
    """The element types that the operators of a rule admit, the ranks, sizes and settings that no sample of it had."""
    if not samples:
        return ()
    met = frozenset[str]().union(*map(settings, samples))
    heads = {term.head for sample in samples for root in sample.roots for term in _terms(root)}
    types = [t for t in TYPES if all(t in admitted(head) for head in heads if admitted(head))]
    groups = {
        "element type": [t for t in types if f"element type {t}" not in met],
        "rank": [str(r) for r in RANKS if f"rank {r}" not in met],
        "size": [size for size in ("0", "1") if f"size {size}" not in met],
    }
    missing = [f"{name} {', '.join(of)}" for name, of in groups.items() if of]
    missing += ["symbolic sizes"] if "symbolic sizes" not in met else []
    missing += ["NaN and infinities"] if sound == "approx" else []
    missing += [f"{head}.{name} {', '.join(of)}" for head, name, of in _unmet_numbers(heads, met)]
    return tuple(f"never {each}" for each in missing)


def _unmet_numbers(heads: set[str], met: frozenset[str]) -> Iterator[tuple[str, str, list[str]]]:
    """Kinds of numbers that a float attribute never was, where it was more than one: else the rule asks for that."""
    for head in sorted(heads & OPERATORS.keys()):
        for attribute in OPERATORS[head].attributes:
            had = [n for n in _NUMBERS if f"{head}.{attribute.name} {n}" in met]
            if attribute.kind == "f64" and attribute.name != "epsilon" and len(had) > 1:
                unmet = [n for n in _NUMBERS if n not in had]
                if unmet:
                    yield head, attribute.name, unmet


def _terms(term: Argument) -> Iterator[Term]:
    if isinstance(term, Term):
        yield term
        for argument in term.arguments:
            yield from _terms(argument)
