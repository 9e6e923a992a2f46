"""Whether a rule's left side matches at a node, and if not, the first condition that is not met."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...engine.egraph.encode import multiple_outputs
from ...engine.egraph.facts import write_facts
from ...engine.egraph.graph import EGraph, ENode, Literal
from ...engine.egraph.saturate import ITERATION, SIMPLIFICATION
from ...rules.loader import Rule
from ...support.errors import UsageError
from .catalogue import analyses
from .conditions import Anchored, anchor
from .cone import Rewriting
from .messages import Cell, class_number
from .patterns import Call, Hole, Template, Unclear, make_recorder, read_patterns
from .placing import Classes, group_by_class, place_classes
from .session import OutOfTime, Session
from .signatures import TERM_SORTS, Signatures, read_signatures
from .words import Words


@dataclass(frozen=True)
class Attempt:
    """How far a pattern got at a node: `met` of its `conditions` hold, in order, under the bindings `values`.

    Where it matches, `failure` is empty; else it says why the next condition is not met.
    """

    pattern: str
    met: int
    conditions: int
    failure: str
    values: Mapping[str, str]

    @property
    def matches(self) -> bool:
        """Whether all conditions hold."""
        return self.met == self.conditions


@dataclass(frozen=True)
class Result:
    """What a match at a term makes it equal to: the e-nodes that the rule writes, with their classes, outermost first.

    It has none where the rule equates the term with one of its operands; it is not `complete` where the e-graph lacks
    some of them.
    """

    term: int
    nodes: tuple[tuple[int, ENode], ...]
    complete: bool


@dataclass(frozen=True)
class Diagnosis:
    """The best attempts, on the model as it is and among all that the rules make of it.

    `after` is None where the time limit came first. `results` are those of matches among all.
    """

    before: Attempt
    after: Attempt | None
    results: tuple[Result, ...]


def diagnose(candidates: Sequence[Rule], terms: Sequence[int], rewriting: Rewriting, seconds: float) -> Diagnosis:
    """Try a rule (with its mirrored variants) at the terms of a node, and tell how the best of them fares.

    Raises OutOfTime where not even the first attempt comes to an end.
    """
    with Session(seconds) as session:
        probe = _Probe(candidates, terms, rewriting, session)
        before = probe.attempt("before")
        try:
            probe.saturate()
            after = probe.attempt("after")
        except OutOfTime:
            return Diagnosis(before, None, ())
        try:
            return Diagnosis(before, after, tuple(probe.results()) if after.matches else ())
        except (OutOfTime, Unclear):
            return Diagnosis(before, after, ())


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A pattern to try at a term."""

    number: int
    anchored: Anchored
    term: int
    fact: str
    """Says that the root is the term."""

    def table(self, stage: str, count: int) -> str:
        """The table of the matches of the first conditions."""
        return f"why.{stage}.{self.number}.{count}"

    def program(self, stage: str) -> str:
        """A rule for every number of conditions, which records their matches."""
        return "".join(self._rule(stage, count) for count in range(1, len(self.anchored.conditions) + 1))

    def _rule(self, stage: str, count: int) -> str:
        columns, table = self.anchored.bound(count), self.table(stage, count)
        facts = " ".join(str(c.fact) for c in self.anchored.conditions[:count])
        return (
            f"(relation {table} ({' '.join(columns.values())}))\n"
            f"(rule ({self.fact} {facts}) (({table} {' '.join(columns)}))"
            f' :ruleset why.{stage} :name "{table}")\n'
        )


