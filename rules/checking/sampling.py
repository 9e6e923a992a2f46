"""Samples on which a rule fires: generated from its left side, or from the left side of its example."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from random import Random

from .. import sexpr
from ..commute import orders, variables
from ..records import Rule
from ..sexpr import Atom, Form, Node
from .generate import Sample, patterns, sample
from .pattern import Contradiction, Pattern, directions, makes, renamed
from .scratch import Conflict, Fired, Scratch
from .terms import leaves

WANTED = 12
"""Samples to find for each direction of a rule."""
_ENOUGH = 4
"""As many will do where they are hard to find."""
_BATCH = 48
"""Samples of a round, at most; a first round has a few for each that is wanted."""
_ROUNDS = 24
_ATTEMPTS = 400
"""In each round; a sample takes about half a millisecond."""


@dataclass(frozen=True)
class Hit:
    """A sample and what the rule made of it."""

    sample: Sample
    outcome: Fired | Conflict


def seed(rule: Rule) -> int:
    """The same every run, another for every rule."""
    return int.from_bytes(hashlib.sha256(rule.text.encode()).digest()[:6], "big")


def hits(rule: Rule, scratch: Scratch) -> list[list[Hit]]:
    """For each direction of a rule the samples that made it fire."""
    every = [facts if makes(facts) else next(example_facts(rule), facts) for _, facts in directions(rule)]
    return [_hits(rule, facts, scratch, Random(seed(rule) + i)) for i, facts in enumerate(every)]


def _hits(rule: Rule, facts: Sequence[Node], scratch: Scratch, random: Random, wanted: int = WANTED) -> list[Hit]:
    found: list[Hit] = []
    ways = patterns(facts, random)
    for attempt in range(_ROUNDS if ways else 0):
        samples = _candidates(ways, random, min(_BATCH, (4 * wanted) << attempt))
        outcomes = scratch.run(rule.text, rule.ruleset, samples) if samples else []
        found += [Hit(s, o) for s, o in zip(samples, outcomes, strict=True) if o is not None]
        enough = wanted if attempt < 1 else min(wanted, _ENOUGH) if attempt < 6 else 1
        if len(found) >= enough:
            break
    return _various(found)[:wanted]


def _various(found: Sequence[Hit]) -> list[Hit]:
    """The same samples, in turn those whose first leaf has the rank of the others, a lower one, a higher one."""
    kinds: dict[tuple[int, ...], list[Hit]] = {}
    for hit in found:
        ranks = [len(leaf.type.shape) for root in hit.sample.roots for leaf in leaves(root)]
        kinds.setdefault(tuple((r > ranks[0]) - (r < ranks[0]) for r in ranks), []).append(hit)
    return [hit for turn in zip_longest(*kinds.values()) for hit in turn if hit is not None]


def _candidates(ways: Sequence[tuple[Pattern, tuple[float, ...]]], random: Random, most: int) -> list[Sample]:
    found: dict[object, Sample] = {}
    for attempt in range(_ATTEMPTS):
        made = sample(*ways[attempt % len(ways)], random, floating=attempt % 4 != 0)
        if made is not None:
            found.setdefault(made.roots, made)
            if len(found) >= most:
                break
    return list(found.values())


def example_hits(rule: Rule, scratch: Scratch) -> list[Hit]:
    """Samples of the left side of the rule's example that made it fire."""
    random = Random(seed(rule) - 1)
    for facts in example_facts(rule):
        found = _hits(rule, facts, scratch, random, wanted=2)
        if found:
            return found
    return []


def example_facts(rule: Rule) -> Iterator[tuple[Node, ...]]:
    """The facts of the rule, with the left side of the example for the term that the rule rewrites.

    A rule without operators has to unite both sides of its example by what the analyses know of them.
    """
    written, _, result = rule.example.partition("=>")
    try:
        lefts = [_apart(form) for form in sexpr.read(written).forms]
    except sexpr.SexprError:
        return
    for _, facts in directions(rule):
        if not makes(facts):
            yield (*lefts, *map(_apart, sexpr.read(result).forms))
            continue
        for anchored in _anchored(rule, facts, lefts) if lefts else ():
            try:
                Pattern().add_facts(anchored)
            except Contradiction:
                continue
            yield anchored


def _apart(node: Node) -> Node:
    """The example with names of its own, for its ``x`` is not the rule's."""
    names = {v.text: f"{v.text}'" for v in variables(node)}
    return renamed(node, names)


def _anchored(rule: Rule, facts: Sequence[Node], lefts: Sequence[Node]) -> Iterator[tuple[Node, ...]]:
    form = sexpr.read(rule.text).forms[0]
    if form.head != "rule":
        for first in orders(facts[0], frozenset(rule.commutes)):
            yield (Form((Atom("="), first, lefts[0])), *facts[1:])
        return
    actions = form.items[2].items if isinstance(form.items[2], Form) else ()
    united = [a.items[1] for a in actions if isinstance(a, Form) and a.head == "union"]
    yield (*facts, *(Form((Atom("="), name, left)) for name, left in zip(united, lefts, strict=False)))
