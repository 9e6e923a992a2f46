"""What the rules did to a model: why a value has the form it has, and why a rule left a node alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Literal

import onnx_ir as ir

from ..engine.egraph.encode import Encoding, opaque_type
from ..engine.egraph.folding import FOLD
from ..engine.egraph.graph import EGraph, ENode, Saturation, Selection
from ..engine.egraph.plan import locate_origins
from ..engine.egraph.worker import Worker
from ..engine.onnx.model import Model
from ..errors import UsageError
from ..extract.extraction.problem import ExtractionError
from ..extract.extraction.select import Pricing, select
from ..rules.loader import Rule, load_rules
from ..tools.explain.explain import Explanation, Unexplained, explain
from ..tools.explain.probe import Result
from ..tools.explain.search import Search, is_unchanged
from ..tools.explain.session.session import OutOfTime
from ..tools.explain.why_not import Diagnosis, diagnose
from .clock import Clock, Observer
from .extract import cost_model_for, extract_model
from .options import Options
from .saturate import saturate_model

_NAMED = 5
"""How many values a message names."""
_PRICED = 3
"""How many matches of one rule at one node are priced."""
_PRICING_LIMIT = 10.0
"""Seconds for one of those prices."""


@dataclass(frozen=True)
class Optimized:
    """A model after saturation and extraction, with everything that was used on the way."""

    model: Model
    options: Options
    search: Search
    pricing: Pricing

    @property
    def unit(self) -> str:
        """What costs are in."""
        return self.pricing.model.unit

    @property
    def encoding(self) -> Encoding:
        """The graph as terms."""
        return self.search.encoding

    @property
    def egraph(self) -> EGraph:
        """What the rules made of it."""
        return self.search.egraph

    @property
    def selection(self) -> Selection:
        """What was chosen."""
        return self.search.selection

    @cached_property
    def fixed(self) -> frozenset[int]:
        """The terms that are inputs or constants, or computed from constants alone."""
        constant: set[int] = set()
        inputs: set[int] = set()
        for term, node in enumerate(self.encoding.terms):
            if node.op == "Var":
                inputs.add(term)
            elif constant.issuperset(node.children):
                constant.add(term)
        return frozenset(constant | inputs)

    def name(self, term: int) -> str:
        """The first name of a term's value, "" where it has none."""
        return next((name for name, t in self.encoding.values.items() if t == term), "")


def optimized(path: Path, options: Options, observer: Observer | None = None) -> Optimized:
    """Optimise a model as `optimize` does, without checking rules, verifying or writing anything."""
    clock = Clock(observer)
    options = replace(options, trust_rules=True)
    with Worker(options.selection) as worker:
        known = saturate_model(path, None, options, worker, clock)
    pricing = Pricing.of(cost_model_for(options, known))
    selection = extract_model(known, pricing, options, clock).selection
    rules = load_rules(options.rules, precision=options.precision, only=options.only, skip=options.skip)
    return Optimized(known.model, options, Search(known.encoding, known.egraph, selection, rules), pricing)


# --- explain


@dataclass(frozen=True)
class Rewritten:
    """A value that the result makes in another way: by `after` instead of `before`, two operators."""

    name: str
    before: str
    after: str


def rewritten(run: Optimized) -> tuple[Rewritten, ...]:
    """The values of the original that the result has in another form, in the original's order."""
    found = []
    seen: set[int] = set()
    for name, term in run.encoding.values.items():
        if term not in seen and _is_rewritten(run, term):
            found.append(Rewritten(name, _operator(run, run.encoding.terms[term]), _chosen_operator(run, term)))
        seen.add(term)
    return tuple(found)


def _is_rewritten(run: Optimized, term: int) -> bool:
    present = run.egraph.terms[term] in run.selection.choice
    return present and term not in run.fixed and not is_unchanged(term, run.search)


def _operator(run: Optimized, node: ENode) -> str:
    if node.op == "Out":
        node = run.encoding.terms[node.children[0]]
    return opaque_type(node) if node.op == "Op" else node.op


def _chosen_operator(run: Optimized, term: int) -> str:
    node = run.selection.choice[run.egraph.terms[term]]
    if node.op == "Out":
        node = run.selection.choice[node.children[0]]
    return opaque_type(node) if node.op == "Op" else node.op


@dataclass(frozen=True)
class Account:
    """A value and what there is to say about it: an explanation, or the reason for having none.

    `before` are values it depends on that were rewritten; one of them may be what was meant.
    """

    value: str
    explanation: Explanation | None
    reason: str = ""
    rewritten: tuple[str, ...] = ()