class _Probe:
    """A session with a model in it."""

    def __init__(
        self, candidates: Sequence[Rule], terms: Sequence[int], rewriting: Rewriting, session: Session
    ) -> None:
        self.rewriting, self.session = rewriting, session
        self.tables = read_signatures(rewriting.rules.files)
        facts, self.labels = write_facts(rewriting.encoding, session.folder)
        anchored = [a for rule in candidates for p in read_patterns(rule) for a in anchor(p, self.tables)]
        pairs = ((one, term) for one in anchored for term in terms if one.sorts.get(one.root, "T") == self._sort(term))
        self.candidates = [
            _Candidate(i, one, term, f"(= {one.root} ({'node' if self._sort(term) == 'N' else 'term'} {term}))")
            for i, (one, term) in enumerate(pairs)
        ]
        if not self.candidates:
            raise UsageError(f"the rule {candidates[0].base} rewrites nothing that this node computes")
        session.load(analyses(rewriting.rules))
        session.load(facts)
        session.run("(seq (saturate analysis) settle)")

    def _sort(self, term: int) -> str:
        return "N" if multiple_outputs(self.rewriting.encoding.terms[term].op) else "T"

    def saturate(self) -> None:
        """Run the rules as far as the optimisation did."""
        self.session.load("\n".join(rule.text for rule in self.rewriting.rules.rules if not rule.derives))
        for _ in range(self.rewriting.egraph.saturation.iterations):
            self.session.load(ITERATION)
        self.session.load(SIMPLIFICATION)

    def attempt(self, stage: str) -> Attempt:
        """How far the best candidate gets."""
        self.session.load(f"(ruleset why.{stage})\n" + "".join(c.program(stage) for c in self.candidates))
        self.session.run(f"why.{stage}")
        numbers = {c: range(1, len(c.anchored.conditions) + 1) for c in self.candidates}
        contents = self.session.read(tuple(c.table(stage, n) for c, counts in numbers.items() for n in counts))
        by_class = group_by_class(contents, self.tables, self.labels.originals)
        met = {
            c: max((n for n in counts if contents.tables[c.table(stage, n)]), default=0)
            for c, counts in numbers.items()
        }
        best = max(self.candidates, key=lambda c: (met[c] == len(c.anchored.conditions), met[c]))
        rows = contents.tables[best.table(stage, met[best])] if met[best] else []
        return self._describe(best, met[best], rows, by_class)

    def _describe(self, best: _Candidate, met: int, rows: Sequence[Sequence[Cell]], by_class: Classes) -> Attempt:
        one, conditions = best.anchored, best.anchored.conditions
        cells = dict(zip(one.bound(met), rows[0], strict=False)) if rows else {one.root: by_class.of[best.term]}
        words = Words(one, cells, by_class, self.rewriting.encoding, self.tables)
        failure = "" if met == len(conditions) else words.failure(conditions[met])
        return Attempt(one.pattern.name, met, len(conditions), failure, words.values())

    def results(self) -> Iterator[Result]:
        """What the matches at the node make it equal to, in the e-graph of the optimisation."""
        recorders = {
            one: make_recorder(one.anchored.pattern, f"why.results.{one.number}", "why.results", self.tables, one.fact)
            for one in self.candidates
        }
        self.session.load("(ruleset why.results)\n" + "".join(r.program for r in recorders.values()))
        self.session.run("why.results")
        contents = self.session.read(tuple(r.table for r in recorders.values()))
        places = place_classes(group_by_class(contents, self.tables, self.labels.originals), self.rewriting.egraph)
        writing = _ResultWriter(self.rewriting.egraph, self.tables, places, self.labels.originals)
        for one, recorder in recorders.items():
            united = next(i for i, u in enumerate(one.anchored.pattern.unions) if one.anchored.root in map(str, u))
            for row in contents.tables[recorder.table]:
                cells = dict(zip(recorder.columns, zip(recorder.columns.values(), row, strict=False), strict=True))
                yield writing.result(one.term, recorder.equations[united], cells)


class _ResultWriter:
    """Writes the right sides of matches as e-nodes of the optimisation's e-graph."""

    def __init__(
        self, egraph: EGraph, tables: Signatures, places: Mapping[int, int], originals: Mapping[str, str]
    ) -> None:
        self.index = {node: owner for owner, c in enumerate(egraph.classes) for node in c.nodes}
        self.tables, self.places, self.originals = tables, places, originals

    def result(self, term: int, sides: tuple[Template, Template], cells: Mapping[str, tuple[str, Cell]]) -> Result:
        """The right side of one match at a term."""
        nodes: list[tuple[int, ENode]] = []
        complete = self._write(sides[1], cells, nodes) is not None
        return Result(term, tuple(reversed(nodes)), complete)

    def _write(
        self, template: Template, cells: Mapping[str, tuple[str, Cell]], nodes: list[tuple[int, ENode]]
    ) -> int | None:
        """The class of a template, operands before users among the nodes; None where the e-graph does not have it."""
        if isinstance(template, Hole):
            return self.places.get(class_number(cells[template.name][1]))
        assert isinstance(template, Call)
        arguments = list(zip(self.tables[template.op].inputs, template.arguments, strict=True))
        children = [c for s, a in arguments if s in TERM_SORTS for c in self._operands(s, a, cells, nodes)]
        literals = tuple(self._literal(a, cells) for s, a in arguments if s not in TERM_SORTS)
        node = ENode(template.op, literals, tuple(c for c in children if c is not None))
        owner = None if None in children else self.index.get(node)
        if owner is not None:
            nodes.append((owner, node))
        return owner

    def _operands(
        self, sort: str, template: Template, cells: Mapping[str, tuple[str, Cell]], nodes: list[tuple[int, ENode]]
    ) -> Iterator[int | None]:
        """The class of an operand; those of a list of operands, which is flat in the e-graph of the optimisation."""
        while sort == "Ts" and isinstance(template, Call) and template.op == "Cons":
            first, template = template.arguments
            yield self._write(first, cells, nodes)
        if sort != "Ts":
            yield self._write(template, cells, nodes)
        elif template != Call("Nil", ()):
            yield None

    def _literal(self, template: Template, cells: Mapping[str, tuple[str, Cell]]) -> Literal:
        assert not isinstance(template, Call)
        if not isinstance(template, Hole):
            return template.value
        cell = cells[template.name][1]
        return self.originals.get(cell, cell) if isinstance(cell, str) else cell
