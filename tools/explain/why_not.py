"""Whether a rule's left side matches at a node, and if not, the first condition that is not met."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ...engine.egraph.encode import Encoding, multiple_outputs, opaque_type
from ...engine.egraph.facts import write_facts
from ...engine.egraph.graph import EGraph, ENode, Literal
from ...engine.egraph.saturate import ITERATION, SIMPLIFICATION
from ...rules.commute import variables
from ...rules.loader import Rule
from ...rules.sexpr import Atom, Form, read, walk
from ...support.errors import UsageError
from .catalogue import analyses
from .conditions import COMPUTED, Anchored, Condition, anchor
from .cone import Rewriting
from .messages import Cell, Contents, class_number
from .patterns import ROOT, Call, Hole, Template, Unclear, make_recorder, read_patterns
from .session import OutOfTime, Session
from .signatures import TERM_SORTS, Signatures, read_signatures

_LISTS = frozenset({"Nil", "Cons"})


@dataclass
class Classes:
    """The classes of a session: `rows` are the e-nodes of each class, over such classes, `of` the class of each term of
    the encoding, and `terms` the first term of each class."""

    rows: dict[int, list[ENode]] = field(default_factory=dict)
    of: dict[int, int] = field(default_factory=dict)
    terms: dict[int, int] = field(default_factory=dict)


def group_by_class(contents: Contents, tables: Signatures, originals: Mapping[str, str]) -> Classes:
    """Group the rows of a session by class; `originals` gives the text for which each label in its tables stands."""
    by_class = Classes()
    for name in ("term", "node"):
        rows = contents.constructors[name]
        by_class.of |= {class_number(index): class_number(owner) for index, owner in rows}
    for index in sorted(by_class.of):
        by_class.terms.setdefault(by_class.of[index], index)
    for op, rows in contents.constructors.items():
        if op in ("term", "node"):
            continue
        sorts = tables[op].inputs
        for row in rows:
            cells = list(zip(sorts, row, strict=False))
            literals = tuple(_original(c, originals) for s, c in cells if s not in TERM_SORTS)
            children = tuple(class_number(c) for s, c in cells if s in TERM_SORTS)
            by_class.rows.setdefault(class_number(row[-1]), []).append(ENode(op, literals, children))
    return by_class


def _original(cell: Cell, originals: Mapping[str, str]) -> Literal:
    return originals.get(cell, cell) if isinstance(cell, str) else cell


def place_classes(by_class: Classes, egraph: EGraph) -> dict[int, int]:
    """For each class of the session the same class of the e-graph, if there is one."""
    index = {node: owner for owner, c in enumerate(egraph.classes) for node in c.nodes}
    places = {owner: egraph.terms[term] for owner, term in by_class.terms.items() if term in egraph.terms}
    lists: dict[int, tuple[int, ...]] = {}
    pending = [(owner, row) for owner, rows in by_class.rows.items() for row in rows]
    while True:
        later = []
        for owner, row in pending:
            if owner not in places and owner not in lists and not _place(owner, row, places, lists, index):
                later.append((owner, row))
        if len(later) == len(pending):
            return places
        pending = later


def _place(
    owner: int, row: ENode, places: dict[int, int], lists: dict[int, tuple[int, ...]], index: Mapping[ENode, int]
) -> bool:
    """Place one class by one of its e-nodes, if its operands are placed."""
    operands = tuple(_operands(row.children, places, lists))
    if len(operands) < len(row.children):
        return False
    flat = tuple(o for operand in operands for o in operand)
    if row.op in _LISTS:
        lists[owner] = flat
        return True
    if (place := index.get(ENode(row.op, row.attributes, flat))) is not None:
        places[owner] = place
    return place is not None


def _operands(
    children: tuple[int, ...], places: Mapping[int, int], lists: Mapping[int, tuple[int, ...]]
) -> Iterator[tuple[int, ...]]:
    for child in children:
        if child in places:
            yield (places[child],)
        elif child in lists:
            yield lists[child]


LEAF_NAMES = {"Var": "an input of the graph", "Weight": "a constant", "Full": "a constant", "Absent": "absent"}
"""What messages call the terms that no operator makes."""

_SHOWN = 5
"""Operators of one class that a message names, at most, so that it stays one line."""


class Words:
    """Describes one attempt: `cells` are the values of its variables, in which numbers stand for `classes`."""

    def __init__(
        self, attempt: Anchored, cells: Mapping[str, Cell], classes: Classes, encoding: Encoding, tables: Signatures
    ) -> None:
        self.attempt, self.cells, self.classes, self.encoding, self.tables = attempt, cells, classes, encoding, tables
        self.symbols = {number: name for name, number in encoding.symbols.items()}

    @cached_property
    def names(self) -> dict[int, str]:
        """The name of each class that a value of the model is in."""
        names: dict[int, str] = {}
        for name, term in self.encoding.values.items():
            names.setdefault(self.classes.of[term], name)
        return names

    def values(self) -> dict[str, str]:
        """For each variable of the rule the text of the term to which it is bound."""
        made_up = ("part.", "any.", ROOT)
        return {name: self._value(name) for name in self.cells if not name.startswith(made_up)}

    def failure(self, condition: Condition) -> str:
        """Why a condition is not met if the conditions before it bind their variables."""
        if condition.kind == "operator":
            return self._operator(condition)
        if condition.kind == "argument":
            value, wanted = self._value(condition.variable), self._expectation(condition)
            return f"{condition.place} is {value}, the pattern wants {wanted}"
        if condition.kind == "fact" and condition.fact.head in COMPUTED:
            return "; ".join((f"{condition.shown}: false", *self._bindings(condition)))
        return "; ".join((f"{condition.shown}: not known{self._declaration(condition)}", *self._bindings(condition)))

    def _declaration(self, condition: Condition) -> str:
        """The place at which a function or relation is declared, as text; "" if there is none."""
        called = next((n.head for n in (*condition.fact.items, condition.fact) if isinstance(n, Form)), "")
        place = self.tables[called].place if called in self.tables else ""
        return f" (see {place})" if place else ""

    # --- operators and their arguments

    def _operator(self, condition: Condition) -> str:
        if condition.variable not in self.cells:
            return "; ".join((f"nothing is {condition.shown}", *self._bindings(condition)))
        owner, subject = class_number(self.cells[condition.variable]), condition.place or "the node"
        there = self._operators(owner)
        wanted = "it absent" if condition.wanted == "Absent" else condition.wanted
        if condition.wanted in there:
            return f"{subject} is {wanted}, but hidden from rules: it is made of constants, or replaced for good"
        return f"{subject} is {self._describe(owner, there)}, the pattern wants {wanted}"

    def _operators(self, owner: int) -> list[str]:
        """The operators in a class, opaque ones by their ONNX type."""
        return list(dict.fromkeys(map(self._operator_name, self.classes.rows.get(owner, []))))

    def _operator_name(self, row: ENode) -> str:
        if row.op == "Out":
            return f"output {row.attributes[0]} of {', '.join(self._operators(row.children[0]))}"
        return opaque_type(row) if row.op == "Op" else row.op

    def _describe(self, owner: int, operators: list[str]) -> str:
        """A class by its operators and its name."""
        kinds = list(dict.fromkeys(LEAF_NAMES.get(op, op) for op in operators))
        more = [f"{len(kinds) - _SHOWN} more"] if len(kinds) > _SHOWN else []
        kind = " or ".join(", ".join((*kinds[:_SHOWN], *more)).rsplit(", ", 1))
        return f"{kind} (`{self.names[owner]}`)" if owner in self.names else kind

    def _expectation(self, condition: Condition) -> str:
        node = read(f"({condition.wanted})").forms[0].items[0]
        if isinstance(node, Atom):
            return f"{self._value(node.text)}, as {node.text}" if node.text in self.cells else node.text
        if node.head in ("vec-of", "vec-empty") and not any(variables(node)):
            return f"[{', '.join(map(str, node.items[1:]))}]"
        return "; ".join((str(node), *self._bindings(condition)))

    # --- what variables are bound to

    def _bindings(self, condition: Condition) -> Iterator[str]:
        """The known values of the expressions in a condition."""
        if condition.kind == "lookup":
            names = sorted(condition.variables)
        else:
            names = list(dict.fromkeys(str(n) for n in walk(condition.fact) if isinstance(n, Atom)))
        for name in names:
            if name in self.cells and name != condition.variable:
                yield f"{self._label(name)} is {self._value(name)}"

    def _label(self, name: str) -> str:
        """A variable as the rule has it; a part of an expression by its text."""
        if name == ROOT:
            return "the node"
        makers = (c for c in self.attempt.conditions if c.kind == "lookup" and str(c.fact.items[1]) == name)
        return next((c.shown for c in makers), name)

    def _value(self, name: str) -> str:
        if name not in self.cells:
            return "not bound"
        cell = self.cells[name]
        if self.attempt.sorts.get(name) in TERM_SORTS:
            return self._class(class_number(cell))
        if isinstance(cell, tuple):
            return f"[{', '.join(self.symbols.get(n, str(n)) for n in cell)}]"
        return f"{cell:g}" if isinstance(cell, float) else str(cell)

    def _class(self, owner: int) -> str:
        """A class by its name, or by its first e-node if the model has no name for it."""
        if owner in self.names:
            return f"`{self.names[owner]}`"
        rows = self.classes.rows.get(owner, [])
        return self._row(rows[0]) if rows else "a new value"

    def _row(self, row: ENode) -> str:
        if row.op == "Full":
            return f"{row.attributes[1]:g}"
        if row.op == "Absent":
            return "absent"
        operands = (f"`{self.names[c]}`" if c in self.names else "..." for c in row.children)
        return f"{self._operator_name(row)}({', '.join(operands)})"


@dataclass(frozen=True)
class Attempt:
    """How far a pattern got at a node: the first `met` of its `conditions` hold under the bindings `values`.

    If the pattern matches, `failure` is empty; else it says why the next condition is not met.
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
    """The result of a match at a term: the e-nodes that the rule makes equal to it, with their classes, outermost
    first.

    There are none if the rule equates the term with one of its operands. The result is not `complete` if the e-graph
    lacks some of the e-nodes.
    """

    term: int
    nodes: tuple[tuple[int, ENode], ...]
    complete: bool


