"""The checker: samples of a rule's left side, a symbolic proof on the smallest, numbers on all.

A rule is refuted by the first sample on which it is wrong. It is proved if every sampled shape is proved for all
elements; a rule of element-wise operators is proved on scalars, and so for every shape. TASO (Jia et al.,
SOSP 2019, section 4) verifies its operator properties likewise, on all small shapes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from ...ir import operators as semantics
from ...ir.operators import Unsupported
from ...ir.operators.numbers import element_type
from ...rules import sexpr
from ...rules.binding import in_order_of_binding
from ...rules.commute import variables
from ...rules.places import DIRECTORY, is_analysis
from ...rules.records import Rule, RuleFile, conditions, own_example, parse_example, variants
from ...rules.sexpr import Atom, Form, Node
from ...rules.vocabulary import key_problem
from ...support.errors import RuleError, describe_error
from ...support.processes.worker_process import WorkerDiedError, WorkerFailedError, WorkerPool, WorkerProcess
from ...support.processor import available_cores
from .cache import CacheKeys, load, store
from .lemmas import RuleExpansion, TooManyDerivations, describe_missing_demand, expand_derived_facts
from .oracles.cancellation import find_cancellation
from .oracles.extremes import find_lost_number
from .oracles.numeric import Counterexample, draw_first, test_sample
from .oracles.onnx_oracle import Oracle, judge_together
from .proving.samples import SampleProofs, prove_samples
from .right_side import describe_types, makes_example, right_sides
from .sampling.by_key import key_misfit, write_constructors
from .sampling.coverage import missing_settings, settings
from .sampling.hits import Hit, example_hits, hits, hits_of_many_constants, operator_of_constants, seed
from .sampling.left_side import rename
from .sampling.near_ties import decides_about_rounded
from .sampling.samples import SAMPLES_PER_DIRECTION, Sample
from .sampling.scratch import EGGLOG_ADVICE, Conflict, EgglogPanicError, Fired, Scratch
from .sampling.symbolic_sizes import runs_at_other_sizes
from .sampling.terms import readable
from .sampling.types import TYPES
from .sampling.unmet import describe_unmet
from .unbounded.rule_proof import EVERY_SHAPE, prove_rule
from .verdict import KINDS, Kind, Verdict

Judge = Callable[[Rule, Sequence[Hit]], str]
"""A remark on a rule that is true, from the samples it fired on; "" for none. It has to be picklable."""


_ENDLESS = "it never ends, each application makes another match; `simplify` runs until nothing changes"
_SECONDS = 600.0
"""Seconds that the check of a rule may take: the slowest shipped ones take a few."""
_IDLE_SECONDS = 60.0
"""Seconds that a process waits for another rule before it frees its memory; a new one has to import z3 and egglog."""


@dataclass(frozen=True)
class Job:
    """A rule for a worker process to check."""

    rule: Rule
    declarations: str
    judge: Judge | None
    samples: int = SAMPLES_PER_DIRECTION


def check_rule(
    rule: Rule, scratch: Scratch, judge: Judge | None = None, samples: int = SAMPLES_PER_DIRECTION
) -> Verdict:
    """The verdict on one rule, from up to `samples` samples of each direction.

    It depends on what the rule says, and neither on its name nor on those of its variables. `scratch` has the
    declarations of the rule's file. `judge` makes the remark of an accepted rule.
    """
    verdict = _check_canonical(rule, scratch, judge, samples)
    for variant in _unlike_variants(rule) if verdict.accepted else ():
        mirrored = _check_canonical(variant, scratch, None, samples)
        if mirrored.kind == "idle" and not mirrored.samples:  # its result is there already, or it can never match
            continue
        if not mirrored.accepted:
            left = sexpr.read(variant.text).forms[0].items[1]
            return replace(mirrored, rule=rule.name, reason=f"its mirror image {left}, by @commutes: {mirrored.reason}")
        if KINDS.index(mirrored.kind) > KINDS.index(verdict.kind):
            verdict = replace(mirrored, rule=rule.name, remark=verdict.remark)
    return verdict


def _unlike_variants(rule: Rule) -> Iterator[Rule]:
    """The variants of a rule whose left sides do not compute what its own does, each with itself as its example.

    If all operators by which they differ commute, the variants are as true as the rule, and none is returned.
    """
    if all(map(_commutes, rule.commutes)):
        return
    for variant in variants(rule, sexpr.read(rule.text).forms[0])[1:]:
        example = own_example(sexpr.read(variant.text).forms[0])
        yield replace(variant, commutes=(), example=example)


@cache
def _commutes(head: str) -> bool:
    """Whether an operator of two operands computes the same from matrices in either order, in every type that it
    takes."""
    random = np.random.default_rng(0)
    for dtype in TYPES:
        a, b = (random.integers(1, 4, (2, 2)).astype(element_type(dtype)) for _ in range(2))
        if dtype != "bool" and not np.array_equal(_compute(head, a, b), _compute(head, b, a)):
            return False
        truths = (np.array([[False, False], [True, True]]), np.array([[False, True], [False, True]]))
        if dtype == "bool" and not np.array_equal(_compute(head, *truths), _compute(head, *truths[::-1])):
            return False
    return True


def _compute(head: str, *operands: Any) -> Any:
    try:
        return semantics.evaluate(head, list(operands))
    except Unsupported:
        return ()


def _check_canonical(rule: Rule, scratch: Scratch, judge: Judge | None, samples: int) -> Verdict:
    """The verdict on a rule without its mirrored variants."""
    own = canonical(rule)
    try:
        return own.with_author_names(_check(own.rule, scratch, judge, samples))
    except EgglogPanicError as error:
        return Verdict(rule.name, "unchecked", reason=f"{error}: {EGGLOG_ADVICE}", example=False)


def _check(rule: Rule, scratch: Scratch, judge: Judge | None, samples: int) -> Verdict:
    scratch.forget()
    if complaint := scratch.complaint(rule.program):
        return Verdict(rule.name, "unchecked", example=False, reason=f"egglog does not take the rule: {complaint}")
    if keys := _undefined_constructors(rule, scratch):
        return Verdict(rule.name, "idle", example=False, reason=f"nothing says what {', '.join(keys)} computes")
    by_direction = hits(rule, scratch, samples)
    example = example_hits(rule, scratch)
    try:
        expansions = expand_derived_facts(rule, scratch.declarations)
    except TooManyDerivations:
        reason = "the facts that it asks for are derived in more ways than can be checked"
        return Verdict(rule.name, "idle", example=bool(example), reason=reason)
    wanted = samples if len(expansions) <= _FEW_EXPANSIONS else max(samples // 3, 1)
    derived = {expansion: list(chain(*hits(expansion.rule, scratch, wanted))) for expansion in expansions}
    every = [*chain(*by_direction, *derived.values()), *example]
    counterexample, tested, untested = _test_numbers(rule, every, only_flips=False)
    if counterexample is None and rule.sound in ("exact", "real"):
        of_rules = ((rule, [*chain(*by_direction)]), *((each.rule, derived[each]) for each in expansions))
        deciding = (hits_of_many_constants(each, scratch, found) for each, found in of_rules)
        decided = (_test_numbers(rule, those, only_flips=True)[0] for those in deciding)
        counterexample = next(filter(None, decided), None)
    if counterexample is None and rule.sound == "real":
        random = np.random.default_rng(seed(rule))
        lost = (find_lost_number(those, random) for those in (*by_direction, *derived.values(), example))
        counterexample = next(filter(None, lost), None)
    if counterexample is None and rule.sound in ("real", "approx"):
        random = np.random.default_rng(seed(rule))
        cancelled = (
            find_cancellation(those, rule.sound, random) for those in (*by_direction, *derived.values(), example)
        )
        counterexample = next(filter(None, cancelled), None)
    every_sample = [hit.sample for hit in every]
    met = frozenset[str]().union(*map(settings, every_sample))
    uncovered = (*missing_settings(every_sample, met, rule.sound), *untested)
    blank = Verdict(rule.name, "idle", samples=tested, settings=len(met), example=bool(example), uncovered=uncovered)
    if counterexample is not None:
        return replace(blank, kind="refuted", reason=counterexample.reason, counterexample=counterexample)
    foreign = _foreign_keys(every)
    fired = any(by_direction) or any(derived.values())
    idle = _why_idle(rule, by_direction, example, fired, tested or len(foreign), scratch)
    idle = idle or next(filter(None, (key_problem(key) or key_misfit(key) for key in foreign)), "")
    if not idle and (unused := _unused_derivation(derived)):
        idle = f"no sample made it fire on what {unused} derives"
    if not idle and not makes_example(rule, example):
        idle = "what stands on the right of its example is not what the rule makes"
    if idle:
        return replace(blank, reason=idle)
    if endless := _endless_sample(rule, every, scratch):
        terms = "; ".join(readable(root) for root in endless.roots)
        return replace(blank, kind="refuted", reason=_ENDLESS, counterexample=Counterexample(terms, {}, "", "", "", ""))
    if foreign:
        names = ", ".join(dict.fromkeys(key.partition("/")[0] for key in foreign))
        return replace(blank, kind="assumed", reason=f"only its author knows what {names} computes")
    verdict = _prove(blank, rule, every)
    return replace(verdict, remark=judge(rule, every)) if judge and verdict.accepted else verdict


_FEW_EXPANSIONS = 8
"""With more ways to derive its facts than this, a rule gets fewer samples for each."""


def _unused_derivation(derived: Mapping[RuleExpansion, Sequence[Hit]]) -> str:
    """A rule that derives facts on which no sample made the checked rule fire; "" for none."""
    fired = {name for expansion, its_hits in derived.items() if its_hits for name in expansion.by}
    return next((name for expansion in derived for name in expansion.by if name not in fired), "")


def _undefined_constructors(rule: Rule, scratch: Scratch) -> list[str]:
    """Constructors in a rule that no operator defines.

    Such a rule unites everything under one key, and no sample has one key twice, so samples cannot test it. The shipped
    rules that have such constructors are true by an argument of their own.
    """
    if DIRECTORY in rule.path.parents:
        return []
    heads = {node.head for node in sexpr.walk(sexpr.read(rule.text).forms[0]) if isinstance(node, sexpr.Form)}
    return sorted(heads & set(_CONSTRUCTOR.findall(scratch.program)))


_CONSTRUCTOR = re.compile(r"\(constructor\s+([^\s()]+)")


def _why_idle(
    rule: Rule,
    by_direction: Sequence[Sequence[Hit]],
    example: Sequence[Hit],
    fired: bool,
    tested: int,
    scratch: Scratch,
) -> str:
    if not fired and (head := operator_of_constants(rule)):
        return f"it looks into a {head} of constants alone, and no rule sees what makes a constant: ask for a constant"
    if not fired and (missing := describe_missing_demand(rule, scratch.declarations)):
        return f"no sample made the rule fire: {missing}"
    if len(by_direction) == 2 and not all(by_direction):
        side = "right side, read backwards," if by_direction[0] else "left side"
        return f"no sample of the {side} made the rule fire: its conditions may contradict each other"
    if not fired and not example:
        reason = describe_unmet(rule, scratch, of_example=False) or "its conditions may contradict each other"
        return f"no sample of the left side made the rule fire: {reason}"
    if not tested:
        return "an operator of the rule has no meaning for any sample"
    if example:
        return ""
    reason = describe_unmet(rule, scratch, of_example=True)
    return ": ".join(filter(None, ("the rule does not fire on its example (its own left side if it has none)", reason)))


def _endless_sample(rule: Rule, every: Sequence[Hit], scratch: Scratch) -> Sample | None:
    """A sample on which a rule of `simplify`, which runs until nothing changes, never ends."""
    fired = [hit.sample for hit in every if isinstance(hit.outcome, Fired)] if rule.ruleset == "simplify" else []
    return next((sample for sample in fired[:2] if scratch.is_endless(rule.program, rule.ruleset, sample)), None)


def _foreign_keys(every: Sequence[Hit]) -> list[str]:
    """The keys of operators of other domains that the rule made."""
    classes = (c for hit in every if isinstance(hit.outcome, Fired) for c in hit.outcome.classes.values())
    return sorted({str(node.arguments[0]) for nodes in classes for node in nodes if node.head == "Op"})


def _test_numbers(
    rule: Rule, every: Sequence[Hit], *, only_flips: bool
) -> tuple[Counterexample | None, int, tuple[str, ...]]:
    """The first counterexample in numbers, the number of samples tested, and what could not be tested. With
    `only_flips`, only numbers beside flips of decisions are tried."""
    random = np.random.default_rng(seed(rule))
    tested = 0
    unwritten: Counterexample | None = None
    uncovered: dict[str, None] = {}
    ordered = sorted(every, key=_size)  # the smallest counterexample says most
    oracles = {id(hit): Oracle(hit.sample, hit.outcome) for hit in ordered if isinstance(hit.outcome, Fired)}
    if not only_flips:
        for oracle in oracles.values():
            oracle.elements = draw_first(oracle.sample, rule.sound, random)
        judge_together(list(oracles.values()))
    for hit in ordered:
        if isinstance(hit.outcome, Conflict):
            if hit.sample.symbols and not runs_at_other_sizes(hit.sample):
                continue
            return _explain_conflict(rule, hit.sample, hit.outcome), tested, tuple(uncovered)
        try:
            result = test_sample(hit.sample, hit.outcome, rule.sound, random, oracles[id(hit)], only_flips=only_flips)
        except Unsupported as error:
            uncovered.setdefault(f"a left side has no meaning: {error}")
            continue
        uncovered.update(dict.fromkeys(result.uncovered))
        unwritten = unwritten or result.unwritten
        tested += result.unwritten is None
        if result.counterexample is not None:
            return result.counterexample, tested, tuple(uncovered)
    return None if tested else unwritten, tested, tuple(uncovered)


def _size(hit: Hit) -> int:
    return sum(int(np.prod(leaf.type.shape)) for leaf in hit.sample.named_leaves)


def _explain_conflict(rule: Rule, sample: Sample, conflict: Conflict) -> Counterexample:
    function = next((name for name in ("shape", "dtype") if f"function {name}" in conflict.message), "")
    refused = f"the e-graph refuses the result: {conflict.message}"
    reason = f"the two sides differ in {function}" if function else refused
    made = None if sample.symbols else next(iter(right_sides(rule, sample)), None)
    if function and sample.symbols:
        names = ", ".join(f"n{-symbol}" for symbol in sample.symbols)
        reason += f" if sizes are symbolic ({names})"
    elif function and made is not None:
        reason += f": {describe_types(sample, made)}"
    term = "; ".join(readable(root) for root in sample.roots)
    return Counterexample(term, {}, "", "", "", reason, "" if made is None else readable(made))


def _prove(blank: Verdict, rule: Rule, every: Sequence[Hit]) -> Verdict:
    """The verdict on a rule that no number refutes: one prover tries every shape, and then another the sampled ones.

    If a prover fails, the fault is its own, and the rule counts as tested.
    """
    if rule.sound == "step":
        return replace(blank, kind="tested", reason=_STEP)
    faults: list[str] = []
    has_facts = any(leaf.nonneg or leaf.nonzero for hit in every for leaf in hit.sample.leaves)
    holds_always = _guard(lambda: prove_rule(rule).proved, default=False, faults=faults)
    proven = SampleProofs(complete=True, scope=EVERY_SHAPE)
    if has_facts or not holds_always:  # the sampled proof tells which facts it takes
        proven = _guard(lambda: prove_samples(every, rule.sound), default=SampleProofs(False), faults=faults)
    verdict = _add_proof(blank, proven)
    if verdict.kind != "refuted" and holds_always:
        kind: Kind = "proved" if verdict.kind == "tested" else verdict.kind
        verdict = replace(verdict, kind=kind, scope=EVERY_SHAPE, reason="")
    if verdict.kind in ("proved", "proved-if") and any(map(_decides_about_rounded, every)):
        verdict = replace(verdict, kind="tested", scope="", condition="", reason=_ROUNDED)
    return replace(verdict, uncovered=(*verdict.uncovered, *faults))


_STEP = "equal within half a step of each QuantizeLinear of its left side"
_ROUNDED = "proved over the real numbers; what an operator decides about rounded numbers is tested, near ties too"
_FAULT = "a fault of the checker, not of the rule: please report it with the rule"
_Result = TypeVar("_Result")


def _guard(prove: Callable[[], _Result], *, default: _Result, faults: list[str]) -> _Result:
    """The answer of a prover; `default` if it fails."""
    try:
        return prove()
    except Exception as error:  # whatever its kind, only this proof is lost
        faults.append(f"{_FAULT} (a prover failed: {describe_error(error)})")
        return default


def _decides_about_rounded(hit: Hit) -> bool:
    return isinstance(hit.outcome, Fired) and decides_about_rounded(hit.sample, hit.outcome)


def _add_proof(blank: Verdict, proven: SampleProofs) -> Verdict:
    if proven.counterexample is not None:
        reason = proven.counterexample.reason
        return replace(blank, kind="refuted", reason=reason, counterexample=proven.counterexample)
    if not proven.complete:
        return replace(blank, kind="tested", reason=proven.reason)
    kind: Kind = "proved-if" if proven.condition else "proved"
    return replace(blank, kind=kind, scope=proven.scope, condition=proven.condition)


# --- many rules


def scratch_for(*files: RuleFile) -> Scratch:
    """A scratch e-graph with the declarations of files, and with their rules that derive facts."""
    return _scratch(_declarations(files))


def _declarations(files: Sequence[RuleFile]) -> str:
    declared = (d.text for file in files for d in file.declarations)
    return "\n".join((*declared, *(rule.program for file in files for rule in file.rules if rule.derives)))


@cache
def _scratch(declarations: str) -> Scratch:
    return Scratch(declarations)


def rules_as_written(files: Iterable[RuleFile]) -> list[tuple[RuleFile, Rule]]:
    """The rules as their authors wrote them: without mirrored variants, and without those that only derive facts."""
    return [(f, rule) for f in files for rule in f.rules if rule.name == rule.base and not rule.derives]


def check_files(
    files: Sequence[RuleFile],
    *,
    chosen: Collection[str] | None = None,
    judge: Judge | None = None,
    use_cache: bool = True,
    workers: int | None = None,
    samples: int = SAMPLES_PER_DIRECTION,
) -> Iterator[Verdict]:
    """The verdicts on all rules of some files that are used together, or on the `chosen` ones, in order; mirrored
    variants share their original's.

    Runs in `workers` processes, by default one for each core, so that a rule that makes egglog crash is named.
    `use_cache`: take stored verdicts of earlier runs.
    """
    files = [file for file in files if not is_analysis(file.path)]  # every scratch e-graph has the analyses
    rules = [rule for _, rule in rules_as_written(files) if chosen is None or rule.name in chosen]
    keys = CacheKeys(files, samples)
    stored = {r.name: v for r in rules if use_cache and (v := load(keys.key(r))) is not None}
    declarations = _declarations(files)
    jobs = [Job(r, declarations, judge, samples) for r in rules if r.name not in stored]
    fresh = _POOL.ask_all(_ask, jobs, workers or available_cores())
    for rule in rules:
        verdict = stored.get(rule.name) or next(fresh)
        if rule.name not in stored:
            store(keys.key(rule), verdict)
        yield verdict


_POOL = WorkerPool(lambda: WorkerProcess(f"{__name__}:verdict_on", idle_seconds=_IDLE_SECONDS))
"""The processes are kept for the next files: each imports z3 and egglog."""


def _ask(process: WorkerProcess, job: Job) -> Verdict:
    """The verdict on the rule. Raises RuleError for one whose check takes too long."""
    try:
        verdict: Verdict = process.ask(job, _SECONDS)
    except WorkerDiedError as error:
        rule = job.rule
        if error.signal:
            return Verdict(rule.name, "unchecked", reason=f"its check {error}: {EGGLOG_ADVICE}", example=False)
        raise RuleError(f"{rule.path}:{rule.line}:{rule.column}: the check of {rule.name} {error}") from None
    except WorkerFailedError as error:
        reason = " ".join(f"{_FAULT} ({error})".split())
        return Verdict(job.rule.name, "unchecked", reason=reason, example=False)
    return verdict


def verdict_on(job: Job) -> Verdict:
    """The verdict on the rule."""
    return check_rule(job.rule, _scratch(job.declarations), job.judge, job.samples)


_NAME = '"rule"'
_OWN = re.compile(r"\b(?:variable|example)-\d+\b")
"""The names of variables in a canonical rule, and in its example."""
_ANYTHING = "_"
"""A wildcard: each mention of it is a variable of its own."""
_REFINEMENTS = 4
"""Rounds of refinement: if no chain of this many conditions tells two variables apart, they may change places, and the
rule with other names may get another canonical form. More rounds cost time and tell few more variables apart."""
_ITSELF = "itself"
_LAST_SIDE = 2
"""The place of the right side of a rewrite, and of the actions of a rule."""


@dataclass(frozen=True)
class CanonicalRule:
    """A rule whose variables are numbered in the order of their first mention. `names` has the author's."""

    rule: Rule
    names: dict[str, str]

    def with_author_names(self, verdict: Verdict) -> Verdict:
        """The verdict on the canonical rule as one on the author's."""
        example = verdict.counterexample
        if example is not None:
            example = replace(
                example,
                sample=self._restore(example.sample),
                made=self._restore(example.made),
                reason=self._restore(example.reason),
                elements={self._restore(name): elements for name, elements in example.elements.items()},
            )
        return replace(
            verdict,
            condition=self._restore(verdict.condition),
            reason=self._restore(verdict.reason),
            remark=self._restore(verdict.remark),
            uncovered=tuple(map(self._restore, verdict.uncovered)),
            counterexample=example,
        )

    def _restore(self, text: str) -> str:
        return _OWN.sub(lambda match: self.names.get(match[0], match[0]), text)


