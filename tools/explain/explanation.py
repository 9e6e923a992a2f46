"""Finds the chain of rules between the original and the optimised form of a value, checks it and writes it down."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...engine.egraph.facts import Labels, vector, write_facts
from ...engine.egraph.graph import Literal
from ...ir.operators import OPERATORS
from ...ir.types import TensorType
from ...rules.loader import Rule
from ...rules.sexpr import Atom, Form, read
from ...support.errors import EqfuseError
from ...support.minimal_failure import minimal_failure
from .catalogue import Catalogue, collect_rules
from .cone import Cone, Rewriting, TwoForms, build_cone, follow_forms
from .congruence import Congruence, Use
from .ground import Owners, flatten, reachable
from .patterns import Hole, Pattern, Template
from .proof import Proof, prove
from .readable import Line, Writer, shorten, type_text
from .session import OutOfTime, Session
from .signatures import TERM_SORTS

_MINIMISED = 300
"""Equations of a chain, at most, for which the search tries to leave out single ones; for more it takes too long."""


@dataclass(frozen=True)
class Step:
    """An instance of a rule: the term `before` becomes `after`, two terms of the proof.

    `templates` are the two as the rule writes them; `forward` is false if it is read from right to left. A step is
    `joined` from two if both terms match the left side: the rule makes them equal by way of a third term.
    """

    pattern: Pattern
    before: int
    after: int
    templates: tuple[Template, Template]
    forward: bool
    joined: bool = False


def build_chain(proof: Proof) -> tuple[Step, ...]:
    """The steps from the original to the chosen term; none of them can be left out."""
    used = sorted({use.equation for use in proof.terms.explain(proof.original, proof.chosen)})
    needed = _parts(proof, used)
    if 0 < len(used) <= _MINIMISED:
        used = list(minimal_failure(lambda some: _closure(proof, needed, some).proves(proof), used))
    return tuple(_step(proof, use) for use in _closure(proof, needed, used).explain(proof))


def _step(proof: Proof, use: Use) -> Step:
    equation = proof.equations[use.equation]
    left, right = equation.templates
    if use.forward:
        return Step(equation.pattern, equation.left, equation.right, (left, right), True)
    return Step(equation.pattern, equation.right, equation.left, (right, left), False)


def _parts(proof: Proof, equations: Iterable[int]) -> list[int]:
    """The terms that the equations and both ends consist of, operands first."""
    ends = (term for e in equations for term in (proof.equations[e].left, proof.equations[e].right))
    return reachable((proof.original, proof.chosen, *ends), lambda term: proof.terms.terms[term].children)


@dataclass(frozen=True)
class _Closure:
    """The equalities that follow from some of a proof's equations."""

    terms: Congruence
    numbers: dict[int, int]

    def proves(self, proof: Proof) -> bool:
        """Whether it follows that both ends are equal."""
        return self.terms.find(self.numbers[proof.original]) == self.terms.find(self.numbers[proof.chosen])

    def explain(self, proof: Proof) -> list[Use]:
        """The equations from end to end."""
        return self.terms.explain(self.numbers[proof.original], self.numbers[proof.chosen])


def _closure(proof: Proof, parts: Sequence[int], equations: Iterable[int]) -> _Closure:
    terms = Congruence()
    numbers: dict[int, int] = {}
    for part in parts:
        node = proof.terms.terms[part]
        numbers[part] = terms.add(replace(node, children=tuple(numbers[c] for c in node.children)))
    for number in equations:
        equation = proof.equations[number]
        terms.equate(numbers[equation.left], numbers[equation.right], number)
    return _Closure(terms, numbers)


_SUPPORT = "replay.support"
_ROUNDS = 8
"""Rounds of the supporting rules before each step: their facts rarely need as many."""


