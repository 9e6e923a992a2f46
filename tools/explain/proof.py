"""Saturates a cone and records every match, until its original form is proven equal to the optimised one.

The work of egglog is mirrored on ground terms: every match of a rule is an equation between two of them, and the
e-graph of each moment is their congruence closure. egglog checks the conditions; the mirror only keeps which rule made
which terms equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product

from ...engine.egraph.facts import Labels, write_facts
from ...engine.egraph.folding import FOLD
from ...engine.egraph.graph import EGraph, ENode, Literal
from .catalogue import RECORDING, Catalogue
from .cone import Cone, TwoForms
from .congruence import Congruence
from .ground import Constants, Owners, add_node, equal_to
from .messages import Cell, Contents, class_number
from .patterns import Call, Hole, Pattern, Recorder, Template
from .session import Session
from .signatures import TERM_SORTS, Signatures

_COMBINATIONS = 64
"""Combinations of operands that are tried for one e-node of the optimised form, at most."""


@dataclass(frozen=True)
class Equation:
    """An instance of a rule: two ground terms that one of its matches makes equal.

    `templates` are the two sides as the rule writes them.
    """

    pattern: Pattern
    left: int
    right: int
    templates: tuple[Template, Template]


@dataclass(frozen=True)
class Proof:
    """Equations from which the equality of `original` and `chosen` follows; all are terms of `terms`.

    `encoded`: the ground term of each term of the cone.
    """

    terms: Congruence
    equations: tuple[Equation, ...]
    original: int
    chosen: int
    encoded: tuple[int, ...]


def prove(forms: TwoForms, cone: Cone, egraph: EGraph, catalogue: Catalogue, session: Session) -> Proof | None:
    """Find a proof; None if the rules are saturated without one. Raises OutOfTime."""
    facts, labels = write_facts(cone.encoding, session.folder)
    session.load(_program(catalogue))
    session.load(facts)
    mirror = _Mirror(cone, catalogue.tables, labels)
    target = _Target(forms, cone, egraph, mirror)
    return _Trial(catalogue, session, mirror, target).run()


def _program(catalogue: Catalogue) -> str:
    rulesets = "".join(f"(ruleset {RECORDING}{name})\n" for name in (*_PHASES, "forget"))
    rules = "".join(f"{rule.program}\n" for rule in catalogue.rules)
    recorders = "".join(r.program for r in catalogue.recorders)
    rows = [(r.table, f"({r.table} {' '.join(r.columns)})") for r in catalogue.recorders]
    forget = f":ruleset {RECORDING}forget"
    forgetting = "".join(f'(rule ({row}) ((delete {row})) {forget} :name "forget.{table}")\n' for table, row in rows)
    return catalogue.declarations + rules + rulesets + recorders + forgetting


_PHASES = ("simplify", "explore")


@dataclass
class _Trial:
    catalogue: Catalogue
    session: Session
    mirror: _Mirror
    target: _Target

    def run(self) -> Proof | None:
        while True:
            self.session.run("(seq (saturate analysis) freeze)")
            for phase in _PHASES:
                proof, changed = self.phase(phase)
                if proof or changed:
                    break
            if proof or not changed:
                return proof

    def phase(self, ruleset: str) -> tuple[Proof | None, bool]:
        """Record the matches of one ruleset, then run it. Returns a proof, if there is one now, and whether the ruleset
        changed anything."""
        if self.session.run(f"{RECORDING}{ruleset}"):
            used = tuple(r for r in self.catalogue.recorders if r.pattern.rule.ruleset == ruleset)
            contents = self.session.read(tuple(r.table for r in used))
            self.session.run(f"{RECORDING}forget")
            self.mirror.update(contents, used)
            if proof := self.target.proof():
                return proof, False
        return None, self.session.run(ruleset)


class _Mirror:
    """The e-graph as ground terms, and the equations recorded so far."""

    def __init__(self, cone: Cone, tables: Signatures, labels: Labels) -> None:
        self.tables, self.originals = tables, labels.originals
        self.terms = Congruence()
        self.equations: list[Equation] = []
        self.encoded: list[int] = []
        """The ground term of each term of the cone."""
        for node in cone.encoding.terms:
            children = tuple(self.encoded[c] for c in node.children)
            self.encoded.append(add_node(self.terms, replace(node, children=children)))
        self.ground: dict[int, int] = {}
        """The ground term of each class that egglog has at the moment, by the number of the class."""

    def update(self, contents: Contents, recorders: Iterable[Recorder]) -> None:
        """Add the e-graph of this moment, then the matches in it."""
        self._identify(contents)
        fresh = [e for r in recorders for row in contents.tables[r.table] for e in self._equations(r, row)]
        for equation in [e for e in fresh if self.terms.find(e.left) != self.terms.find(e.right)]:
            self.equations.append(equation)
            self.terms.equate(equation.left, equation.right, len(self.equations) - 1)

    def _equations(self, recorder: Recorder, row: Sequence[Cell]) -> list[Equation]:
        cells = dict(zip(recorder.columns, zip(recorder.columns.values(), row, strict=False), strict=True))
        values = {name: self._value(sort, cell) for name, (sort, cell) in cells.items()}
        return [
            Equation(recorder.pattern, self.instance(left, values), self.instance(right, values), (left, right))
            for left, right in recorder.equations
        ]

    def _value(self, sort: str, cell: Cell) -> Cell:
        if sort not in ("i64", "f64", "String", "Ints", "bool"):
            return self.terms.find(self.ground[class_number(cell)])
        return self.originals.get(cell, cell) if isinstance(cell, str) else cell

    def instance(self, template: Template, values: Mapping[str, Cell]) -> int:
        """The ground term of a template of a tensor."""
        if isinstance(template, Hole):
            return class_number(values[template.name])
        assert isinstance(template, Call)
        sorts = self.tables[template.op].inputs
        arguments = list(zip(sorts, template.arguments, strict=True))
        children = tuple(self.instance(a, values) for s, a in arguments if s in TERM_SORTS)
        literals = tuple(_literal(a, values) for s, a in arguments if s not in TERM_SORTS)
        return self.terms.add(ENode(template.op, literals, children))

    # --- which class is which term

    def _identify(self, contents: Contents) -> None:
        """Find the ground term of every class, children first; e-nodes that are new become terms."""
        self.ground = {}
        rows = list(self._nodes(contents.constructors))
        users: dict[int, list[int]] = {}
        missing: list[int] = []
        for index, (_, _, children, _) in enumerate(rows):
            missing.append(len(set(children)))
            for child in set(children):
                users.setdefault(child, []).append(index)
        ready = [i for i, count in enumerate(missing) if count == 0][::-1]
        while ready:
            op, literals, children, owner = rows[ready.pop()]
            if owner in self.ground:
                continue
            node = ENode(op, literals, tuple(self.ground[c] for c in children))
            equal = self.terms.equal_node(node)
            self.ground[owner] = self.terms.add(node) if equal is None else equal
            for user in users.get(owner, ()):
                missing[user] -= 1
                if missing[user] == 0:
                    ready.append(user)

    def _nodes(
        self, constructors: Mapping[str, list[tuple[Cell, ...]]]
    ) -> Iterator[tuple[str, tuple[Literal, ...], tuple[int, ...], int]]:
        for op, rows in constructors.items():
            if op in ("term", "node"):
                continue
            sorts = self.tables[op].inputs
            terms = [i for i, s in enumerate(sorts) if s in TERM_SORTS]
            literals = [i for i, s in enumerate(sorts) if s not in TERM_SORTS]
            for row in rows:
                values = tuple(self._value(sorts[i], row[i]) for i in literals)
                yield op, values, tuple(class_number(row[i]) for i in terms), class_number(row[-1])


def _literal(template: Template, values: Mapping[str, Cell]) -> Literal:
    if isinstance(template, Hole):
        return values[template.name]
    assert not isinstance(template, Call)
    return template.value


class _Target:
    """The optimised form, looked for among the ground terms."""

    def __init__(self, forms: TwoForms, cone: Cone, egraph: EGraph, mirror: _Mirror) -> None:
        self.forms, self.cone, self.mirror = forms, cone, mirror
        self.order = _children_first(forms)
        self.owners = Owners(egraph, mirror.terms, zip(mirror.encoded, cone.owners, strict=True))
        self.constants = Constants(mirror.terms)
        self.folded: dict[int, list[int]] = {}
        self.given: dict[int, list[int]] = {}
        for term, owner in zip(mirror.encoded, cone.owners, strict=True):
            self.given.setdefault(owner, []).append(term)

    def proof(self) -> Proof | None:
        """The proof, if the value's two forms are equal by now; else None."""
        for term, owner in self.owners.update():
            if self.forms.chosen.get(owner) == FOLD and self.constants.has(term):
                self.folded.setdefault(owner, []).append(term)
        written: dict[int, dict[int, int]] = {}
        for owner in self.order:
            written[owner] = self._chosen_terms(owner, written)
        original = self.mirror.encoded[self.cone.root]
        chosen = written[self.forms.owner].get(self.mirror.terms.find(original))
        if chosen is None:
            return None
        mirror = self.mirror
        return Proof(mirror.terms, tuple(mirror.equations), original, chosen, tuple(mirror.encoded))

    def _chosen_terms(self, owner: int, written: Mapping[int, Mapping[int, int]]) -> dict[int, int]:
        """The optimised form of a class as ground terms, by the oldest term that each equals.

        There may be several, if only the e-graph of the whole model knows that some constants are equal.
        """
        terms = self.mirror.terms
        if owner in self.given and owner != self.forms.owner:
            return {terms.find(term): term for term in reversed(self.given[owner])}
        node = self.forms.chosen.get(owner)
        if node is None or node == FOLD:
            return {terms.find(term): term for term in reversed(self.folded.get(owner, []))}
        spellings: dict[int, int] = {}
        for children in islice(product(*(written[c].values() for c in node.children)), _COMBINATIONS):
            spelled = replace(node, children=children)
            equal = equal_to(terms, spelled)
            if equal is not None and equal not in spellings:
                spellings[equal] = add_node(terms, spelled)
        return spellings


def _children_first(forms: TwoForms) -> list[int]:
    """The classes of the optimised form, operands before users."""
    done: dict[int, None] = {}
    pending = [(forms.owner, False)]
    while pending:
        owner, ready = pending.pop()
        if ready:
            done.setdefault(owner)
        elif owner not in done:
            pending.append((owner, True))
            pending += [(c, False) for c in forms.chosen[owner].children] if owner in forms.chosen else []
    return list(done)
