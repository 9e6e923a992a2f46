"""The rules that gave values of a model another form."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from .cone import Rewriting, follow_forms
from .explanation import Unexplained, rules_on_the_way
from .session import OutOfTime

_SHARE = 0.4
"""Share of the remaining time that one value may take: a hard one leaves some for the others."""


@dataclass(frozen=True)
class RulesOfValue:
    """The rules on the way from one form of a value to the other, in their order.

    `like` is the value for which they were found, "" if it is this one: values whose forms have the same operators are
    explained once, the most frequent forms first.
    """

    rules: tuple[str, ...]
    like: str = ""

    def __str__(self) -> str:
        """``a, b``, or ``a, b (as for y, which has the same operators)``."""
        return ", ".join(self.rules) + (f" (as for {self.like}, which has the same operators)" if self.like else "")


def find_rules(rewriting: Rewriting, seconds: float) -> Mapping[str, RulesOfValue]:
    """The rules of each value that the result has in another form, as far as they are found within the seconds."""
    alike: dict[object, list[str]] = {}
    for name, term in rewriting.rewritten_values.items():
        alike.setdefault(_operators(term, rewriting), []).append(name)
    deadline = time.monotonic() + seconds
    found: dict[str, RulesOfValue] = {}
    for first, *others in sorted(alike.values(), key=len, reverse=True):
        left = deadline - time.monotonic()
        if left <= 0:
            break
        with suppress(Unexplained, OutOfTime):
            rules = rules_on_the_way(rewriting.rewritten_values[first], rewriting, _SHARE * left)
            found |= {first: RulesOfValue(rules)} | {name: RulesOfValue(rules, first) for name in others}
    return found


def _operators(term: int, rewriting: Rewriting) -> object:
    """The operators of both forms of a value, with their numbers."""
    forms = follow_forms(term, rewriting)
    terms, owners = rewriting.encoding.terms, rewriting.egraph.terms
    original: Counter[str] = Counter()
    pending, seen = [term], {term}
    while pending:
        node = terms[pending.pop()]
        original[node.op] += 1
        new = {c for c in node.children if c not in seen and owners[c] not in forms.boundary}
        seen |= new
        pending += new
    chosen = Counter(node.op for node in forms.chosen.values())
    return frozenset(original.items()), frozenset(chosen.items())
