"""Proofs of whole rules for every rank and size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import z3

from ....ir.operators import OPERATORS, Unsupported
from ....rules import sexpr
from ....rules.commute import is_variable
from ....rules.records import Rule, conditions
from ....rules.sexpr import Atom, Form, Node
from .comparison import Comparison
from .derived import alternatives
from .reading import Reading, Unbound
from .tensors import NoMeaning, Tensor
from .world import GaveUp, Undecided, Unproved, World

EVERY_SHAPE = "every rank and size"
"""The scope of a rule that is proved here."""
_FLAGS = ("keepdims", "transA", "transB", "fmod")
"""Attributes that are 0 or 1: a rule about all of them is proved for each."""

_MOST_DECISIONS = 3
"""How often a proof may go on differently in two cases."""


@dataclass(frozen=True)
class Outcome:
    """Whether a rule is proved, or `reason`: why it is not, which says nothing about whether it is right.

    `ignored`: facts of the rule that the proof did not need and does not know.
    """

    proved: bool
    reason: str = ""
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True)
class Claim:
    """Under some facts, the tensors of each pair are equal."""

    facts: tuple[Node, ...]
    pairs: tuple[tuple[Node, Node], ...]


def prove_rule(rule: Rule) -> Outcome:
    """Prove a rule for every rank and all sizes, if that is in reach."""
    ignored: dict[str, None] = {}
    try:
        for claim in claims(rule):
            ways = [
                _prove(Claim(facts, claim.pairs), flags)
                for facts in alternatives(claim.facts)
                for flags in _flags((*facts, *(n for pair in claim.pairs for n in pair)))
            ]
            possible = [way for way in ways if way is not None]
            if not possible:
                raise Unproved("its conditions contradict each other, as far as they are understood")
            ignored |= dict.fromkeys(fact for way in possible for fact in way)
    except (Unproved, NoMeaning) as error:
        return Outcome(False, str(error))
    except Unbound as error:
        return Outcome(False, f"nothing says what {error} is")
    except Unsupported as error:
        return Outcome(False, str(error))
    except z3.Z3Exception as error:
        return Outcome(False, f"z3 does not take the question: {error}")
    except GaveUp:
        return Outcome(False, "the proof takes too many questions")
    return Outcome(True, ignored=tuple(ignored))


def claims(rule: Rule) -> list[Claim]:
    """What a rule says: one claim for each direction."""
    form = sexpr.read(rule.text).forms[0]
    if form.head == "rule":
        return [_claim_of_actions(form)]
    left, right = form.items[1:3]
    asked = conditions(form)
    both = [(left, right), (right, left)] if form.head == "birewrite" else [(left, right)]
    return [Claim((one, *asked), ((one, other),)) for one, other in both]


def _claim_of_actions(form: Form) -> Claim:
    facts, actions = form.items[1:3]
    assert isinstance(facts, Form)
    assert isinstance(actions, Form)
    definitions = []
    pairs = []
    known = {str(node) for node in sexpr.walk(facts)}
    for action in actions.items:
        if not isinstance(action, Form):
            continue
        if action.head == "let":
            definitions.append(Form((Atom("="), *action.items[1:])))
        elif action.head == "union":
            left, right = sorted(action.items[1:3], key=lambda side: str(side) not in known)  # what is made is right
            if str(left) not in known:
                raise NoMeaning("the rule makes both sides")
            pairs.append((left, right))
        elif action.head != "subsume" and not action.head.endswith("-demand"):
            raise NoMeaning(f"the rule claims more than what it makes equal: {action.head}")
    if not pairs:
        raise NoMeaning("the rule makes nothing equal")
    if definitions:
        raise NoMeaning("the rule names parts of its right side")
    return Claim(facts.items, tuple(pairs))


def _flags(nodes: Sequence[Node]) -> Iterator[dict[str, int]]:
    names: dict[str, None] = {}
    for node in (n for whole in nodes for n in sexpr.walk(whole)):
        if isinstance(node, Form) and node.head in OPERATORS:
            for argument, item in zip(OPERATORS[node.head].arguments, node.items[1:], strict=False):
                if argument.name in _FLAGS and isinstance(item, Atom) and is_variable(item):
                    names[item.text] = None
    for values in product((0, 1), repeat=len(names)):
        yield dict(zip(names, values, strict=True))


def _prove(claim: Claim, flags: dict[str, int], decisions: tuple[bool, ...] = ()) -> dict[str, str] | None:
    """The facts that were left out; None where none of the cases can be. Raises Unproved, NoMeaning or Unbound."""
    try:
        return _prove_case(claim, flags, decisions)
    except Undecided:
        if len(decisions) == _MOST_DECISIONS:
            raise Unproved("there are too many cases") from None
    cases = [_prove(claim, flags, (*decisions, value)) for value in (True, False)]
    possible = [case for case in cases if case is not None]
    return {fact: why for case in possible for fact, why in case.items()} if possible else None


def _prove_case(claim: Claim, flags: dict[str, int], decisions: tuple[bool, ...]) -> dict[str, str] | None:
    world = World(decisions=decisions)
    reading = Reading(world, claim.facts, flags)
    reading.assume()
    lefts = [reading.value(left, "T") for left, _ in claim.pairs]
    if not world.possible():
        return None
    reading.fix_types()
    reading.site.given = False
    for left, (_, right) in zip(lefts, claim.pairs, strict=True):
        _prove_equal(reading, left, reading.value(right, "T"))
    return reading.ignored


def _prove_equal(reading: Reading, left: Any, right: Any) -> None:
    world = reading.world
    if not (isinstance(left, Tensor) and isinstance(right, Tensor)):
        raise NoMeaning("no tensors are compared")
    if left is right:
        return
    if not world.follows(left.rank == right.rank):
        raise Unproved("the ranks may differ")
    if not world.follows_all(left.rank, lambda at: left.size(at) == right.size(at)):
        raise Unproved("the sizes may differ")
    left.type.unite(right.type)
    index = world.function("index")
    with world.supposing():
        inside = left.rank
        world.assume_all(
            lambda at: z3.Implies(z3.And(at >= 0, at < inside), z3.And(index(at) >= 0, index(at) < left.size(at))),
        )
        if not Comparison(reading).equal(left.element(index), right.element(index)):
            raise Unproved("the elements may differ")