def account(run: Optimized, value: str) -> Account:
    """Explain a value.

    Raises UsageError where it is none of the original, or none that the result has; Unexplained where no chain of
    rules was found in time.
    """
    term = _term(run, value)
    if run.encoding.terms[term].op == "Var":
        raise UsageError(f"--output {value}: is an input of the graph, which no rule rewrites")
    if term in run.fixed:
        return Account(value, None, "is a constant: it is computed once, when the model is optimised")
    if run.egraph.terms[term] not in run.selection.choice:
        later = _nearest(_users(run), term, lambda t: run.egraph.terms[t] in run.selection.choice)
        known = ", ".join(filter(None, map(run.name, later)))
        raise UsageError(f"--output {value}: the result does not compute it any more; it does compute {known}")
    if is_unchanged(term, run.search):
        earlier = _nearest(_operands(run), term, lambda t: _is_rewritten(run, t))
        names = tuple(filter(None, map(run.name, earlier)))
        return Account(value, None, "is unchanged: the same operator over the same operands", names)
    try:
        return Account(value, explain(term, run.search, run.options.time_limit))
    except (OutOfTime, Unexplained) as error:
        raise Unexplained(f"{value} cannot be explained: {error}") from error


def _term(run: Optimized, value: str) -> int:
    if value not in run.encoding.values:
        raise UsageError(f"--output {value}: the model has no such value{_near(value, run.encoding.values)}")
    return run.encoding.values[value]


def _near(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, list(known), 1)
    return f"; did you mean {near[0]}?" if near else ""


def _operands(run: Optimized) -> Callable[[int], Iterable[int]]:
    return lambda term: run.encoding.terms[term].children


def _users(run: Optimized) -> Callable[[int], Iterable[int]]:
    found: dict[int, list[int]] = {}
    for term, node in enumerate(run.encoding.terms):
        for child in set(node.children):
            found.setdefault(child, []).append(term)
    return lambda term: found.get(term, ())


def _nearest(following: Callable[[int], Iterable[int]], start: int, wanted: Callable[[int], bool]) -> list[int]:
    """The first terms in each direction from a term on that are wanted, at most a handful."""
    found: dict[int, None] = {}
    seen, pending = {start}, deque(following(start))
    while pending and len(found) < _NAMED:
        term = pending.popleft()
        if term in seen:
            continue
        seen.add(term)
        if wanted(term):
            found.setdefault(term)
        else:
            pending.extend(following(term))
    return list(found)


# --- why-not


@dataclass(frozen=True)
class Verdict:
    """What became of a rule at a node.

    `outcome` says what the extraction made of a match: the result has what the rule makes (``chosen``), has it with
    parts in another form (``refined``), has the operator `instead` there (``rejected``), or nothing at all
    (``unused``); "" where nothing matched. `extra`: how much the result would cost more with what a rejected match
    makes, in `unit`; None where it cannot have it.
    """

    diagnosis: Diagnosis
    outcome: Literal["chosen", "refined", "rejected", "unused", ""]
    instead: str = ""
    extra: float | None = None
    unit: str = ""


def variants(name: str, options: Options) -> tuple[Rule, ...]:
    """A rule of the run and its mirrored variants; one of those alone by its own name. Raises UsageError for none."""
    rules = load_rules(options.rules, precision=options.precision, only=options.only, skip=options.skip)
    found = tuple(rule for rule in rules.rules if name in (rule.name, rule.base))
    if not found:
        known = load_rules(options.rules, precision="fast").by_name
        if name in known:
            reason = f"is {known[name].sound}" if known[name].sound == "approx" else "is left out by the options"
            raise UsageError(f"the rule {name} {reason}, so that the run does not use it")
        raise UsageError(f"no rule is called {name!r}{_near(name, known)}")
    if found[0].derives:
        raise UsageError(f"the rule {name} only derives facts: it rewrites no node")
    return found