def canonical(rule: Rule) -> CanonicalRule:
    """The rule in the form that does not depend on its author's choices.

    Its variables have canonical names, and so have those of its example, which are not the rule's. Its conditions are
    in a canonical order. Constructors replace the keys of operators that have one.
    """
    form = sexpr.read(rule.text).forms[0]
    sides = () if form.head == "rule" else form.items[1 : _LAST_SIDE + 1]
    uses = _uses(form)
    form = in_order_of_binding(form, lambda ordered, condition: _newness((*sides, *ordered), condition, uses))
    own = _numbered(_expressions(form), "variable")
    items = (_rename_item(form, place, own) for place in range(len(form.items)))
    example = parse_example(rule.example)
    others = _numbered((*example.lefts, example.right), "example")
    lefts, right = (
        " ".join(str(write_constructors(rename(side, others))) for side in sides)
        for sides in (example.lefts, (example.right,))
    )
    renamed = replace(rule, text=str(write_constructors(Form(tuple(items)))), example=f"{lefts} => {right}")
    return CanonicalRule(renamed, {new: old for names in (own, others) for old, new in names.items()})


def _newness(before: Sequence[Node], condition: Node, uses: dict[str, str]) -> tuple[bool, int, str]:
    """A sort key that does not depend on the names of variables: first come conditions that mention a variable of the
    nodes `before` them, and of these the ones with the fewest new variables, which `uses` tells apart."""
    known = _numbered(before, "variable")
    mentioned = dict.fromkeys(v.text for v in variables(condition))
    new = len(mentioned.keys() - known.keys())
    return new == len(mentioned), new, str(rename(condition, {v: known.get(v, uses[v]) for v in mentioned}))


