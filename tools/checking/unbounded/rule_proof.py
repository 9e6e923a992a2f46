"""Proofs of whole rules for every rank and size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, product
from typing import Any

import z3

from ....ir.operators import OPERATORS, Unsupported
from ....rules import sexpr
from ....rules.commute import is_variable, variables
from ....rules.records import Rule, conditions
from ....rules.sexpr import Atom, Form, Node
from ..proving.solver import forget_past
from ..sampling.left_side import derivations, substitute
from .comparison import ElementComparison
from .logic import conjunction, implication
from .reading import Reading, UnknownVariable
from .relations import RELATIONS
from .tensors import NoMeaning, Tensor
from .world import GaveUp, Undecided, Unproved, World

EVERY_SHAPE = "every rank and size"
"""The scope of a rule that is proved here."""
_FLAGS = ("keepdims", "transA", "transB", "fmod")
"""Attributes that are 0 or 1: a rule that leaves one open is proved for both values."""
_MOST_DECISIONS = 3
"""How often a proof may split into two cases: the time doubles with each."""
_DEPTH = 3
"""How many derivations in a row are undone: a derived fact is replaced by its premises, and so are these."""


@dataclass(frozen=True)
class RuleProof:
    """Whether a rule is proved. If not, `reason` says why; the rule may be right nevertheless.

    `ignored` are facts of the rule without a meaning here, which the proof did not need.
    """

    proved: bool
    reason: str = ""
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True)
class Claim:
    """That under some facts each left term is equal to its right term."""

    facts: tuple[Node, ...]
    pairs: tuple[tuple[Node, Node], ...]


def prove_rule(rule: Rule) -> RuleProof:
    """Try to prove a rule for every rank and all sizes."""
    forget_past()
    ignored: dict[str, None] = {}
    try:
        for claim in claims(rule):
            proofs = [
                _prove(Claim(facts, claim.pairs), flags)
                for facts in _alternatives(claim.facts, _DEPTH, count())
                for flags in _flags((*facts, *(n for pair in claim.pairs for n in pair)))
            ]
            possible = [proof for proof in proofs if proof is not None]
            if not possible:
                raise Unproved("its conditions contradict each other, as far as they are understood")
            ignored |= dict.fromkeys(fact for proof in possible for fact in proof)
    except (Unproved, NoMeaning) as error:
        return RuleProof(False, str(error))
    except UnknownVariable as error:
        return RuleProof(False, f"nothing says what {error} is")
    except Unsupported as error:
        return RuleProof(False, str(error))
    except z3.Z3Exception as error:
        return RuleProof(False, f"z3 does not take the question: {error}")
    except GaveUp:
        return RuleProof(False, "the proof takes too many questions")
    return RuleProof(True, ignored=tuple(ignored))


def claims(rule: Rule) -> list[Claim]:
    """The claims of a rule: one for each direction."""
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
    pairs = []
    matched = {str(node) for node in sexpr.walk(facts)}
    actions_of_rule = [action for action in actions.items if isinstance(action, Form)]
    for action in actions_of_rule:
        if action.head == "union":
            left, right = sorted(action.items[1:3], key=lambda side: str(side) not in matched)
            if str(left) not in matched:
                raise NoMeaning("the rule makes both sides")
            pairs.append((left, right))
        elif action.head not in ("let", "subsume") and not action.head.endswith("-demand"):
            raise NoMeaning(f"the rule claims more than what it makes equal: {action.head}")
    if not pairs:
        raise NoMeaning("the rule makes nothing equal")
    if any(action.head == "let" for action in actions_of_rule):
        raise NoMeaning("the rule names parts of its right side")
    return Claim(facts.items, tuple(pairs))


def _flags(nodes: Sequence[Node]) -> Iterator[dict[str, int]]:
    """Every choice of 0 or 1 for the variables that stand for flags."""
    names: dict[str, None] = {}
    for node in (n for whole in nodes for n in sexpr.walk(whole)):
        if isinstance(node, Form) and node.head in OPERATORS:
            for argument, item in zip(OPERATORS[node.head].arguments, node.items[1:], strict=False):
                if argument.name in _FLAGS and isinstance(item, Atom) and is_variable(item):
                    names[item.text] = None
    for values in product((0, 1), repeat=len(names)):
        yield dict(zip(names, values, strict=True))


def _prove(claim: Claim, flags: dict[str, int], decisions: tuple[bool, ...] = ()) -> dict[str, str] | None:
    """Prove a claim, in two cases if needed, and return the ignored facts with the reasons; None if the facts
    contradict each other in all cases. Raises Unproved, NoMeaning or UnknownVariable."""
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
    reading.side.given = False
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
            lambda at: implication(
                conjunction(at >= 0, at < inside), conjunction(index(at) >= 0, index(at) < left.size(at))
            ),
        )
        if not ElementComparison(reading).equal(left.element(index), right.element(index)):
            raise Unproved("the elements may differ")


# --- relations that the analyses derive, replaced by their premises


def _alternatives(facts: Sequence[Node], depth: int, suffixes: Iterator[int]) -> Iterator[tuple[Node, ...]]:
    """The facts with each derived one replaced by its premises: once for every combination of derivations. Variables of
    premises get names by the `suffixes`."""
    for choice in product(*[list(_derivations_of(fact, depth, suffixes)) for fact in facts]):
        yield tuple(fact for part in choice for fact in part)


def _derivations_of(fact: Node, depth: int, suffixes: Iterator[int]) -> Iterator[tuple[Node, ...]]:
    if (
        not isinstance(fact, Form)
        or fact.head in RELATIONS
        or fact.head not in derivations()
        or fact.head.endswith("-demand")
        or not depth
    ):
        yield (fact,)
        return
    for derivation in derivations()[fact.head]:
        suffix = next(suffixes)
        nodes = (*derivation.premises, derivation.conclusion)
        names: dict[str, Node] = {v.text: Atom(f"{v.text}.{suffix}") for node in nodes for v in variables(node)}
        equations = [
            Form((Atom("="), substitute(own, names), item))
            for own, item in zip(derivation.conclusion.items[1:], fact.items[1:], strict=True)
        ]
        premises = [substitute(premise, names) for premise in derivation.premises]
        yield from _alternatives((*equations, *premises), depth - 1, suffixes)
