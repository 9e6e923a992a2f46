"""Observing rules: why a value has its form, why a rule does not change a node, and how often rules match."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

import onnx_ir as ir

from ...engine.egraph.encode import Encoding, opaque_type
from ...engine.egraph.folding import FOLD
from ...engine.egraph.graph import EGraph, ENode, Saturation, Selection
from ...engine.egraph.plan import locate_origins
from ...engine.egraph.worker import Worker
from ...engine.onnx.model import Model
from ...extract.extraction.problem import ExtractionError
from ...extract.extraction.select import Criteria, select
from ...extract.extraction.sizes import Types
from ...rules.loader import Rule, RuleSet, load_rules, load_selection
from ...support.errors import UsageError
from ...tools.explain.cone import Rewriting
from ...tools.explain.explanation import Explanation, Instance, Unexplained, explain
from ...tools.explain.readable import Line
from ...tools.explain.session import OutOfTime
from ...tools.explain.why_not import LEAF_NAMES, Attempt, Diagnosis, Result, diagnose
from ..clock import Clock, Observer
from ..extract import criteria_for, extract_model
from ..options import Options
from ..saturate import saturate_model

__all__ = [  # with the types of the reports' fields, for those who show them
    "Attempt", "Explanation", "Instance", "Line", "Observation", "RewrittenValue", "Rule", "RuleUse", "ValueReport",
    "Verdict", "count_rule_uses", "diagnose_rule", "explain_value", "find_variants", "list_rewritten_values",
    "observe_model",
]  # fmt: skip

_NAMED = 5
"""The most values that a message names."""
_COSTED = 3
"""The most matches of one rule at one node whose cost is computed."""
_COST_LIMIT = 10.0
"""Seconds to compute one of those costs."""


@dataclass(frozen=True)
class Observation:
    """A model after saturation and extraction, with everything that was used on the way."""

    model: Model
    options: Options
    rewriting: Rewriting
    criteria: Criteria
    assumptions: Types

    @property
    def encoding(self) -> Encoding:
        """The graph as terms."""
        return self.rewriting.encoding

    @property
    def egraph(self) -> EGraph:
        """All terms that the rules prove equal."""
        return self.rewriting.egraph

    @property
    def selection(self) -> Selection:
        """The chosen terms."""
        return self.rewriting.selection

    def name(self, term: int) -> str:
        """The first name of a term's value, "" if it has none."""
        return next((name for name, t in self.encoding.values.items() if t == term), "")

    def original_operator(self, term: int) -> str:
        """The operator that makes a value in the original."""
        node = self.encoding.terms[term]
        return _operator_name(self.encoding.terms[node.children[0]] if node.op == "Out" else node)

    def chosen_operator(self, term: int) -> str:
        """The operator that makes a value in the result."""
        node = self.selection.choice[self.egraph.terms[term]]
        return _operator_name(self.selection.choice[node.children[0]] if node.op == "Out" else node)


def _operator_name(node: ENode) -> str:
    return opaque_type(node) if node.op == "Op" else LEAF_NAMES.get(node.op, node.op)


def observe_model(path: Path, options: Options, observer: Observer | None = None) -> Observation:
    """Optimise a model as `optimize` does, without checking rules, verifying or writing anything."""
    clock = Clock(observer)
    options = replace(options, trust_rules=True)
    with Worker(options.selection) as worker:
        saturated = saturate_model(path, None, options, worker, clock)
    criteria = criteria_for(options, saturated)
    selection = extract_model(saturated, criteria, options, clock).selection
    rewriting = Rewriting(saturated.encoding, saturated.egraph, selection, _load_rules(options))
    return Observation(saturated.simplified, options, rewriting, criteria, saturated.assumptions)


def _load_rules(options: Options) -> RuleSet:
    return load_selection(options.selection)


# --- explain


@dataclass(frozen=True)
class RewrittenValue:
    """A value that the result computes in another way: by the operator `after` instead of `before`."""

    name: str
    before: str
    after: str


def list_rewritten_values(run: Observation) -> tuple[RewrittenValue, ...]:
    """The values of the original that the result has in another form, in the original's order."""
    values = run.rewriting.rewritten_values.items()
    return tuple(RewrittenValue(name, run.original_operator(term), run.chosen_operator(term)) for name, term in values)