def _uses(form: Form) -> dict[str, str]:
    """A word for each variable, made from the expressions of the rule that use it, whatever the names of variables and
    the order of conditions are. As in colour refinement, each round adds the words of the variables beside it."""
    unordered = form.items[1].items if form.head == "rule" else conditions(form)  # type: ignore[union-attr]
    ordered = form.items[_LAST_SIDE].items if form.head == "rule" else form.items[1 : _LAST_SIDE + 1]  # type: ignore[union-attr]
    expressions = [("", node) for node in unordered] + [(str(place), node) for place, node in enumerate(ordered)]
    users: dict[str, list[tuple[str, Node]]] = {}
    for place, node in expressions:
        for name in dict.fromkeys(v.text for v in variables(node)):
            users.setdefault(name, []).append((place, node))
    words = dict.fromkeys(users, _ANYTHING)
    for _ in range(_REFINEMENTS):
        told = {
            name: sorted(f"{place} {rename(node, {**words, name: _ITSELF})}" for place, node in those)
            for name, those in users.items()
        }
        words = {name: sha256("\n".join(texts).encode()).hexdigest()[:12] for name, texts in told.items()}
    return words


def _numbered(nodes: Iterable[Node], word: str) -> dict[str, str]:
    """New names for the variables of some expressions, by the order of their first mention."""
    names = dict.fromkeys(v.text for node in nodes for v in variables(node) if v.text != _ANYTHING)
    return {name: f"{word}-{number}" for number, name in enumerate(names, 1)}


def _expressions(form: Form) -> Iterator[Node]:
    """The expressions with variables: both sides, the facts and the actions."""
    for place in range(1, len(form.items)):
        if _is_list(form, place):
            yield from form.items[place].items  # type: ignore[union-attr]
        elif place <= _LAST_SIDE:
            yield form.items[place]


def _is_list(form: Form, place: int) -> bool:
    """Whether an item is a list of facts or actions rather than a term."""
    is_facts = str(form.items[place - 1]) == ":when" or (form.head == "rule" and place <= _LAST_SIDE)
    return is_facts and isinstance(form.items[place], Form)


def _rename_item(form: Form, place: int, names: dict[str, str]) -> Node:
    item = form.items[place]
    if place and isinstance(item, Form) and _is_list(form, place):
        return Form(tuple(rename(each, names) for each in item.items))
    if 0 < place <= _LAST_SIDE:
        return rename(item, names)
    return Atom(_NAME) if str(form.items[place - 1]) == ":name" else item
