"""Equality saturation under budgets: ``Encoding -> EGraph``.

The work happens in a separate process (`saturation_worker`); this side enforces the time limit, keeps the last
snapshot, and turns its answers into an `EGraph`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...ir.operators.quantization import CONVERSIONS
from ...ir.types import TensorType
from ...support.deadlines import seconds_left
from ...support.errors import EqfuseError, ProcessError, RuleError
from ...support.processes.worker_process import WorkerDiedError, WorkerFailedError
from .collector import pause_collection
from .encode import Encoding
from .facts import write_facts
from .graph import EClass, EGraph, ENode, NodePosition, RuleStatistics, Saturation, WaitingNodes
from .messages import Job, Progress, Snapshot
from .worker import Worker

SIMPLIFICATION = "(run-schedule (saturate (seq (saturate analysis) simplify)))"
"""Simplifications and analyses until nothing changes."""
EXPLORATION = "(run-schedule freeze explore)"
"""One round of exploration, before which constants are hidden: a constant that exploration made, such as a transposed
transposition, must first be simplified to its origin, or the next round makes another one from it."""
ITERATION = SIMPLIFICATION + EXPLORATION
"""One iteration. A simplification follows the last one."""
_INTERNAL = ("analysis.", "freeze.", "(")
"""Prefixes of rules that rewrite nothing: they analyse, hide constants or load tables."""
_OUT_OF_MEMORY = ("memory allocation of", "MemoryError")
"""Messages of Rust and Python with which a worker without memory dies."""
_GRACE = 1.0
"""Seconds that a worker over its time limit has to end its iteration by itself."""


@dataclass(frozen=True)
class Budget:
    """Limits of a saturation: e-nodes, seconds, iterations."""

    nodes: int = 200_000
    seconds: float = 30.0
    iterations: int = 200


class UnsoundRuleError(RuleError):
    """A rule is wrong: it proved two terms of different shape or element type, or distinct constants, equal.

    The message of `saturate` does not name the rule; `constant_conflicts.name_culprits` does.
    """


@pause_collection()
def saturate(
    encoding: Encoding,
    worker: Worker,
    budget: Budget,
    *,
    progress: Callable[[Progress], None] | None = None,
) -> EGraph:
    """Rewrite the encoding under the worker's rules until nothing changes or a limit is hit.

    The time limit begins when the worker has loaded its rules. If time or memory ends before the first iteration does,
    the e-graph holds the encoding unchanged. Raises UnsoundRuleError if a rule contradicts the shape or dtype analysis,
    RuleError if egglog refuses the rules, EqfuseError if its folder cannot be written.
    """
    facts, labels = write_facts(encoding, worker.folder)
    job = Job(facts, SIMPLIFICATION, EXPLORATION, budget.nodes, budget.seconds, budget.iterations)
    conversation = _Conversation(worker, job, progress)
    conversation.run()
    seconds = time.monotonic() - conversation.started
    if conversation.snapshot is None:
        return _original_graph(encoding, _statistics(Progress(stop_reason=conversation.progress.stop_reason), seconds))
    statistics = _statistics(conversation.progress, seconds)
    return number_classes(conversation.snapshot, encoding, labels.originals, statistics)


class _Conversation:
    """The messages of one worker until it is done, dead or out of time."""

    def __init__(self, worker: Worker, job: Job, progress: Callable[[Progress], None] | None) -> None:
        self.worker, self.job, self.report = worker, job, progress
        self.snapshot: Snapshot | None = None
        self.progress = Progress()
        self.stage = "start"
        self.started = time.monotonic()
        self.deadline = math.inf

    def run(self) -> None:
        self.worker.begin(self.job)
        is_done = False
        while not is_done:
            left = seconds_left(self.deadline)
            if left <= 0:  # waiting messages come too late
                self.progress.stop_reason = "time limit"
                return
            try:
                message = self.worker.receive(left)
                is_done = self._handle(*message)
            except (WorkerDiedError, WorkerFailedError) as error:
                if isinstance(error, WorkerDiedError) and error.timed_out:
                    self.progress.stop_reason = "time limit"
                    return
                if isinstance(error, WorkerFailedError) and error.kind == "OSError":
                    problem = f"{self.worker.folder}: {error.args[1]}; TMPDIR may name a folder with more room"
                    raise EqfuseError(problem) from None
                text = getattr(error, "output", "") or str(error)
                if not any(sign in text for sign in _OUT_OF_MEMORY):
                    if isinstance(error, WorkerDiedError) and error.is_blameless:
                        raise ProcessError(f"the process that runs egglog {error}") from None
                    raise self._failure(text) from None
                if math.isinf(self.deadline):
                    problem = f"the process that runs egglog ran out of memory while it loaded {self.stage}"
                    raise ProcessError(problem) from None
                self.progress.stop_reason = "memory limit"
                return

    def _handle(self, kind: str, content: Any) -> bool:
        if kind == "stage":
            self.stage = content
            if content == "facts":  # the rules are loaded
                self.started = time.monotonic()
                self.deadline = self.started + self.job.time_limit + _GRACE
        elif kind == "progress":
            self.progress = content
            if self.report:
                self.report(content)
        elif kind == "snapshot":
            self.snapshot = content
        elif kind == "done":
            self.progress = content
            return True
        else:
            raise self._failure(content)
        return False

    def _failure(self, message: str) -> EqfuseError:
        text = " ".join(message.split())
        if "Illegal merge" in text:
            return UnsoundRuleError(f"united two terms of different shape or dtype: {text}")
        if self.stage == "rules":
            return RuleError(f"egglog refuses the rules: {text}")
        return EqfuseError(f"saturation failed while loading or running {self.stage}: {text[-300:]}")


def _statistics(progress: Progress, seconds: float) -> Saturation:
    rules = [
        RuleStatistics(name, matches, progress.seconds.get(name, 0.0))
        for name, matches in progress.matches.items()
        if not name.startswith(_INTERNAL)
    ]
    return Saturation(
        stop_reason=progress.stop_reason,
        iterations=progress.iterations,
        growth=tuple(progress.growth),
        seconds=seconds,
        rules=tuple(sorted(rules, key=lambda r: (-r.matches, r.name))),
    )


def _original_graph(encoding: Encoding, statistics: Saturation) -> EGraph:
    """Every term as a class of its own."""
    constant = _constant_classes([[term] for term in encoding.terms])
    classes = tuple(
        EClass((term,), encoding.types.get(index), index in constant, encoding.uniform.get(index))
        for index, term in enumerate(encoding.terms)
    )
    return EGraph(classes, {i: i for i in range(len(classes))}, encoding.roots, statistics)


def number_classes(
    snapshot: Snapshot, encoding: Encoding, originals: Mapping[str, str], statistics: Saturation
) -> EGraph:
    """The e-graph of a snapshot. Classes are numbered by the first term they hold, not as egglog does."""
    rows: dict[int, list[ENode]] = {}
    subsumed: dict[int, list[ENode]] = {}
    for op, literals, children, owner, is_subsumed in snapshot.rows:
        attributes = tuple([originals.get(a, a) if isinstance(a, str) else a for a in literals])
        rows.setdefault(owner, []).append(ENode(op, attributes, children))
        if is_subsumed:
            subsumed.setdefault(owner, []).append(rows[owner][-1])
    order = _class_order(snapshot, encoding, rows)
    rank = {c: i for i, c in enumerate(order)}
    terms = {term: rank[c] for term, c in snapshot.terms.items()}

    def ranked(nodes: Iterable[ENode]) -> list[ENode]:
        return [replace(n, children=tuple([rank[c] for c in n.children])) for n in nodes]

    members = [ranked(rows[owner]) for owner in order]
    original: dict[ENode, int] = {}
    for index, term in enumerate(encoding.terms):
        original.setdefault(ENode(term.op, term.attributes, tuple(terms[c] for c in term.children)), index)
    for nodes in members:  # the model's own e-nodes first, in its order
        if len(nodes) > 1:
            nodes.sort(key=lambda n: (original.get(n, math.inf), n.op, repr(n.attributes), n.children))
    constant = _constant_classes(members)
    types = _Types(snapshot, {number: name for name, number in encoding.symbols.items()})
    values = snapshot.analyses["value"]
    classes = [
        EClass(
            tuple(members[index]), types.of(owner), index in constant, values.get(owner),
            frozenset(ranked(subsumed.get(owner, ()))),
        )
        for index, owner in enumerate(order)
    ]
    return EGraph(tuple(classes), terms, tuple(terms[r] for r in encoding.roots), statistics)


def _class_order(snapshot: Snapshot, encoding: Encoding, rows: Mapping[int, list[ENode]]) -> list[int]:
    """Classes of the model's own terms first, in its order; then the others by structure, children first."""
    order = list(dict.fromkeys(snapshot.terms[i] for i in range(len(encoding.terms)) if i in snapshot.terms))
    rank = {c: i for i, c in enumerate(order)}
    pending = [c for c in rows if c not in rank]
    while pending:
        ready = sorted((key, c) for c in pending if (key := _sort_key(rows[c], rank)) is not None)
        if not ready:
            break
        for _, owner in ready:
            rank[owner] = len(order)
            order.append(owner)
        pending = [c for c in pending if c not in rank]
    return order


