"""The process that runs egglog.

A run of egglog cannot be interrupted and a panic in it ends the process, so it is separate: the parent
can stop it at any moment and keep the last snapshot. It starts before there is a job, so that loading the declarations
overlaps with reading the model.

The seconds of each rule come from the text of egglog's reports: its bindings round durations down to whole
milliseconds, and most rules take less in one iteration.
"""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

from ...rules.egglog_bindings import execute, load
from ...rules.program import Commands, rule_program, split_ready
from ...rules.vocabulary import RuleSelection
from .messages import Job, Message, Progress, Snapshot

_SECTION = re.compile(r"\bsearch_and_apply_time_per_rule: \{(.*?)\}, \w+: ", re.DOTALL)
_ENTRY = re.compile(r'"((?:[^"\\]|\\.)*)": ([\d.]+)(ns|µs|ms|s)')
_UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def rule_seconds(report: object) -> dict[str, float]:
    """Seconds of searching and applying by the name of the rule, from a RunReport of egglog."""
    section = _SECTION.search(str(report))
    entries = _ENTRY.findall(section.group(1)) if section else []
    return {name: float(number) * _UNITS[unit] for name, number, unit in entries}


_ANALYSES = ("shape", "dtype", "value")
_SORTS = ("T", "N")
_READING = 25e-6
"""The least seconds for reading one e-node and computing its cost."""
_SNAPSHOT_SHARE = 0.05
"""The part of the time that may go into snapshots in the middle of a run; the first iteration always ends in one."""


class SaturationRun:
    """Answers requests to load rules, and then to do one job, with messages; `folder` holds the job's tables."""

    def __init__(self, folder: str) -> None:
        gc.disable()  # each collection would walk over all that was built so far
        self.bindings = load()
        self.egraph = self.bindings.EGraph(fact_directory=folder)
        self.waiting: Commands = ()
        self.progress = Progress()
        self.next_snapshot = 0.0

    def __call__(self, request: RuleSelection | Job) -> Iterator[Message]:
        try:
            yield from self.load_rules(request) if isinstance(request, RuleSelection) else self.saturate(request)
        except self.bindings.EggSmolError as error:
            yield "error", str(error)

    def load_rules(self, selection: RuleSelection) -> Iterator[Message]:
        """Keep the program of the rules, of which a run loads those that its e-graph can match."""
        yield "stage", "rules"
        self.waiting = rule_program(selection).commands

    def execute(self, text: str) -> list[Any]:
        """The outputs of egglog's commands. Raises EggSmolError."""
        return list(self.egraph.run_program(*self.egraph.parse_program(text)))

    def saturate(self, job: Job) -> Iterator[Message]:
        """Load one job and run it to its end."""
        self.job = job
        self.load_ready()
        self.started = time.monotonic()
        yield "stage", "facts"
        execute(self.egraph, job.facts)
        yield "stage", "saturation"
        yield from self.loop()
        if self.is_too_large():
            self.progress.stop_reason = "time limit"
        else:
            self.simplify()
            yield "snapshot", self.snapshot()
        yield "done", self.progress

    def loop(self) -> Iterator[Message]:
        """Iterate until nothing new comes up or a limit is reached."""
        while self.progress.iterations < self.job.iteration_limit:
            updated = self.iterate()
            size = self.size()
            self.progress.growth.append(size)
            yield "progress", self.progress
            if not updated:
                self.progress.stop_reason = "saturated"
                return
            if size > self.job.node_limit:
                self.progress.stop_reason = "node limit"
                return
            if time.monotonic() - self.started > self.job.time_limit:
                return
            yield from self.offer_snapshot()
        self.progress.stop_reason = "iteration limit"

    def is_too_large(self) -> bool:
        """Whether the last iteration made more than can still be read: then the snapshot before it is the result."""
        if self.progress.stop_reason != "node limit" or not self.next_snapshot:
            return False
        left = self.job.time_limit - (time.monotonic() - self.started)
        return self.progress.growth[-1] * _READING > left

    def iterate(self) -> bool:
        """Run one iteration; returns whether it added anything."""
        updated = self.simplify()
        updated |= self.run(self.job.exploration)
        self.progress.iterations += 1
        return updated

    def simplify(self) -> bool:
        """Whether anything changed; results of loaded rules may let others match."""
        updated = False
        self.load_ready()
        while self.run(self.job.simplification):
            updated = True
            if not self.load_ready():
                break
        return updated

    def load_ready(self) -> bool:
        """Load the rules that may match by now. Returns whether there were any.

        egglog takes longer to load a rule than to run most of them, and looks at each of them in every round.
        """
        ready, self.waiting = split_ready(self.waiting, {name for name, size in self.sizes().items() if size})
        execute(self.egraph, "\n".join(command.text for command in ready))
        return bool(ready)

    def run(self, schedule: str) -> bool:
        """Whether a schedule changed anything."""
        report = self.execute(schedule)[0].report
        for rule, matches in report.num_matches_per_rule.items():
            self.progress.matches[rule] = self.progress.matches.get(rule, 0) + matches
        for rule, seconds in rule_seconds(report).items():
            self.progress.seconds[rule] = self.progress.seconds.get(rule, 0.0) + seconds
        return bool(report.updated)

    def size(self) -> int:
        """The e-nodes: rows of tables whose names begin like those of constructors."""
        return sum(n for name, n in self.sizes().items() if name[:1].isupper())

    def sizes(self) -> dict[str, int]:
        """The rows of every table."""
        return dict(self.execute("(print-size)")[0].sizes)

    def offer_snapshot(self) -> Iterator[Message]:
        """Send one unless the last cost too much: the next iteration may explode, and this is the result then."""
        begun = time.monotonic()
        if begun > self.next_snapshot:
            yield "snapshot", self.snapshot()
            taken = time.monotonic() - begun
            self.next_snapshot = begun + taken / _SNAPSHOT_SHARE

    def snapshot(self) -> Snapshot:
        """The e-graph as it is now."""
        return _Reader(self.egraph).read()


