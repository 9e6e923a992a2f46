"""A check that no two distinct constants share an e-class, and the names of the rules that united them.

No sound set of rules unites distinct constants, so a run that does is worthless. Every e-node of a constant class is
computed in float64 from the values of its operands' classes, so that rounding does not pile up, and compared with the
class's first e-node. Constants of many elements are not computed, which keeps healthy runs fast.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from ..rules.places import shipped_files
from ..rules.vocabulary import RuleSelection
from ..support.deadlines import OutOfTime, require_time, seconds_left
from ..support.errors import EqfuseError, RuleError, describe_error
from ..support.minimal_failure import minimal_failure
from .egraph.encode import Encoding
from .egraph.folding import Array, Value, compute
from .egraph.graph import EGraph, ENode, NodePosition, WaitingNodes
from .egraph.saturate import Budget, UnsoundRuleError, saturate
from .egraph.worker import Worker
from .onnx.model import Model, elements
from .shapes.inference import Knowledge

if TYPE_CHECKING:
    from ..rules.loader import Rule


_MOST_ELEMENTS = 2**16
"""Larger constants are not computed; two stored ones are compared whatever their size."""
_MOST_IN_ALL = 2**19
"""The most elements that are computed, of the smallest constants first."""
_LEAVES = frozenset({"Weight", "Full"})
_WIDE = {"float32": "float64", "float16": "float64", "bfloat16": "float64"}
_ROUNDING = {"float16": 3e-4, "bfloat16": 3e-3}
_USUAL_ROUNDING = 1e-5
"""Relative change by rounding, also for float64: rules hold numbers like the root of 2 as exactly as for float32."""
_GENEROUS = 100
"""Differences of up to this many roundings are no conflict."""
_TRIALS = 3
"""Draws of rounded operands, to see how far rounding moves a result."""
_MOST_NAMED = 3
"""The most rules that an error names, since it is one line."""


@dataclass(frozen=True)
class Conflict:
    """Two e-nodes of one class that compute different constants; `first` and `second` say which and their values."""

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
    """Raise UnsoundRuleError if a class of the e-graph holds distinct constants.

    `selection` and `budget` are those of the saturation. If users' rules took part in it, it is repeated with fewer of
    them to find a smallest set that fails, for at most the time of two saturations.
    Returns whether the check was complete before the deadline (time.monotonic).
    """
    try:
        conflict = find_conflict(model, knowledge, egraph, deadline)
    except OutOfTime:
        return False
    if conflict is None:
        return True

    naming = time.monotonic() + 2 * budget.seconds

    def fails(worker: Worker, limited: Budget) -> bool:
        return find_conflict(model, knowledge, saturate(encoding, worker, limited), naming) is not None

    matched = {rule.name for rule in _matched_user_rules(selection, egraph)}
    names = _find_culprits(selection, budget, naming, fails, lambda rule: rule.name in matched)
    raise UnsoundRuleError(f"{names} proved two distinct constants equal: {conflict}")


@contextmanager
def name_culprits(encoding: Encoding, selection: RuleSelection, budget: Budget) -> Iterator[None]:
    """Add the rules that united terms of different types to an UnsoundRuleError of the saturation of `encoding`.

    For this the saturation is repeated with fewer rules, for at most the time of two saturations.
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
        names = _find_culprits(selection, budget, time.monotonic() + 2 * budget.seconds, fails, lambda _: True)
        raise UnsoundRuleError(f"{names} {error}") from None


def find_conflict(model: Model, knowledge: Knowledge, egraph: EGraph, deadline: float = inf) -> Conflict | None:
    """The conflict of the first class with distinct constants; None if no computed class has any.

    Raises OutOfTime at the deadline (time.monotonic).
    """
    suspects = [i for i, c in enumerate(egraph.classes) if c.constant and len(c.nodes) > 1 and i != egraph.absent]
    if not suspects:
        return None
    needed: set[int] = set()
    pending = list(suspects)
    while pending:
        owner = pending.pop()
        if owner not in needed and egraph.classes[owner].constant:
            needed.add(owner)
            pending += [c for node in egraph.classes[owner].nodes for c in node.children]
    return next(_Values(model, knowledge, egraph, _affordable(egraph, needed), deadline).conflicts(needed), None)


def _affordable(egraph: EGraph, needed: Iterable[int]) -> frozenset[int]:
    """The classes that are fast to compute, those of nodes with several outputs included."""
    types = {owner: egraph.classes[owner].type for owner in needed}
    sizes = sorted((0 if t is None else t.elements(), o) for o, t in types.items() if t is None or t.is_static)
    totals = accumulate(size * len(egraph.classes[owner].nodes) for size, owner in sizes)
    pairs = zip(sizes, totals, strict=True)
    return frozenset(owner for (size, owner), sum_ in pairs if size <= _MOST_ELEMENTS and sum_ <= _MOST_IN_ALL)