def _sort_key(nodes: list[ENode], rank: Mapping[int, int]) -> tuple[str, str, tuple[int, ...]] | None:
    """The sort key of a class; None until the children of one of its e-nodes all have a rank."""
    keys = [
        (node.op, repr(node.attributes), tuple([rank[c] for c in node.children]))
        for node in nodes
        if all(c in rank for c in node.children)
    ]
    return min(keys, default=None)


_NEVER_CONSTANT = CONVERSIONS | {"Var", "If"}
"""Operators whose results are no constants, whatever their operands are."""


def _constant_classes(classes: list[list[ENode]]) -> set[int]:
    """Classes that can be computed from stored constants alone, whatever their age."""
    waiting = WaitingNodes()
    ready = [
        owner
        for owner, nodes in enumerate(classes)
        for index, node in enumerate(nodes)
        if node.op not in _NEVER_CONSTANT and waiting.add(NodePosition(owner, index), node.children)
    ]
    constant: set[int] = set()
    while ready:
        owner = ready.pop()
        if owner not in constant:
            constant.add(owner)
            ready += [user.owner for user in waiting.provide(owner)]
    return constant


class _Types:
    """The types that the analyses found, one object for all classes of a type."""

    def __init__(self, snapshot: Snapshot, symbols: Mapping[int, str]) -> None:
        self.dtypes, self.shapes = snapshot.analyses["dtype"], snapshot.analyses["shape"]
        self.symbols = symbols
        self.types: dict[tuple[str, tuple[int, ...] | None], TensorType] = {}

    def of(self, owner: int) -> TensorType | None:
        """The type of a class, None if its dtype is unknown."""
        dtype, shape = self.dtypes.get(owner), self.shapes.get(owner)
        if dtype is None:
            return None
        if (dtype, shape) not in self.types:
            named = None if shape is None else tuple(self.symbols.get(d, d) for d in shape)
            self.types[dtype, shape] = TensorType(dtype, named)
        return self.types[dtype, shape]
