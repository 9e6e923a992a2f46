"""A scratch e-graph: one rule run once on samples of its left side.

The declarations and analyses are loaded once. A push copies all rules of the analyses, which takes as long as a run, so
all runs of one rule happen between one push and its pop. Samples of different runs share constants alone, whose
makers no rule sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ....rules.egglog_bindings import execute, load
from ....rules.loader import declarations as declarations_of_analyses
from ....rules.loader import prelude
from .conditions import Environment, Value
from .samples import Sample
from .terms import Leaf, Term, facts, literal_text, text

ROOTS = 16
"""Room for the roots of one sample."""
_ROOT = "(constructor root (i64) T :unextractable)"
_MANY_ROUNDS = 12
"""Rounds after which a rule counts as endless: rules that end take less than half as many for the few operators of a
sample."""
_FEW_ROUNDS = 3
"""Rounds after which rules that still add e-nodes to many samples are tried on one by itself."""
_MANY_NODES = 2000
"""E-nodes from which a rule counts as endless: rules that end make fewer from a sample, and if their number doubled in
each round, all rounds would take minutes."""
_MOST_SAMPLES = 400
"""Samples between a push and its pop: each run applies the rule to those of earlier runs once more."""
_ANALYSE = "(run-schedule (saturate (seq (saturate analysis) freeze)))"
SHAPED_BY_ENCODER = frozenset({"Resize", "DepthToSpace", "SpaceToDepth"})
"""Operators for which the encoder states the shape of the result, because no analysis derives it for all sizes."""
_FORMS = frozenset({"N", "T", "Ts"})
"""Sorts of e-classes: of nodes, of tensors, and of the lists that operators of other domains take."""


@dataclass(frozen=True)
class ScratchNode:
    """An e-node: literals, and classes as `EClass`."""

    head: str
    arguments: tuple[Value | EClass, ...]


@dataclass(frozen=True)
class EClass:
    """An e-class by a number."""

    number: int


Classes = dict[EClass, tuple[ScratchNode, ...]]
"""E-classes and their e-nodes."""


@dataclass(frozen=True)
class Fired:
    """The result of a rule on a sample: the e-nodes of every class that the sample's roots need, the roots first."""

    roots: tuple[EClass, ...]
    classes: Classes

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The e-nodes in an order of computation: each behind the first of every class that it takes. The roots have
        values before; e-nodes that only go in circles are left out."""
        steps: list[Step] = []
        known, constants = set(self.roots), set[EClass]()
        waiting = [(number, node) for number, nodes in self.classes.items() for node in nodes]
        progress = True
        while waiting and progress:
            progress, later = False, []
            for number, node in waiting:
                operands = [argument for argument in node.arguments if isinstance(argument, EClass)]
                if not known.issuperset(operands):
                    later.append((number, node))
                    continue
                progress = True
                of_constants = bool(operands) and constants.issuperset(operands)
                if of_constants or node.head in ("Weight", "Full"):
                    constants.add(number)
                known.add(number)
                steps.append(Step(number, node, tuple(operands) if of_constants else ()))
            waiting = later
        return tuple(steps)


@dataclass(frozen=True)
class Step:
    """An e-node to be computed for its class; `constants` has the classes of its operands if all are constant."""

    number: EClass
    node: ScratchNode
    constants: tuple[EClass, ...]


@dataclass(frozen=True)
class Conflict:
    """The rule made two terms equal that cannot be equal; `message` is egglog's."""

    message: str


Outcome = Fired | Conflict | None
"""None if the rule did not fire."""


class EgglogPanicError(Exception):
    """egglog failed in a rule that it had accepted; whether the rule is right stays open."""


EGGLOG_ADVICE = (
    "a fault of egglog, which fails if vec-set or vec-remove is out of range (ask vec-get for the same index)"
)


