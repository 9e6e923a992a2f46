"""Checks a chain in a fresh e-graph: each rule alone has to turn the one term into the other."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...engine.egraph.facts import Labels, vector, write_facts
from ...engine.egraph.graph import Literal
from ...rules.loader import Rule
from ...rules.sexpr import Atom, Form, read
from ...support.minimal_failure import minimal_failure
from .catalogue import Catalogue
from .chain import Step
from .cone import Cone
from .proof import Proof
from .session import Session
from .signatures import TERM_SORTS

_SUPPORT = "replay.support"
_ROUNDS = 8
"""How often the supporting rules run before each step."""


def replay(
    steps: Sequence[Step], proof: Proof, cone: Cone, catalogue: Catalogue, seconds: float
) -> tuple[Rule, ...] | None:
    """Replay the steps. Returns the fewest rules besides their own that conditions rest on; None where that fails.

    Mostly that is no rule: conditions are facts about operands that the analyses find out. Raises OutOfTime.
    """
    deadline = time.monotonic() + seconds

    def passes(others: Sequence[Rule]) -> bool:
        with Session(deadline - time.monotonic()) as session:
            return _Replay(proof, cone, catalogue, session, others).run(steps)

    if passes(()):
        return ()
    used = {step.pattern.rule for step in steps}
    acting = dict.fromkeys(equation.pattern.rule for equation in proof.equations)
    others = [rule for rule in acting if rule not in used]
    return minimal_failure(passes, others) if passes(others) else None


@dataclass
class _Replay:
    proof: Proof
    cone: Cone
    catalogue: Catalogue
    session: Session
    others: Sequence[Rule]
    labels: Labels = field(default_factory=Labels)
    written: dict[int, str] = field(default_factory=dict)
    """Expressions of the ground terms that the e-graph has by now."""

    def run(self, steps: Sequence[Step]) -> bool:
        """Whether every step holds, and both ends of the chain are equal then."""
        rules = dict.fromkeys(step.pattern.rule for step in steps)
        rulesets = {rule.name: f"replay.{index}" for index, rule in enumerate(rules)}
        self._load({**{rule: rulesets[rule.name] for rule in rules}, **dict.fromkeys(self.others, _SUPPORT)})
        pending = list(steps)
        while pending:
            failed = [s for s in pending if not self._holds(s, rulesets[s.pattern.rule.name])]
            if len(failed) == len(pending):
                return False
            pending = failed
        return self._equal(self.proof.original, self.proof.chosen)

    def _load(self, rulesets: Mapping[Rule, str]) -> None:
        facts, self.labels = write_facts(self.cone.encoding, self.session.folder)
        declared = "".join(f"(ruleset {name})\n" for name in dict.fromkeys((*rulesets.values(), _SUPPORT)))
        moved = "\n".join(_in_ruleset(rule, ruleset) for rule, ruleset in rulesets.items())
        self.session.load(self.catalogue.declarations + declared + moved)
        self.session.load(facts)

    def _holds(self, step: Step, ruleset: str) -> bool:
        """Whether the rule, with the left side of the step before it, makes both sides equal."""
        self._expression(step.before if step.forward else step.after)
        supporting = f"(repeat {_ROUNDS} (seq {_SUPPORT} (saturate analysis)))" if self.others else ""
        self.session.run(f"(seq (saturate analysis) {supporting} {ruleset})")
        return self._equal(step.before, step.after)

    def _equal(self, one: int, other: int) -> bool:
        return self.session.check(f"(= {self._expression(one)} {self._expression(other)})")

    def _expression(self, term: int) -> str:
        """A name for a ground term, which is put into the e-graph."""
        pending = [term]
        while pending:
            current = pending[-1]
            node = self.proof.terms.terms[current]
            missing = [c for c in node.children if c not in self.written]
            if missing:
                pending += missing
                continue
            pending.pop()
            if current not in self.written:
                self.written[current] = f"$t{current}"
                self.session.load(f"(let $t{current} {self._text(current)})")
        return self.written[term]

    def _text(self, term: int) -> str:
        node = self.proof.terms.terms[term]
        literals, children = iter(node.attributes), iter(node.children)
        sorts = self.catalogue.tables[node.op].inputs
        arguments = [self.written[next(children)] if s in TERM_SORTS else self._literal(next(literals)) for s in sorts]
        return f"({' '.join((node.op, *arguments))})"

    def _literal(self, value: Literal) -> str:
        if isinstance(value, tuple):
            return vector(value)
        if isinstance(value, str):
            return f'"{_escape(self.labels.of(value))}"'
        return repr(value)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _in_ruleset(rule: Rule, ruleset: str) -> str:
    """The text of a rule in another ruleset."""
    form = read(rule.text).forms[0]
    place = next(i for i, item in enumerate(form.items) if isinstance(item, Atom) and item.text == ":ruleset")
    return str(Form((*form.items[: place + 1], Atom(ruleset), *form.items[place + 2 :])))
