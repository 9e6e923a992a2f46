"""A canary: do two distinct constants share an e-class?

No sound set of rules unites them, so a run in which they do is worthless. Every e-node of a constant class is computed
in float64 from the values of its operands' classes, so that rounding does not pile up, and compared with the class'
first e-node. Constants of many elements are not computed, which keeps healthy runs fast.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import inf
from typing import Any

import numpy as np

from ..errors import EqfuseError, RuleError
from ..ir.operators import OPERATORS, Operand
from ..rules.loader import Rule, load_rules
from ..rules.places import shipped_files
from ..support.deadlines import OutOfTime, require_time, seconds_left
from ..support.minimal_failure import minimal_failure
from .constants import Array
from .egraph.encode import Encoding
from .egraph.graph import EGraph, ENode
from .egraph.messages import RuleSelection
from .egraph.saturate import Budget, UnsoundRuleError, saturate
from .egraph.worker import Worker
from .onnx.inference import Knowledge
from .onnx.model import Model, elements

Value = Array | tuple[Array, ...] | None
Site = tuple[int, int]
"""A class and the position of an e-node in it."""

_MOST_ELEMENTS = 2**16
"""Larger constants are not computed; two that are stored are compared in any case."""
_MOST_IN_ALL = 2**19
"""Elements that are computed at most, of the smallest constants first."""
_LEAVES = frozenset({"Weight", "Full"})
_WIDE = {"float32": "float64", "float16": "float64", "bfloat16": "float64"}
_ROUNDING = {"float16": 3e-4, "bfloat16": 3e-3}
_USUAL = 1e-5
"""What rounding may change, relative; rules know numbers like the root of 2 no better for float64 than for float32."""
_GENEROUS = 100
"""How many roundings are no difference yet."""
_TRIALS = 3


@dataclass(frozen=True)
class Conflict:
    """Two e-nodes of one class that compute different constants; `first` and `second` say which and what."""

    owner: int
    first: str
    second: str

    def __str__(self) -> str:
        return f"{self.first}, {self.second}"


def check_constants(
    model: Model,
    knowledge: Knowledge,
    encoding: Encoding,
    egraph: EGraph,
    selection: RuleSelection,
    budget: Budget,
    deadline: float = inf,
) -> bool:
    """Raise UnsoundRuleError where a class of the e-graph holds distinct constants.

    `selection` and `budget` are those of the saturation: where rules beside the shipped ones took part in it, it is
    repeated with fewer of them, to name those that it takes, for at most as long as two saturations may take.
    Returns whether all was looked at before the deadline (time.monotonic).
    """
    try:
        found = conflict(model, knowledge, egraph, deadline)
    except OutOfTime:
        return False
    if found is None:
        return True

    naming = time.monotonic() + 2 * budget.seconds

    def fails(worker: Worker, limited: Budget) -> bool:
        return conflict(model, knowledge, saturate(encoding, worker, limited), naming) is not None

    matched = {rule.name for rule in _own_rules(selection, egraph)}
    names = _culprits(selection, budget, naming, fails, lambda rule: rule.name in matched)
    raise UnsoundRuleError(f"{names} proved two distinct constants equal: {found}")


@contextmanager
def name_culprits(encoding: Encoding, selection: RuleSelection, budget: Budget) -> Iterator[None]:
    """Have an UnsoundRuleError of the saturation of `encoding` say which rules united terms of different types.

    It is repeated with fewer rules for that, for at most as long as two saturations may take.
    """

    def fails(worker: Worker, limited: Budget) -> bool:
        try:
            saturate(encoding, worker, limited)
        except UnsoundRuleError:
            return True
        return False

    try:
        yield
    except UnsoundRuleError as error:
        names = _culprits(selection, budget, time.monotonic() + 2 * budget.seconds, fails, lambda _: True)
        raise UnsoundRuleError(f"{names} {error}") from None


def conflict(model: Model, knowledge: Knowledge, egraph: EGraph, deadline: float = inf) -> Conflict | None:
    """The first class that holds distinct constants; None where none does, as far as they can be computed.

    Raises OutOfTime once the deadline (time.monotonic) has come.
    """
    suspects = [i for i, c in enumerate(egraph.classes) if c.constant and len(c.nodes) > 1 and i != egraph.absent]
    if not suspects:
        return None
    needed = _needed(egraph, suspects)
    return next(_Values(model, knowledge, egraph, _affordable(egraph, needed), deadline).conflicts(needed), None)


def _needed(egraph: EGraph, suspects: Iterable[int]) -> set[int]:
    """The suspects and the constants that they are computed from."""
    found: set[int] = set()
    pending = list(suspects)
    while pending:
        owner = pending.pop()
        if owner not in found and egraph.classes[owner].constant:
            found.add(owner)
            pending += [c for node in egraph.classes[owner].nodes for c in node.children]
    return found


def _affordable(egraph: EGraph, needed: Iterable[int]) -> frozenset[int]:
    """Those that it does not take long to compute; of several outputs, all."""
    types = {owner: egraph.classes[owner].type for owner in needed}
    sizes = sorted((0 if t is None else t.elements(), o) for o, t in types.items() if t is None or t.is_static)
    totals = accumulate(size * len(egraph.classes[owner].nodes) for size, owner in sizes)
    pairs = zip(sizes, totals, strict=True)
    return frozenset(owner for (size, owner), sum_ in pairs if size <= _MOST_ELEMENTS and sum_ <= _MOST_IN_ALL)


# --- values


@dataclass
class _Values:
    """Values by class, floats in float64; of the e-node `first` of the class."""

    model: Model
    knowledge: Knowledge
    egraph: EGraph
    affordable: frozenset[int]
    deadline: float = inf
    known: dict[int, Value] = field(default_factory=dict)
    first: dict[int, ENode] = field(default_factory=dict)

    def conflicts(self, needed: set[int]) -> Iterator[Conflict]:
        """Compute all that is needed, operands first, and yield what does not agree."""
        self.known[self.egraph.absent] = None
        users, missing = self.dependencies(needed)
        ready = sorted((site for site, count in missing.items() if count == 0), reverse=True)
        while ready:
            require_time(self.deadline)
            owner, index = ready.pop()
            node = self.egraph.classes[owner].nodes[index]
            value = self.value(owner, node)
            if value is None:
                continue
            if owner in self.first:
                if isinstance(value, np.ndarray) and (at := self.differing(owner, node, value)) is not None:
                    first = self.told(self.first[owner], self.known[owner], at)
                    yield Conflict(owner, first, self.told(node, value, at))
                continue
            self.known[owner], self.first[owner] = value, node
            for user in users.get(owner, ()):
                missing[user] -= 1
                if missing[user] == 0:
                    ready.append(user)

    def dependencies(self, needed: set[int]) -> tuple[dict[int, list[Site]], dict[Site, int]]:
        """The e-nodes that use each class, and how many operands each e-node waits for."""
        users: dict[int, list[Site]] = {}
        missing: dict[Site, int] = {}
        for owner in sorted(needed - {self.egraph.absent}):
            for index, node in enumerate(self.egraph.classes[owner].nodes):
                children = set(node.children) - {self.egraph.absent}
                missing[owner, index] = len(children)
                for child in children:
                    users.setdefault(child, []).append((owner, index))
        return users, missing

    def value(self, owner: int, node: ENode) -> Value:
        """The value of an e-node; None where it is too large or nothing says what it computes."""
        if node.op in _LEAVES:
            return self.leaf(owner, node)
        if node.op in ("Var", "Op") or owner not in self.affordable:
            return None
        return _computed(node, [self.known[c] for c in node.children])

    def leaf(self, owner: int, node: ENode) -> Value:
        """What is stored; large ones only where another one could be distinct from it."""
        if owner not in self.affordable and sum(n.op in _LEAVES for n in self.egraph.classes[owner].nodes) == 1:
            return None
        if node.op == "Full":
            shape, number, dtype = node.attributes
            return np.broadcast_to(np.asarray(number, _WIDE.get(str(dtype), str(dtype))), shape)  # type: ignore[arg-type]
        name = str(node.attributes[0])
        known = self.knowledge.constants.get(name)
        array = elements(self.model.stored[name]) if known is None else known
        return array.astype(np.float64) if array.dtype.name in _WIDE else array

    def differing(self, owner: int, node: ENode, value: Array) -> tuple[int, ...] | None:
        """Where a value is distinct from that of its class beyond rounding."""
        expected = self.known[owner]
        if not isinstance(expected, np.ndarray) or expected.dtype.kind not in "fiub" or expected.shape != value.shape:
            return None
        nodes = (self.first[owner], node)
        rounding = max(self.rounding(c) for c in (owner, *(c for n in nodes for c in n.children)))
        apart, allowed = _apart(expected, value), rounding * _largest(expected, value)
        wrong = apart > _GENEROUS * allowed
        if wrong.any():  # or is it what they make of the rounding of their operands?
            doubt = sum(self.moved(n, v, rounding) for n, v in zip(nodes, (expected, value), strict=True))
            wrong = apart > _GENEROUS * (allowed + doubt)
        return tuple(map(int, np.argwhere(wrong)[0])) if wrong.any() else None

    def rounding(self, owner: int) -> float:
        type_ = self.egraph.classes[owner].type
        return _ROUNDING.get(type_.dtype, _USUAL) if type_ is not None else _USUAL

    def moved(self, node: ENode, value: Array, rounding: float) -> Array:
        """How far each element moves when the operands are rounded."""
        random = np.random.default_rng(0)
        found = np.zeros(value.shape)
        for _ in range(_TRIALS):
            shaken = [_shaken(self.known[c], rounding, random) for c in node.children]
            again = _shaken(value, rounding, random) if node.op in _LEAVES else _computed(node, shaken)
            if isinstance(again, np.ndarray) and again.shape == value.shape:
                found = np.maximum(found, _apart(value, again))
        return found

    # --- words

    def told(self, node: ENode, value: Value, at: tuple[int, ...]) -> str:
        element = value[at] if isinstance(value, np.ndarray) else value
        return f"{self.text(node)} is {element}" + (f" at {list(at)}" if at else "")

    def text(self, node: ENode) -> str:
        """An e-node by what its operands are called."""
        operands = [self.name(c) for c in node.children if c != self.egraph.absent]
        literals = ("[" + " ".join(map(str, a)) + "]" if isinstance(a, tuple) else str(a) for a in node.attributes)
        return f"({' '.join((node.op, *operands, *literals))})"

    def name(self, owner: int) -> str:
        """A stored constant by its name, one of a single value by that, others by their operator."""
        uniform = self.egraph.classes[owner].uniform
        if uniform is not None:
            return f"{uniform:g}"
        node = self.first.get(owner, self.egraph.classes[owner].nodes[0])
        return str(node.attributes[0]) if node.op == "Weight" else f"({node.op} ...)"


def _computed(node: ENode, operands: Sequence[Value]) -> Value:
    """The value of an e-node over those of its operands."""
    from ..ir.operators import Unsupported, evaluate  # it takes a while, and most graphs do without

    literals = [_WIDE.get(a, a) if isinstance(a, str) else a for a in node.attributes]
    if node.op == "Out":
        parts = operands[0]
        return parts[int(literals[0])] if isinstance(parts, tuple) else None  # type: ignore[arg-type]
    values, attributes = iter(operands), iter(literals)
    arguments: list[Any] = [
        next(values) if isinstance(a, Operand) else next(attributes) for a in OPERATORS[node.op].arguments
    ]
    try:
        with np.errstate(all="ignore"):
            return evaluate(node.op, arguments)
    except Unsupported:
        return None


def _apart(one: Array, other: Array) -> Array:
    """How far elements are apart; not at all where one is not finite, for rules need not keep that."""
    if one.dtype.kind != "f":
        return np.asarray(one != other, np.float64)
    with np.errstate(all="ignore"):
        return np.asarray(np.nan_to_num(np.abs(one - other), nan=0.0, posinf=0.0))


def _largest(*values: Array) -> float:
    """The largest number in sight; 0 for integers and truth values, which are exact."""
    arrays = [np.abs(v[np.isfinite(v)]) for v in values if v.dtype.kind == "f"]
    return max((float(a.max()) for a in arrays if a.size), default=0.0)


def _shaken(value: Value, rounding: float, random: np.random.Generator) -> Value:
    """A value a little off, integers as they are."""
    if isinstance(value, tuple):
        return tuple(np.asarray(_shaken(part, rounding, random)) for part in value)
    if value is None or value.dtype.kind != "f":
        return value
    return np.asarray(value * (1 + rounding * random.uniform(-1, 1, value.shape)))


# --- the rule that did it


@contextmanager
def blame_own_rules(selection: RuleSelection, egraph: EGraph) -> Iterator[None]:
    """Have an error that no code expects name the rules beside the shipped ones that made something of the model."""
    try:
        yield
    except (EqfuseError, OSError, MemoryError):
        raise
    except Exception as error:
        rules = _own_rules(selection, egraph) if selection.paths else []
        if not rules:
            raise
        places = ", ".join(f"{r.path}:{r.line}:{r.column}: rule {r.name}" for r in rules[:_NAMED])
        more = f" and {len(rules) - _NAMED} more" if len(rules) > _NAMED else ""
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise RuleError(f"{places}{more}: what these make of the model cannot be used ({text})") from error


_NAMED = 3
"""Rules that an error names at most; it is one line."""


def _own_rules(selection: RuleSelection, egraph: EGraph) -> list[Rule]:
    """The rules beside the shipped ones that matched."""
    chosen = load_rules(selection.paths, precision=selection.precision, only=selection.only, skip=selection.skip)
    shipped = {file.path for file in shipped_files()}
    matched = (chosen.by_name.get(r.name) for r in egraph.saturation.matched)
    return [rule for rule in matched if rule is not None and rule.path not in shipped]


def _culprits(
    selection: RuleSelection,
    budget: Budget,
    deadline: float,
    fails: Callable[[Worker, Budget], bool],
    suspicious: Callable[[Rule], bool],
) -> str:
    """The places and names of rules beside the shipped ones that a saturation fails with, none of which can be left
    out; what else is known, where it fails without any, or the deadline (time.monotonic) comes first."""
    chosen = load_rules(selection.paths, precision=selection.precision, only=selection.only, skip=selection.skip)
    shipped = {file.path for file in shipped_files()}
    own = {r.base: r for r in chosen.rules if r.path not in shipped and not r.derives and suspicious(r)}

    def failing(kept: Sequence[str]) -> bool:
        require_time(deadline)
        skip = (*selection.skip, *(name for name in own if name not in kept))
        limited = replace(budget, seconds=min(budget.seconds, seconds_left(deadline)))
        with Worker(RuleSelection(selection.paths, selection.precision, selection.only, skip)) as worker:
            return fails(worker, limited)

    try:
        if not own or failing(()):
            return "the shipped rules (`eqfuse bisect` finds which)"
        found = [own[name] for name in minimal_failure(failing, sorted(own))]
    except OutOfTime:
        files = ", ".join(sorted({str(rule.path) for rule in own.values()}))
        return f"the rules of {files} (`eqfuse bisect` finds which)"
    return " and ".join(f"{r.path}:{r.line}:{r.column}: rule {r.base}" for r in found)