@dataclass(frozen=True)
class ValueReport:
    """A value with its explanation, or with the reason for having none.

    `rewritten` are values that it depends on and that were rewritten; the user may have meant one of them.
    """

    value: str
    explanation: Explanation | None
    reason: str = ""
    rewritten: tuple[str, ...] = ()


def explain_value(run: Observation, value: str) -> ValueReport:
    """Explain why a value has its form in the result.

    Raises UsageError if the original or the result has no such value; Unexplained if no chain of rules was found
    in time.
    """
    if value not in run.encoding.values:
        raise UsageError(f"--output {value}: the model has no such value{_suggest(value, run.encoding.values)}")
    term = run.encoding.values[value]
    if run.encoding.terms[term].op == "Var":
        raise UsageError(f"--output {value}: is an input of the graph, which no rule rewrites")
    if term in run.rewriting.fixed:
        return ValueReport(value, None, "is a constant: it is computed once, when the model is optimised")
    if not run.rewriting.is_computed(term):
        users: dict[int, list[int]] = {}
        for user, node in enumerate(run.encoding.terms):
            for child in set(node.children):
                users.setdefault(child, []).append(user)
        later = ", ".join(_nearest_names(run, term, lambda t: users.get(t, ()), run.rewriting.is_computed))
        raise UsageError(f"--output {value}: the result does not compute it any more; it does compute {later}")
    if run.rewriting.keeps(term):
        earlier = _nearest_names(run, term, lambda t: run.encoding.terms[t].children, run.rewriting.is_rewritten)
        return ValueReport(value, None, "is unchanged: the same operator over the same operands", earlier)
    try:
        return ValueReport(value, explain(term, run.rewriting, run.options.search_seconds))
    except (OutOfTime, Unexplained) as error:
        raise Unexplained(f"{value} cannot be explained: {error}") from error


def _suggest(name: str, names: Iterable[str]) -> str:
    near = get_close_matches(name, list(names), 1)
    return f"; did you mean {near[0]}?" if near else ""


def _nearest_names(
    run: Observation, start: int, neighbours: Callable[[int], Iterable[int]], is_wanted: Callable[[int], bool]
) -> tuple[str, ...]:
    """The names of the first wanted terms in each direction from a term, at most `_NAMED`."""
    nearest: list[int] = []
    seen, pending = {start}, deque(neighbours(start))
    while pending and len(nearest) < _NAMED:
        term = pending.popleft()
        if term not in seen:
            seen.add(term)
            if is_wanted(term):
                nearest.append(term)
            else:
                pending.extend(neighbours(term))
    return tuple(filter(None, map(run.name, nearest)))


# --- why-not


@dataclass(frozen=True)
class Verdict:
    """Whether a rule matches at a node, and whether its result was chosen.

    `outcome` says whether the extraction chose a match: the result has the right side of the rule (``chosen``), has it
    with parts in another form (``refined``), has the operator `instead` there (``rejected``), or nothing at all
    (``unused``); "" if nothing matched. `extra`: how much more the result would cost with the right side of a rejected
    match, in `unit`; None if no graph can have it.
    """

    diagnosis: Diagnosis
    outcome: Literal["chosen", "refined", "rejected", "unused", ""]
    instead: str = ""
    extra: float | None = None
    unit: str = ""


def find_variants(name: str, options: Options) -> tuple[Rule, ...]:
    """A rule of the run and its mirrored variants, or one of those by its own name. Raises UsageError for none."""
    rules = tuple(rule for rule in _load_rules(options).rules if name in (rule.name, rule.base))
    if not rules:
        catalogue = load_rules(options.rules, precision="fast").by_name
        if name in catalogue:
            sound = catalogue[name].sound
            reason = f"is {sound}" if sound in ("approx", "step") else "is left out by the options"
            raise UsageError(f"the rule {name} {reason}, so that the run does not use it")
        raise UsageError(f"no rule is called {name!r}{_suggest(name, catalogue)}")
    if rules[0].derives:
        raise UsageError(f"the rule {name} only derives facts: it rewrites no node")
    return rules