# --- values


@dataclass
class _Values:
    """Values of classes, floats in float64, each computed by the class's e-node in `first`."""

    model: Model
    knowledge: Knowledge
    egraph: EGraph
    affordable: frozenset[int]
    deadline: float = inf
    values: dict[int, Value] = field(default_factory=dict)
    first: dict[int, ENode] = field(default_factory=dict)

    def conflicts(self, needed: set[int]) -> Iterator[Conflict]:
        """Compute the needed classes, operands first, and yield the disagreements."""
        absent = self.egraph.absent
        self.values[absent] = None
        waiting = WaitingNodes()
        ready = [
            NodePosition(owner, place)
            for owner in sorted(needed - {absent})
            for place, node in enumerate(self.egraph.classes[owner].nodes)
            if waiting.add(NodePosition(owner, place), {*node.children} - {absent})
        ]
        ready.reverse()
        while ready:
            require_time(self.deadline)
            owner, place = ready.pop()
            node = self.egraph.classes[owner].nodes[place]
            value = self.value(owner, node)
            if value is None:
                continue
            if owner in self.first:
                if isinstance(value, np.ndarray) and (at := self.difference(owner, node, value)) is not None:
                    first = self.describe(self.first[owner], self.values[owner], at)
                    yield Conflict(first, self.describe(node, value, at))
                continue
            self.values[owner], self.first[owner] = value, node
            ready += waiting.provide(owner)

    def value(self, owner: int, node: ENode) -> Value:
        """The value of an e-node; None if it is too large or cannot be computed."""
        if node.op in _LEAVES:
            return self.leaf(owner, node)
        if node.op in ("Var", "Op") or owner not in self.affordable:
            return None
        return _compute(node, [self.values[c] for c in node.children])

    def leaf(self, owner: int, node: ENode) -> Value:
        """A stored value; None for a large one, unless its class holds another that could be distinct."""
        if owner not in self.affordable and sum(n.op in _LEAVES for n in self.egraph.classes[owner].nodes) == 1:
            return None
        if node.op == "Full":
            shape, number, dtype = node.attributes
            return np.broadcast_to(np.asarray(number, _WIDE.get(str(dtype), str(dtype))), shape)  # type: ignore[arg-type]
        name = str(node.attributes[0])
        small = self.knowledge.constants.get(name)
        array = elements(self.model.stored[name]) if small is None else small
        return array.astype(np.float64) if array.dtype.name in _WIDE else array

    def difference(self, owner: int, node: ENode, value: Array) -> tuple[int, ...] | None:
        """The place of an element that differs from the class's value by more than rounding; None if none does."""
        expected = self.values[owner]
        if not isinstance(expected, np.ndarray) or expected.dtype.kind not in "fiub" or expected.shape != value.shape:
            return None
        nodes = (self.first[owner], node)
        rounding = max(self.rounding(c) for c in (owner, *(c for n in nodes for c in n.children)))
        apart, allowed = _apart(expected, value), rounding * _largest(expected, value)
        wrong = apart > _GENEROUS * allowed
        if wrong.any():  # unless rounding of the operands moves the elements as far
            doubt = sum(self.movement(n, v, rounding) for n, v in zip(nodes, (expected, value), strict=True))
            wrong = apart > _GENEROUS * (allowed + doubt)
        return tuple(map(int, np.argwhere(wrong)[0])) if wrong.any() else None

    def rounding(self, owner: int) -> float:
        type_ = self.egraph.classes[owner].type
        return _ROUNDING.get(type_.dtype, _USUAL_ROUNDING) if type_ is not None else _USUAL_ROUNDING

    def movement(self, node: ENode, value: Array, rounding: float) -> Array:
        """How far each element moves when the operands are rounded."""
        random = np.random.default_rng(0)
        farthest = np.zeros(value.shape)
        for _ in range(_TRIALS):
            operands = [_round_randomly(self.values[c], rounding, random) for c in node.children]
            again = _round_randomly(value, rounding, random) if node.op in _LEAVES else _compute(node, operands)
            if isinstance(again, np.ndarray) and again.shape == value.shape:
                farthest = np.maximum(farthest, _apart(value, again))
        return farthest

    def describe(self, node: ENode, value: Value, at: tuple[int, ...]) -> str:
        element = value[at] if isinstance(value, np.ndarray) else value
        return f"{self.text(node)} is {element}" + (f" at {list(at)}" if at else "")

    def text(self, node: ENode) -> str:
        """An e-node with the names of its operands."""
        operands = [self.name(c) for c in node.children if c != self.egraph.absent]
        literals = ("[" + " ".join(map(str, a)) + "]" if isinstance(a, tuple) else str(a) for a in node.attributes)
        return f"({' '.join((node.op, *operands, *literals))})"

    def name(self, owner: int) -> str:
        """The value of a uniform constant, the name of a stored one, the operator of any other."""
        uniform = self.egraph.classes[owner].uniform
        if uniform is not None:
            return f"{uniform:g}"
        node = self.first.get(owner, self.egraph.classes[owner].nodes[0])
        return str(node.attributes[0]) if node.op == "Weight" else f"({node.op} ...)"