class Scratch:
    """An e-graph with the shipped declarations and analyses, and with `declarations` that the rules to be run need."""

    def __init__(self, declarations: str = "") -> None:
        self.declarations = f"{declarations}\n{_ROOT}"
        self.program = f"{prelude()}\n{self.declarations}"
        self._declared = "\n".join((declarations_of_analyses(), declarations))
        self._load()

    def _load(self) -> None:
        self.egraph = load().EGraph()
        execute(self.egraph, self.program)
        self._rules, self._count = "", 0
        """The rules read since the last push, if it has no pop yet, and the number of samples added since then."""

    def forget(self) -> None:
        """Take back the samples of earlier runs, so that the next one does not depend on them."""
        if self._rules:
            self._rules, self._count = "", 0
            execute(self.egraph, "(pop 1)")

    @cached_property
    def _reader(self) -> Any:
        """An e-graph without the rules of the analyses, which each push would copy: it reads rules and runs none."""
        reader = load().EGraph()
        execute(reader, self._declared)
        return reader

    def complaint(self, rules: str) -> str:
        """Why egglog does not take rules, such as a number in the place of a tensor; "" if it takes them."""
        execute(self._reader, "(push 1)")
        try:
            execute(self._reader, rules)
        except BaseException as error:
            if not is_of_egglog(error):
                raise
            del self._reader
            return _last_line(error).strip()
        execute(self._reader, "(pop 1)")
        return ""

    def run(self, rules: str, ruleset: str, samples: Sequence[Sample]) -> list[Outcome]:
        """Run rules once on each sample by itself, up to the first conflict, which already refutes a rule."""
        if rules != self._rules or self._count + len(samples) > _MOST_SAMPLES:
            self.forget()
        try:
            return self._run_batch(rules, ruleset, samples)
        except BaseException as error:
            if not is_of_egglog(error) or "Unbound" in str(error):
                raise
            self._load()
            if _is_panic(error):
                raise EgglogPanicError(f"egglog fails ({_last_line(error)})") from None
            if len(samples) == 1:
                return [Conflict(_last_line(error))]
            outcomes: list[Outcome] = []
            while len(outcomes) < len(samples) and not (outcomes and isinstance(outcomes[-1], Conflict)):
                outcomes += self.run(rules, ruleset, [samples[len(outcomes)]])
            return outcomes + [None] * (len(samples) - len(outcomes))

    def _run_batch(self, rules: str, ruleset: str, samples: Sequence[Sample]) -> list[Outcome]:
        if not self._rules:
            self._open(rules)
        first, self._count = self._count, self._count + len(samples)
        self._add(samples, first)
        execute(self.egraph, _ANALYSE)
        before = _TableReader(self.egraph).cones(samples, first)
        execute(self.egraph, f"(run-schedule {ruleset})\n{_ANALYSE}")
        after = _TableReader(self.egraph).cones(samples, first)
        return [new if _extent(new) != _extent(old) else None for old, new in zip(before, after, strict=True)]

    def is_endless(self, rules: str, ruleset: str, sample: Sample) -> bool:
        """Whether rules add e-nodes to a sample in each of many rounds, because every application makes another
        match."""
        try:
            if rules == self._rules and not self._grows(ruleset, _FEW_ROUNDS):
                return False  # they end on all samples of earlier runs, of which this is one
            self.forget()
            self._open(rules)
            self._add([sample])
            execute(self.egraph, _ANALYSE)
            return self._grows(ruleset, _MANY_ROUNDS)
        except BaseException as error:
            if not is_of_egglog(error):
                raise
            self._load()
            return False

    def _grows(self, ruleset: str, rounds: int) -> bool:
        """Whether rules add e-nodes in each of some rounds; fewer rounds if they add too many."""
        before, size = 0, self._size()
        most = max(size, _MANY_NODES)
        while rounds and before != size <= most:
            execute(self.egraph, f"(run-schedule {ruleset})\n{_ANALYSE}")
            before, size, rounds = size, self._size(), rounds - 1
        return before != size

    def _open(self, rules: str) -> None:
        """Read rules behind a push."""
        execute(self.egraph, "(push 1)")
        self._rules = rules
        execute(self.egraph, rules)

    def _size(self) -> int:
        return sum(len(nodes) for nodes in _TableReader(self.egraph).rows.values())

    def _add(self, samples: Sequence[Sample], first: int = 0) -> None:
        """Add the terms of samples, the leaves of each with a prefix of its own, and the facts about the leaves. The
        samples are numbered from `first` on."""
        commands: list[str] = []
        for number, sample in enumerate(samples, first):
            prefix = f"{number}."
            commands += (fact for leaf in dict.fromkeys(sample.leaves) for fact in facts(leaf, prefix))
            for term, type_ in sample.types.items():
                if term.head in SHAPED_BY_ENCODER:
                    commands.append(f"(set (shape {text(term, prefix)}) {literal_text(type_.shape)})")
            commands += [f"(set (symbolic-product {a} {b}) {product})" for (a, b), product in sample.products.items()]
            for index, root in enumerate(sample.roots):
                commands.append(f"(union (root {number * ROOTS + index}) {text(root, prefix)})")
        name = f"adding-{first}"  # egglog reads a rule of all commands in half the time that they take one by one
        rule = f'(rule () ({" ".join(commands)}) :ruleset {name} :name "{name}")'
        execute(self.egraph, f"(ruleset {name})\n{rule}\n(run-schedule {name})")

    def derives(self, rules: str, schedule: str, left: Term | Leaf, right: Term | Leaf) -> bool:
        """Whether rules prove two terms equal."""
        self.forget()
        execute(self.egraph, "(push 1)")
        try:
            execute(self.egraph, rules)
            pair = [Sample((left, right), {}, Environment())]
            self._add(pair)
            execute(self.egraph, f"(run-schedule {schedule})")
            (fired,) = _TableReader(self.egraph).cones(pair)
        except BaseException as error:
            if not is_of_egglog(error):
                raise
            self._load()
            return False
        execute(self.egraph, "(pop 1)")
        return fired.roots[0] == fired.roots[1]