def replay(
    steps: Sequence[Step], proof: Proof, cone: Cone, catalogue: Catalogue, seconds: float
) -> tuple[Rule, ...] | None:
    """Replay the steps. Returns the fewest further rules on which conditions of steps rest; None if the replay fails.

    There is mostly no such rule, because conditions are facts about operands that the analyses derive. Raises
    OutOfTime.
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
    """The names of the ground terms that the e-graph has by now."""

    def run(self, steps: Sequence[Step]) -> bool:
        """Whether every step holds, and both ends of the chain are equal after them."""
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
        """Whether the rule makes both sides of the step equal, after the left side is put into the e-graph."""
        self._expression(step.before if step.forward else step.after)
        supporting = f"(repeat {_ROUNDS} (seq {_SUPPORT} (saturate analysis)))" if self.others else ""
        self.session.run(f"(seq (saturate analysis) {supporting} {ruleset})")
        return self._equal(step.before, step.after)

    def _equal(self, one: int, other: int) -> bool:
        return self.session.check(f"(= {self._expression(one)} {self._expression(other)})")

    def _expression(self, term: int) -> str:
        """The name of a ground term; puts the term into the e-graph if it is not there."""
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


_ATTEMPTS: tuple[tuple[int | None, bool], ...] = ((1, False), (3, True), (None, True))
"""Searches in turn: how many operators below the boundary each sees (None for all), and whether it sees siblings. Small
searches come first because they are fast."""

_OTHERS = frozenset({"Var", "Weight", "Full", "Absent", "Out", "Op"})
"""Constructors that are no operators of the file."""


class Unexplained(EqfuseError):
    """No chain was found, or none that holds."""

    exit_code = 5


@dataclass(frozen=True)
class Name:
    """The name of a value in the text, its full name in the model, and its type."""

    short: str
    full: str
    type: TensorType | None

    @property
    def type_text(self) -> str:
        """The type as text; "" if it is unknown."""
        return type_text(self.type)


@dataclass(frozen=True)
class Instance:
    """One step: by `rule`, `before` becomes `after`; if `forward` is false, the rule is read from right to left.

    `where` defines the numbered terms that the step is the first to mention.
    """

    rule: Rule
    forward: bool
    before: str
    after: str
    where: tuple[Line, ...]


@dataclass(frozen=True)
class Explanation:
    """The original and the optimised form, the value last, and the steps from one to the other, checked by replay.

    `rests_on` are rules that conditions of steps need and that are no steps themselves. `names` are all names in the
    text.
    """

    before: tuple[Line, ...]
    after: tuple[Line, ...]
    steps: tuple[Instance, ...]
    rests_on: tuple[Rule, ...]
    names: tuple[Name, ...]


def explain(term: int, rewriting: Rewriting, seconds: float) -> Explanation:
    """Explain a term that the optimised graph computes in another form.

    Raises Unexplained if the rules that matched do not lead there, or the replay fails, and OutOfTime if the limit of
    `seconds` ends the search.
    """
    deadline = time.monotonic() + seconds
    rules, forms = _fired_rules(rewriting), follow_forms(term, rewriting)
    cut, proof = _prove(forms, rewriting, rules, deadline)
    steps = build_chain(proof)
    rests_on = replay(steps, proof, cut, rules, deadline - time.monotonic())
    if rests_on is None:
        raise Unexplained(f"a chain of {len(steps)} steps was found, but its replay fails")
    return _Narrator(rewriting, forms, cut, proof).explanation(steps, rests_on)


def rules_on_the_way(term: int, rewriting: Rewriting, seconds: float) -> tuple[str, ...]:
    """The rules of an explanation, in the order of its steps, which are not replayed: that takes as long again.

    Raises Unexplained and OutOfTime as `explain` does.
    """
    deadline = time.monotonic() + seconds
    _, proof = _prove(follow_forms(term, rewriting), rewriting, _fired_rules(rewriting), deadline)
    return tuple(dict.fromkeys(step.pattern.rule.base for step in build_chain(proof)))


def _fired_rules(rewriting: Rewriting) -> Catalogue:
    return collect_rules(rewriting.rules, [r.name for r in rewriting.egraph.saturation.rules if r.matches])


def _prove(forms: TwoForms, rewriting: Rewriting, rules: Catalogue, deadline: float) -> tuple[Cone, Proof]:
    """The first proof, and the part of the model in which it was found."""
    for depth, neighbours in _ATTEMPTS:
        cut = build_cone(forms, rewriting, depth, neighbours=neighbours)
        last = (depth, neighbours) == _ATTEMPTS[-1]
        left = deadline - time.monotonic()
        try:
            with Session(left if last else left / 2) as session:
                proof = prove(forms, cut, rewriting.egraph, rules, session)
        except OutOfTime:
            if last:
                raise
            continue
        if proof:
            return cut, proof
    raise Unexplained("the rules that matched do not lead to the optimised form again")


class _Narrator:
    """Puts terms into words."""

    def __init__(self, rewriting: Rewriting, forms: TwoForms, cut: Cone, proof: Proof) -> None:
        self.rewriting, self.forms, self.cut, self.proof = rewriting, forms, cut, proof
        self.full = self._full_names()
        short = shorten(self.full.values())
        names = {term: short[name] for term, name in self.full.items()}
        symbols = {number: name for name, number in rewriting.encoding.symbols.items()}
        self.writer = Writer(proof.terms, names, self._types(), symbols)

    def explanation(self, steps: Sequence[Step], rests_on: tuple[Rule, ...]) -> Explanation:
        before = tuple(self._before())
        instances = tuple(self._instance(step) for step in self._join_steps(steps))
        after = tuple(self._after())
        return Explanation(before, after, instances, rests_on, tuple(self._names()))

    # --- names and types

    def _full_names(self) -> dict[int, str]:
        """Names of the ground terms that the model has: their own, or another name of the same value."""
        own: dict[int, str] = {}
        by_owner: dict[int, str] = {}
        for name, term in self.rewriting.encoding.values.items():
            own.setdefault(term, name)
            by_owner.setdefault(self.rewriting.egraph.terms[term], name)
        names: dict[int, str] = {}
        for ground, term, owner in zip(self.proof.encoded, self.cut.originals, self.cut.owners, strict=True):
            given = own.get(term) or by_owner.get(owner)
            if given and self.proof.terms.terms[ground].op not in ("Full", "Absent"):
                names.setdefault(ground, given)
        return names

    def _types(self) -> Mapping[int, TensorType]:
        given = zip(self.proof.encoded, self.cut.owners, strict=True)
        owners = Owners(self.rewriting.egraph, self.proof.terms, given)
        types = {term: self.rewriting.egraph.classes[owner].type for term, owner in owners.update()}
        return {term: type_ for term, type_ in types.items() if type_ is not None}

    def _names(self) -> Iterator[Name]:
        for term in sorted(self.writer.mentioned):
            yield Name(self.writer.names[term], self.full[term], self.writer.types.get(term))

    # --- the two forms

    def _before(self) -> Iterator[Line]:
        boundary = {self.proof.encoded[i] for i, o in enumerate(self.cut.owners) if o in self.forms.boundary}
        for term in self._between(self.proof.original, boundary):
            if term in self.writer.names and self.proof.terms.terms[term].children:
                yield self._line(self.writer.names[term], term)

    def _after(self) -> Iterator[Line]:
        encoded = set(self.proof.encoded) - {self.proof.original}
        for term in self._between(self.proof.chosen, encoded)[:-1]:
            self.writer.value(term)
            if term in self.writer.defined:
                yield self.writer.defined[term]
        yield self._line(self.writer.names[self.proof.original], self.proof.chosen)

    def _line(self, name: str, term: int) -> Line:
        return Line(name, self.writer.spell(term), self.writer.types.get(term), self.writer.is_constant(term))

    def _between(self, term: int, ends: set[int]) -> list[int]:
        """The terms from `term` down to `ends`, operands first."""
        ground = self.proof.terms
        return reachable([term], lambda part: [c for c in flatten(ground, part).children if c not in ends])

    # --- steps

    def _join_steps(self, steps: Sequence[Step]) -> Iterator[Step]:
        """The steps; two that meet in a term that only the rule makes become one."""
        pending: Step | None = None
        for step in steps:
            if pending and pending.after == step.before and pending.pattern == step.pattern:
                templates = pending.templates[0], step.templates[1]
                yield Step(step.pattern, pending.before, step.after, templates, True, joined=True)
                pending = None
                continue
            if pending:
                yield pending
            op = self.proof.terms.terms[step.after].op
            pending = step if op not in OPERATORS and op not in _OTHERS else None  # the rule made the term up
            if not pending:
                yield step
        if pending:
            yield pending

    def _instance(self, step: Step) -> Instance:
        count = len(self.writer.defined)
        before = self._side(step.templates[0], step.before, matched=step.forward)
        after = self._side(step.templates[1], step.after, matched=step.joined or not step.forward)
        where = tuple(self.writer.defined.values())[count:]
        return Instance(step.pattern.rule, step.forward, before, after, where)

    def _side(self, template: Template, term: int, *, matched: bool) -> str:
        """One side of a step as text; if the side that the rule matches is only a variable, it is written with the
        operator of its term."""
        if matched and isinstance(template, Hole):
            return self.writer.spell(term)
        return self.writer.instance(template, term)