def why_not(run: Optimized, candidates: Sequence[Rule], node: str) -> Verdict:
    """Try variants of a rule at a node, given by its name or that of one of its outputs.

    Raises UsageError where there is no such node.
    """
    terms = _node_terms(run, node)
    diagnosis = diagnose(candidates, terms, run.search, run.options.time_limit)
    results = [result for result in diagnosis.results if result.complete]
    if not results:
        return Verdict(diagnosis, "")
    if run.egraph.terms[results[0].term] not in run.selection.choice:
        return Verdict(diagnosis, "unused")
    if any(_is_chosen(run, result) for result in results):
        return Verdict(diagnosis, "chosen")
    if any(_is_refined(run, result) for result in results):
        return Verdict(diagnosis, "refined")
    instead = _chosen_operator(run, terms[0])
    extra = min((e for e in (_extra(run, r) for r in results[:_PRICED]) if e is not None), default=None)
    return Verdict(diagnosis, "rejected", instead, extra, run.unit)


def _node_terms(run: Optimized, name: str) -> list[int]:
    """The terms of a node: of its outputs, and its own where it has several."""
    for node in run.model.graph:
        outputs = [o.name or "" for o in node.outputs]
        if name and name in (node.name, *outputs):
            return _terms_of(run, node, name, [name] if name in outputs else outputs)
    names = [n for node in run.model.graph for n in (node.name, *(o.name for o in node.outputs)) if n]
    raise UsageError(f"--node {name}: the model has no such node{_near(name, names)}")


def _terms_of(run: Optimized, node: ir.Node, name: str, outputs: Sequence[str]) -> list[int]:
    terms = [run.encoding.values[o] for o in outputs if o in run.encoding.values]
    if not terms:
        raise UsageError(f"--node {name}: nothing in the model uses it")
    if node not in run.encoding.nodes and any(run.encoding.values.get(v.name or "") in terms for v in node.inputs if v):
        raise UsageError(f"--node {name}: passes its input on, which is what rules see in its place")
    own = [run.encoding.nodes[node]] if node in run.encoding.nodes else []
    return list(dict.fromkeys((*terms, *own)))


def _is_chosen(run: Optimized, result: Result) -> bool:
    """Whether the result of the optimisation has what a match made."""
    if not result.nodes:  # an operand takes the place of the node
        return not is_unchanged(result.term, run.search)
    return all(run.selection.choice.get(owner) in (node, FOLD) for owner, node in result.nodes)


def _is_refined(run: Optimized, result: Result) -> bool:
    """Whether the result has the outermost operator that a match made."""
    return run.selection.choice[run.egraph.terms[result.term]] in [node for _, node in result.nodes[:1]]


def _extra(run: Optimized, result: Result) -> float | None:
    """What the cheapest graph that has the match costs more; None where no graph can have it."""
    classes = list(run.egraph.classes)
    for owner, node in result.nodes:
        if not classes[owner].constant:
            classes[owner] = replace(classes[owner], nodes=(node,))
    forced = replace(run.egraph, classes=tuple(classes))
    origin = locate_origins(run.model.graph, run.encoding, run.egraph)
    try:
        selection = select(forced, run.encoding, origin, run.model.opset, run.pricing, time_limit=_PRICING_LIMIT)
    except ExtractionError:
        return None
    return max(selection.cost - run.selection.cost, 0.0)


# --- stats


@dataclass(frozen=True)
class Use:
    """What a rule, with its mirrored variants, did to some models: matches, models it matched in, seconds it took."""

    rule: Rule
    matches: int
    models: int
    seconds: float

    def plus(self, matches: int, seconds: float) -> Use:
        """With more matches and more time."""
        return replace(self, matches=self.matches + matches, seconds=self.seconds + seconds)


def usage(paths: Sequence[Path], options: Options, observer: Observer | None = None) -> tuple[Use, ...]:
    """Saturate models, and count what each rule of the run did, in the order of the rule files."""
    rules = load_rules(options.rules, precision=options.precision, only=options.only, skip=options.skip)
    found = {r.name: Use(r, 0, 0, 0.0) for r in rules.rules if r.name == r.base and not r.derives}
    for path in paths:
        fired: set[str] = set()
        for used in _saturated(path, options, observer).rules:
            base = rules.by_name[used.name].base if used.name in rules.by_name else ""
            if base in found:
                found[base] = found[base].plus(used.matches, used.seconds)
                fired |= {base} if used.matches else set()
        found |= {name: replace(found[name], models=found[name].models + 1) for name in fired}
    return tuple(found.values())


def _saturated(path: Path, options: Options, observer: Observer | None) -> Saturation:
    told = None if observer is None else (lambda phase, detail: observer(f"{path}: {phase}", detail))
    with Worker(options.selection) as worker:
        trusting = replace(options, trust_rules=True)  # nothing is written
        return saturate_model(path, None, trusting, worker, Clock(told)).egraph.saturation