def _compute(node: ENode, operands: Sequence[Value]) -> Value:
    """The value of an e-node from the values of its operands; None if it cannot be computed."""
    literals = tuple(_WIDE.get(a, a) if isinstance(a, str) else a for a in node.attributes)
    if node.op == "Out":
        parts = operands[0]
        return parts[int(literals[0])] if isinstance(parts, tuple) else None  # type: ignore[arg-type]
    return compute(replace(node, attributes=literals), operands)


def _apart(one: Array, other: Array) -> Array:
    """Distances of elements; 0 if one is not finite, since rules need not preserve that."""
    if one.dtype.kind != "f":
        return np.asarray(one != other, np.float64)
    with np.errstate(all="ignore"):
        return np.asarray(np.nan_to_num(np.abs(one - other), nan=0.0, posinf=0.0))


def _largest(*values: Array) -> float:
    """The largest finite magnitude; 0 for integers and truth values, which are exact."""
    arrays = [np.abs(v[np.isfinite(v)]) for v in values if v.dtype.kind == "f"]
    return max((float(a.max()) for a in arrays if a.size), default=0.0)


def _round_randomly(value: Value, rounding: float, random: np.random.Generator) -> Value:
    """A value with random relative errors of at most `rounding`; integers stay exact."""
    if isinstance(value, tuple):
        return tuple(np.asarray(_round_randomly(part, rounding, random)) for part in value)
    if value is None or value.dtype.kind != "f":
        return value
    return np.asarray(value * (1 + rounding * random.uniform(-1, 1, value.shape)))


# --- the rules at fault


@contextmanager
def blame_user_rules(selection: RuleSelection, egraph: EGraph) -> Iterator[None]:
    """Turn an unexpected error into a RuleError with the users' rules that matched, if any did."""
    try:
        yield
    except (EqfuseError, OSError, MemoryError):
        raise
    except Exception as error:
        rules = _matched_user_rules(selection, egraph) if selection.rules else []
        if not rules:
            raise
        places = ", ".join(f"{r.path}:{r.line}:{r.column}: rule {r.name}" for r in rules[:_MOST_NAMED])
        more = f" and {len(rules) - _MOST_NAMED} more" if len(rules) > _MOST_NAMED else ""
        problem = f"what these make of the model cannot be used ({describe_error(error)})"
        raise RuleError(f"{places}{more}: {problem}") from error


def _matched_user_rules(selection: RuleSelection, egraph: EGraph) -> list[Rule]:
    """The rules of users' files that matched."""
    from ..rules.loader import load_selection  # with the linter, which takes a while

    chosen = load_selection(selection)
    shipped = {file.path for file in shipped_files()}
    matched = (chosen.by_name.get(r.name) for r in egraph.saturation.matched)
    return [rule for rule in matched if rule is not None and rule.path not in shipped]


def _find_culprits(
    selection: RuleSelection,
    budget: Budget,
    deadline: float,
    fails: Callable[[Worker, Budget], bool],
    suspicious: Callable[[Rule], bool],
) -> str:
    """The places and names of a smallest set of `suspicious` users' rules with which a saturation fails.

    At the deadline (time.monotonic) their files instead; the shipped rules if it fails without users' rules.
    """
    from ..rules.loader import load_selection

    chosen = load_selection(selection)
    shipped = {file.path for file in shipped_files()}
    own = {r.base: r for r in chosen.rules if r.path not in shipped and not r.derives and suspicious(r)}

    def fails_with(names: Sequence[str]) -> bool:
        require_time(deadline)
        skip = (*selection.skip, *(name for name in own if name not in names))
        limited = replace(budget, seconds=min(budget.seconds, seconds_left(deadline)))
        with Worker(replace(selection, skip=skip)) as worker:
            return fails(worker, limited)

    try:
        if not own or fails_with(()):
            return "the shipped rules (`eqfuse bisect` finds which)"
        culprits = [own[name] for name in minimal_failure(fails_with, sorted(own))]
    except OutOfTime:
        files = ", ".join(sorted({str(rule.path) for rule in own.values()}))
        return f"the rules of {files} (`eqfuse bisect` finds which)"
    return " and ".join(f"{r.path}:{r.line}:{r.column}: rule {r.base}" for r in culprits)