def diagnose_rule(run: Observation, candidates: Sequence[Rule], node: str) -> Verdict:
    """Try variants of a rule at a node, given by its name or that of one of its outputs.

    Raises UsageError if there is no such node.
    """
    terms = _node_terms(run, node)
    diagnosis = diagnose(candidates, terms, run.rewriting, run.options.search_seconds)
    results = [result for result in diagnosis.results if result.complete]
    if not results:
        return Verdict(diagnosis, "")
    if not run.rewriting.is_computed(results[0].term):
        return Verdict(diagnosis, "unused")
    if any(_is_chosen(run, result) for result in results):
        return Verdict(diagnosis, "chosen")
    for result in results:  # the outermost operator of a match's right side
        if run.selection.choice[run.egraph.terms[result.term]] in [node for _, node in result.nodes[:1]]:
            return Verdict(diagnosis, "refined")
    extra = [cost for result in results[:_COSTED] if (cost := _extra_cost(run, result)) is not None]
    unit = run.criteria.model.unit
    return Verdict(diagnosis, "rejected", run.chosen_operator(terms[0]), min(extra, default=None), unit)


def _node_terms(run: Observation, name: str) -> list[int]:
    """The terms of a node: of its outputs, and its own if it has several."""
    for node in run.model.graph:
        outputs = [o.name or "" for o in node.outputs]
        if name and name in (node.name, *outputs):
            return _terms_of(run, node, name, [name] if name in outputs else outputs)
    names = [n for node in run.model.graph for n in (node.name, *(o.name for o in node.outputs)) if n]
    raise UsageError(f"--node {name}: the model has no such node{_suggest(name, names)}")


def _terms_of(run: Observation, node: ir.Node, name: str, outputs: Sequence[str]) -> list[int]:
    terms = [run.encoding.values[o] for o in outputs if o in run.encoding.values]
    if not terms:
        raise UsageError(f"--node {name}: nothing in the model uses it")
    if node not in run.encoding.nodes and any(run.encoding.values.get(v.name or "") in terms for v in node.inputs if v):
        raise UsageError(f"--node {name}: passes its input on, which is what rules see in its place")
    own = [run.encoding.nodes[node]] if node in run.encoding.nodes else []
    return list(dict.fromkeys((*terms, *own)))


def _is_chosen(run: Observation, result: Result) -> bool:
    """Whether the result has all nodes of a match's right side."""
    if not result.nodes:  # an operand takes the place of the node
        return not run.rewriting.keeps(result.term)
    return all(run.selection.choice.get(owner) in (node, FOLD) for owner, node in result.nodes)


def _extra_cost(run: Observation, result: Result) -> float | None:
    """The extra cost of the cheapest graph that has the match; None if no graph can have it."""
    classes = list(run.egraph.classes)
    for owner, node in result.nodes:
        if not classes[owner].constant:
            classes[owner] = replace(classes[owner], nodes=(node,))
    forced = replace(run.egraph, classes=tuple(classes))
    origin = locate_origins(run.model.graph, run.encoding, run.egraph)
    try:
        selection = select(
            forced, run.encoding, origin, run.model.opset, run.criteria,
            time_limit=_COST_LIMIT, assumptions=run.assumptions,
        )  # fmt: skip
    except ExtractionError:
        return None
    return max(selection.cost - run.selection.cost, 0.0)


# --- stats


@dataclass
class RuleUse:
    """The matches of a rule and its mirrored variants, the models with a match, and the seconds it took."""

    rule: Rule
    matches: int = 0
    models: int = 0
    seconds: float = 0.0


def count_rule_uses(paths: Sequence[Path], options: Options, observer: Observer | None = None) -> tuple[RuleUse, ...]:
    """Saturate models, and count the matches of each rule of the run, in the order of the rule files."""
    rules = _load_rules(options)
    uses = {r.name: RuleUse(r) for r in rules.rules if r.name == r.base and not r.derives}
    for path in paths:
        matched: set[str] = set()
        for fired in _saturate(path, options, observer).rules:
            base = rules.by_name[fired.name].base if fired.name in rules.by_name else ""
            if base in uses:
                uses[base].matches += fired.matches
                uses[base].seconds += fired.seconds
                matched |= {base} if fired.matches else set()
        for base in matched:
            uses[base].models += 1
    return tuple(uses.values())


def _saturate(path: Path, options: Options, observer: Observer | None) -> Saturation:
    named = None if observer is None else (lambda phase, detail: observer(f"{path}: {phase}", detail))
    with Worker(options.selection) as worker:
        trusting = replace(options, trust_rules=True)  # nothing is written
        return saturate_model(path, None, trusting, worker, Clock(named)).egraph.saturation