class _Reader:
    """Reads a frozen e-graph into plain Python."""

    def __init__(self, egraph: Any) -> None:
        self.egraph = egraph
        self.frozen = egraph.freeze().functions
        self.ids: dict[Any, int] = {}
        self.lists: dict[Any, tuple[Any, ...]] = {}
        self.literals: dict[tuple[str, Any], Any] = {}
        self.converters: dict[str, Callable[[Any], Any]] = {
            "i64": egraph.value_to_i64,
            "f64": egraph.value_to_f64,
            "String": egraph.value_to_string,
            "Ints": lambda v: tuple(map(egraph.value_to_i64, egraph.value_to_vec(v))),
        }

    def number(self, value: Any) -> int:
        return self.ids.setdefault(value, len(self.ids))

    def literal(self, sort: str, value: Any) -> Any:
        key = (sort, value)
        if key not in self.literals:
            self.literals[key] = self.converters[sort](value)
        return self.literals[key]

    def read(self) -> Snapshot:
        self._read_lists()
        constants = {row.inputs[0] for row in self.frozen["const"].rows}
        functions = [(name, f) for name, f in self.frozen.items() if self._is_constructor(name, f)]
        rows = [row for name, f in functions for row in self._rows(name, f, constants)]
        terms = {}
        for name in ("term", "node"):
            for row in self.frozen[name].rows:
                terms[self.egraph.value_to_i64(row.inputs[0])] = self.number(row.output)
        return Snapshot(rows, {name: self._analysis(name) for name in _ANALYSES}, terms)

    @staticmethod
    def _is_constructor(name: str, function: Any) -> bool:
        return function.output_sort in _SORTS and name[:1].isupper()

    def _rows(
        self, name: str, function: Any, constants: set[Any]
    ) -> Iterator[tuple[str, tuple[Any, ...], tuple[int, ...], int, bool]]:
        sorts = list(enumerate(function.input_sorts))
        operands = [i for i, sort in sorts if sort in _SORTS]
        lists = [i for i, sort in sorts if sort == "Ts"]
        literals = [(i, sort) for i, sort in sorts if sort not in _SORTS and sort != "Ts"]
        for row in function.rows:
            inputs = row.inputs
            children = [self.number(inputs[i]) for i in operands]
            for i in lists:
                children += map(self.number, self.lists.get(inputs[i], ()))
            values = [self.literal(sort, inputs[i]) for i, sort in literals]
            is_subsumed = row.subsumed and row.output not in constants
            yield name, tuple(values), tuple(children), self.number(row.output), is_subsumed

    def _read_lists(self) -> None:
        """Operand lists, flattened: a list is only ever built, never rewritten, so each has one form."""
        conses = {row.output: tuple(row.inputs) for row in self.frozen["Cons"].rows}
        for value in conses:
            items, rest = [], value
            while rest in conses:
                item, rest = conses[rest]
                items.append(item)
            self.lists[value] = tuple(items)

    def _analysis(self, name: str) -> dict[int, Any]:
        function = self.frozen[name]
        sort = function.output_sort
        values = {}
        for row in function.rows:
            value = self.literal(sort, row.output) if sort in self.converters else True
            values[self.number(row.inputs[0])] = value
        return values