@dataclass(frozen=True)
class Diagnosis:
    """The best attempts, `before` on the original model, and `after` among all terms that the rules make of it.

    `after` is None if the time limit came first. `results` are those of matches among all terms.
    """

    before: Attempt
    after: Attempt | None
    results: tuple[Result, ...]


def diagnose(candidates: Sequence[Rule], terms: Sequence[int], rewriting: Rewriting, seconds: float) -> Diagnosis:
    """Try a rule (with its mirrored variants) at the terms of a node, and tell how the best of them fares.

    Raises OutOfTime if not even the first attempt ends in time.
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
class _Trial:
    """A pattern to try at a term."""

    number: int
    anchored: Anchored
    term: int
    fact: str
    """The fact that the root is the term."""

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
            _Trial(i, one, term, f"(= {one.root} ({'node' if self._sort(term) == 'N' else 'term'} {term}))")
            for i, (one, term) in enumerate(pairs)
        ]
        if not self.candidates:
            raise UsageError(f"the rule {candidates[0].base} rewrites nothing that this node computes")
        session.load(analyses(rewriting.rules))
        session.load(facts)
        session.run("(seq (saturate analysis) freeze)")

    def _sort(self, term: int) -> str:
        return "N" if multiple_outputs(self.rewriting.encoding.terms[term].op) else "T"

    def saturate(self) -> None:
        """Run the rules as far as the optimisation did."""
        self.session.load("\n".join(rule.program for rule in self.rewriting.rules.rules if not rule.derives))
        for _ in range(self.rewriting.egraph.saturation.iterations):
            self.session.load(ITERATION)
        self.session.load(SIMPLIFICATION)

    def attempt(self, stage: str) -> Attempt:
        """The attempt of the candidate that gets farthest."""
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

    def _describe(self, best: _Trial, met: int, rows: Sequence[Sequence[Cell]], by_class: Classes) -> Attempt:
        one, conditions = best.anchored, best.anchored.conditions
        cells = dict(zip(one.bound(met), rows[0], strict=False)) if rows else {one.root: by_class.of[best.term]}
        words = Words(one, cells, by_class, self.rewriting.encoding, self.tables)
        failure = "" if met == len(conditions) else words.failure(conditions[met])
        return Attempt(one.pattern.name, met, len(conditions), failure, words.values())

    def results(self) -> Iterator[Result]:
        """The results of the matches at the node, in the e-graph of the optimisation."""
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
        """The class of a template, None if the e-graph does not have it. Appends its e-nodes to `nodes`, operands
        before users."""
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
        """The class of an operand, or the classes of a list of operands, which is flat in the e-graph of the
        optimisation."""
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
