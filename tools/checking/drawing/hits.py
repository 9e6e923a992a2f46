"""Samples on which a rule fires: generated from its left side, or from the left side of its example."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from ....rules import sexpr
from ....rules.commute import orders, variables
from ....rules.records import Rule, parse_example
from ....rules.sexpr import Atom, Form, Node
from ..verdict import WANTED
from .coverage import settings, various
from .left_side import Contradiction, LeftSide, directions, names_operators, rename
from .samples import Sample, patterns, sample
from .scratch import Conflict, Fired, Scratch
from .symbolic_sizes import instances, with_symbols
from .terms import leaves

_ENOUGH = 4
"""As many will do where they are hard to find."""
_BATCH = 96
"""Samples of a round; from a first round those are kept that are the most various."""
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


def hits(rule: Rule, scratch: Scratch, wanted: int = WANTED) -> list[list[Hit]]:
    """For each direction of a rule `wanted` samples that made it fire."""
    every = [facts if names_operators(facts) else next(example_facts(rule), facts) for _, facts in directions(rule)]
    return [_hits(rule, facts, scratch, Random(seed(rule) + i), wanted) for i, facts in enumerate(every)]


def _hits(
    rule: Rule, facts: Sequence[Node], scratch: Scratch, random: Random, wanted: int, symbolic: bool = True
) -> list[Hit]:
    found: list[Hit] = []
    ways = patterns(facts, random)
    for attempt in range(_ROUNDS if ways else 0):
        samples = _candidates(ways, random, min(max(_BATCH, 2 * wanted), (4 * wanted) << attempt), symbolic)
        outcomes = scratch.run(rule.text, rule.ruleset, samples) if samples else []
        for candidate, outcome in zip(samples, outcomes, strict=True):
            found += _instances(candidate, outcome, random) if outcome is not None else ()
        enough = wanted if attempt < 1 else min(wanted, _ENOUGH) if attempt < 6 else 1
        if len(found) >= enough or any(isinstance(hit.outcome, Conflict) for hit in found):
            break
    floats = [hit for hit in found if _has_floats(hit.sample)]
    first = various(floats, [settings(hit.sample) for hit in floats], -(-wanted // 2))
    kept = set(map(id, first))
    rest = [hit for hit in found if id(hit) not in kept]
    return [*first, *various(rest, [settings(hit.sample) for hit in rest], wanted - len(first))]


def _has_floats(sample: Sample) -> bool:
    """Whether there are elements that could be NaN or infinite: half of all samples are to be such."""
    return not sample.is_empty and any(leaf.type.dtype == "float32" for root in sample.roots for leaf in leaves(root))


def _instances(sample: Sample, outcome: Fired | Conflict, random: Random) -> Iterator[Hit]:
    if isinstance(outcome, Conflict) or not sample.symbols:
        yield Hit(sample, outcome)
    else:
        yield from (Hit(*each) for each in instances(sample, outcome, random))


def _candidates(
    ways: Sequence[tuple[LeftSide, tuple[float, ...]]], random: Random, most: int, symbolic: bool
) -> list[Sample]:
    found: dict[object, Sample] = {}
    for attempt in range(_ATTEMPTS):
        made = sample(*ways[attempt % len(ways)], random, floating=attempt % 2 == 0)
        if made is not None and symbolic and attempt % 5 == 4:
            made = with_symbols(made, random)
        if made is not None:
            found.setdefault(made.roots, made)
            if len(found) >= most:
                break
    return list(found.values())


def example_hits(rule: Rule, scratch: Scratch) -> list[Hit]:
    """Samples of the left side of the rule's example that made it fire, with the sizes that the example writes."""
    random = Random(seed(rule) - 1)
    for facts in example_facts(rule):
        found = _hits(rule, facts, scratch, random, wanted=2, symbolic=False)
        if found:
            return found
    return []


def example_facts(rule: Rule) -> Iterator[tuple[Node, ...]]:
    """The facts of the rule, with the left side of the example for the term that the rule rewrites.

    A rule without operators has to unite both sides of its example by what the analyses know of them.
    """
    example = parse_example(rule.example)
    lefts = [_apart(left) for left in example.lefts]
    for _, facts in directions(rule):
        if not names_operators(facts):
            yield (*lefts, _apart(example.right))
            continue
        for anchored in _anchored(rule, facts, lefts):
            try:
                LeftSide().add_facts(anchored)
            except Contradiction:
                continue
            yield anchored


def _apart(node: Node) -> Node:
    """The example with names of its own, for its ``x`` is not the rule's."""
    names = {v.text: f"{v.text}'" for v in variables(node)}
    return rename(node, names)


def _anchored(rule: Rule, facts: Sequence[Node], lefts: Sequence[Node]) -> Iterator[tuple[Node, ...]]:
    form = sexpr.read(rule.text).forms[0]
    if form.head != "rule":
        for first in orders(facts[0], frozenset(rule.commutes)):
            yield (Form((Atom("="), first, lefts[0])), *facts[1:])
        return
    actions = form.items[2].items if isinstance(form.items[2], Form) else ()
    united = [a.items[1] for a in actions if isinstance(a, Form) and a.head == "union"]
    yield (*facts, *(Form((Atom("="), name, left)) for name, left in zip(united, lefts, strict=False)))