def _last_line(error: BaseException) -> str:
    return next(reversed(str(error).strip().splitlines()), type(error).__name__)


def is_of_egglog(error: BaseException) -> bool:
    """Whether egglog raised an exception: an error of its own, or a panic in compiled code, which is no Exception and
    has no importable name."""
    return isinstance(error, load().EggSmolError) or _is_panic(error)


def _is_panic(error: BaseException) -> bool:
    return type(error).__name__ == "PanicException"


def _extent(fired: Fired) -> tuple[int, int, int]:
    return len(set(fired.roots)), len(fired.classes), sum(map(len, fired.classes.values()))


def _of_one_sample(classes: Classes, roots: Sequence[EClass]) -> Classes:
    """The classes that roots need, without nodes over leaves of another sample, to which a constant may be equal."""
    while foreign := {number for number, nodes in classes.items() if not nodes}:
        classes = {
            number: tuple(node for node in nodes if foreign.isdisjoint(node.arguments))
            for number, nodes in classes.items()
            if number not in foreign
        }
    needed: Classes = {}
    todo = list(roots)
    while todo:
        number = todo.pop()
        if number not in needed and number in classes:
            needed[number] = classes[number]
            todo += [a for node in classes[number] for a in node.arguments if isinstance(a, EClass)]
    return needed


class _TableReader:
    """Reads the constructors' tables of an e-graph by class."""

    def __init__(self, egraph: Any) -> None:
        self.egraph = egraph
        frozen = egraph.freeze().functions
        self.roots = {egraph.value_to_i64(row.inputs[0]): row.output for row in frozen["root"].rows}
        self.tables = {
            name: function for name, function in frozen.items() if function.output_sort in _FORMS and name[:1].isupper()
        }
        self.rows: dict[Any, list[tuple[str, Any]]] = {}
        for name, function in self.tables.items():
            for row in function.rows:
                self.rows.setdefault(row.output, []).append((name, row.inputs))
        self.numbers: dict[Any, EClass] = {}

    def _class(self, value: Any) -> EClass:
        return self.numbers.setdefault(value, EClass(len(self.numbers)))

    def cones(self, samples: Sequence[Sample], first: int = 0) -> list[Fired]:
        """For each sample, numbered from `first` on, the e-nodes of all classes that its roots need."""
        return [self._cone(number, len(sample.roots)) for number, sample in enumerate(samples, first)]

    def _cone(self, number: int, count: int) -> Fired:
        roots = [self.roots[number * ROOTS + i] for i in range(count)]
        todo, seen = list(roots), set(roots)
        classes: Classes = {}
        while todo:
            value = todo.pop()
            nodes = []
            for name, inputs in self.rows.get(value, ()):
                sorts = self.tables[name].input_sorts
                if name in ("Var", "Weight") and not self.egraph.value_to_string(inputs[0]).startswith(f"{number}."):
                    continue  # a leaf of another sample, to which some constant is equal
                nodes.append(ScratchNode(name, tuple(self._argument(s, v) for s, v in zip(sorts, inputs, strict=True))))
                for sort, child in zip(sorts, inputs, strict=True):
                    if sort in _FORMS and child not in seen:
                        seen.add(child)
                        todo.append(child)
            classes[self._class(value)] = tuple(nodes)
        numbers = tuple(map(self._class, roots))
        return Fired(numbers, _of_one_sample(classes, numbers))

    def _argument(self, sort: str, value: Any) -> Value | EClass:
        if sort in _FORMS:
            return self._class(value)
        if sort == "Ints":
            return tuple(map(self.egraph.value_to_i64, self.egraph.value_to_vec(value)))
        reader = {"i64": self.egraph.value_to_i64, "f64": self.egraph.value_to_f64}
        literal: Value = reader.get(sort, self.egraph.value_to_string)(value)
        return literal
