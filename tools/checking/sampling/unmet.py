"""Why a rule that should fire does not: the first of its conditions that no sample meets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from ....rules import sexpr
from ....rules.records import Rule, conditions, parse_example
from ....rules.sexpr import Node
from .hits import candidates, example_facts, rename_apart, seed
from .left_side import directions
from .samples import left_sides
from .scratch import EgglogPanicError, Scratch

_SAMPLES = 24
"""Samples whose conditions are looked at."""


def describe_unmet(rule: Rule, scratch: Scratch, *, of_example: bool) -> str:
    """Which condition of a rewrite no sample meets together with those before it, or that none has its left side; "" if
    that is not known. The samples are those of its left side, or of its example."""
    form = sexpr.read(rule.text).forms[0]
    random = Random(seed(rule))
    described = (left_sides(facts, random) for facts in _descriptions(rule, of_example))
    drawn = ((ways, candidates(ways, random, _SAMPLES)) for ways in described if ways)
    ways, samples = next(filter(lambda each: each[1], drawn), ([], []))
    if form.head == "rule" or not samples:
        return ""
    if head := ways[0].operator_of_constants():
        return f"{head} of constants is a constant, and no rule sees what makes one"
    left, asked = form.items[1], conditions(form)
    for count in range(len(asked) + 1):
        # Neg has the shape and the type of its operand; that it is made shows that the conditions hold
        when = " ".join(map(str, asked[:count]))
        text = f'(rewrite {left} (Neg {left}) :when ({when}) :ruleset explore :name "rule")'
        try:
            if not any(scratch.run(text, "explore", samples)):
                return f"{asked[count - 1]} does not hold" if count else f"there is no {left}"
        except EgglogPanicError:
            return ""
    return ""


def _descriptions(rule: Rule, of_example: bool) -> Iterator[Sequence[Node]]:
    """The facts about samples: with all conditions of the rule, which may be more than can be drawn, then without."""
    if of_example:
        yield from example_facts(rule)
        yield tuple(map(rename_apart, parse_example(rule.example).lefts))
    else:
        yield from directions(rule)
        yield directions(rule)[0][:1]
