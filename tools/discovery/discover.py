"""Discovery: enumerate terms, drop equations that follow from rules, check the others, and go on with the new rules.

This follows Ruler (Nandi et al., "Rewrite rule inference using equality saturation", OOPSLA 2021, section 3). But only
the best pair becomes a rule before the others are asked again, and the rule checker replaces Ruler's validation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ...rules.egglog_bindings import execute
from ...rules.loader import RuleSet
from ...rules.places import shipped_files
from ...rules.sexpr import Atom, Node, substitute
from ...support.errors import UsageError
from ..checking.check import check_rule
from ..checking.oracles.extremes import LEAVES_RANGE
from ..checking.overlap import overlaps
from ..checking.sampling.conditions import Type
from ..checking.sampling.scratch import Scratch, is_of_egglog
from ..checking.sampling.terms import Leaf, facts, literal_text
from ..checking.verdict import Verdict
from .candidates import Enumeration, Pair
from .guards import Guards, Predictor, apply_guards, strengthen
from .language import VARIABLES, Domain, choose_domains, heads, names_of, reduces
from .write import Discovered, Draft, file_text, law, stem

_ANALYSE = "(saturate analysis)"
ROUNDS = 4
"""Rounds of rules for a question: the e-graph grows fast with each."""
SCHEDULE = f"{_ANALYSE} (repeat {ROUNDS} (seq simplify explore {_ANALYSE}))"
CHUNK = 24
"""Questions that share one e-graph: more save runs, but are asked in vain once a new rule answers them."""
_SAME = ((3, 4),) * 3
"""Shapes of the leaves in questions about a rule that asks for one shape."""
_DIFFERENT = ((3, 4), (2, 3, 4), (5, 2, 3, 4))
"""Shapes of the leaves in questions about a rule that does not ask for one shape, so that no rule that does can help to
derive it."""


@dataclass(frozen=True)
class Question:
    """Whether two terms are equal if their leaves have one `dtype` and fulfil `guards`."""

    left: Node
    right: Node
    guards: Guards
    dtype: str

    def leaves(self) -> dict[str, Leaf]:
        """The leaf for each variable."""
        shapes = _SAME if self.guards.same_shape else _DIFFERENT
        return {
            name: Leaf("Var", name, Type(shape, self.dtype), name in self.guards.nonneg, name in self.guards.nonzero)
            for name, shape in zip(VARIABLES, shapes, strict=True)
        }


class Deriver:
    """An e-graph with `declarations` (and the rules among them), for questions under further rules."""

    def __init__(self, declarations: str) -> None:
        self.declarations = declarations
        self.scratch = Scratch(declarations)

    def derive(self, rules: str, questions: Sequence[Question]) -> list[bool]:
        """For each question whether the rules prove the equality within `ROUNDS` rounds."""
        answers: list[bool] = []
        for start in range(0, len(questions), CHUNK):
            answers += self._chunk(rules, questions[start : start + CHUNK])
        return answers

    def _chunk(self, rules: str, questions: Sequence[Question]) -> list[bool]:
        try:
            return self._ask(rules, questions)
        except BaseException as error:
            if not is_of_egglog(error):
                raise
            self.scratch = Scratch(self.declarations)
            if len(questions) == 1:
                return [False]
            return [self._chunk(rules, [question])[0] for question in questions]

    def _ask(self, rules: str, questions: Sequence[Question]) -> list[bool]:
        egraph = self.scratch.egraph
        execute(egraph, "(push 1)")
        execute(egraph, rules)
        for number, question in enumerate(questions):
            execute(egraph, _state(number, question))
        execute(egraph, f"(run-schedule {SCHEDULE})")
        rows = egraph.freeze().functions["root"].rows
        roots = {egraph.value_to_i64(row.inputs[0]): row.output for row in rows}
        execute(egraph, "(pop 1)")
        return [roots[2 * i] == roots[2 * i + 1] for i in range(len(questions))]


def _state(number: int, question: Question) -> str:
    prefix = f"{number}."
    leaves = question.leaves()
    texts = {name: f'(Var "{prefix}{name}")' for name in VARIABLES}
    texts |= {"axes": literal_text((1,)), "k": "1", "v": "3.0", "t": f'"{question.dtype}"'}
    values = {name: Atom(text) for name, text in texts.items()}
    lines = [fact for leaf in leaves.values() for fact in facts(leaf, prefix)]
    for side, term in enumerate((question.left, question.right)):
        lines.append(f"(union (root {2 * number + side}) {substitute(term, values)})")
    return "\n".join(lines)


Report = Callable[[str], None]
MAX_SIZE = 4
"""Operators of a term, at most: each further one makes ten to thirty times as many terms."""
_ATTEMPTS = 4
"""How often a pair is tried under stronger conditions."""


@dataclass(frozen=True)
class Options:
    """`operators` by name, `size` the number of operators in the largest term.

    `catalogue`: rules whose consequences are not to be found again; None for none.
    """

    operators: tuple[str, ...]
    size: int = 3
    catalogue: RuleSet | None = None
    seed: int = 0


@dataclass
class Discovery:
    """The rules found, and the numbers of terms and pairs: `derived` pairs follow from rules, `refuted` ones are wrong.
    `commuting` are operators found to commute, if the catalogue mirrors its rules instead of stating that as a rule."""

    rules: list[Discovered] = field(default_factory=list)
    commuting: list[str] = field(default_factory=list)
    terms: int = 0
    pairs: int = 0
    derived: int = 0
    refuted: int = 0


@dataclass(frozen=True)
class _GuardedPair:
    """A pair under the conditions predicted for it, and the question whether it follows from the rules so far."""

    pair: Pair
    guards: Guards
    question: Question


def discover(options: Options, report: Report = lambda text: None) -> Discovery:
    """Find rules over some operators.

    Raises UsageError for an operator that cannot be enumerated and for a size beyond `MAX_SIZE`.
    """
    if not 1 <= options.size <= MAX_SIZE:
        raise UsageError(f"--size {options.size}: terms have 1 to {MAX_SIZE} operators")
    domains = choose_domains(options.operators)
    search = _Search(options, report)
    for domain in domains:
        search.domain(domain)
    return replace(search.result, rules=_mark_shipped(search.result.rules))


def rule_file(options: Options, discovery: Discovery) -> str:
    """The text of the rule file."""
    size = f"terms of up to {options.size} operator{'' if options.size == 1 else 's'}"
    head = [f"Rules over {', '.join(options.operators)} in {size}, found by `eqfuse rules discover`."]
    if options.catalogue is None:
        head.append("Found without the catalogue: laws over everything are among them, which multiply an e-graph.")
    if discovery.commuting:
        head.append(f"Commutative, which no rule says but @commutes: {', '.join(discovery.commuting)}.")
    return file_text(discovery.rules, head)


class _Search:
    def __init__(self, options: Options, report: Report) -> None:
        self.options, self.report = options, report
        self.result = Discovery()
        self.scratch = Scratch()
        self.deriver = Deriver(options.catalogue.program if options.catalogue else "")
        self.deriving: list[str] = []
        self.numbers: Counter[str] = Counter()
        self.taken = {r.name for r in options.catalogue.rules} if options.catalogue else set()

    def domain(self, domain: Domain) -> None:
        terms = Enumeration(domain, self.options.seed)
        predictor = Predictor(domain.dtype, self.options.seed + 1)
        terms.level(0)
        for size in range(1, self.options.size + 1):
            self.report(f"{domain.dtype}, terms of {size}")
            pairs = terms.level(size)
            self.result.pairs += len(pairs)
            candidates = [c for pair in pairs if (c := _predict_guards(pair, predictor)) is not None]
            self.result.refuted += len(pairs) - len(candidates)
            self._level(candidates, predictor)
        self.result.terms += terms.count

    def _level(self, waiting: list[_GuardedPair], predictor: Predictor) -> None:
        """Judge the candidates that do not follow from the rules, in order. Only the next few are asked after each new
        rule, because asking all would take long."""
        ready: list[_GuardedPair] = []
        while waiting or ready:
            if not ready:
                ready, waiting = self._open(waiting[:CHUNK]), waiting[CHUNK:]
                continue
            self.report(f"{len(self.result.rules)} rules, {len(ready) + len(waiting)} pairs to judge")
            candidate, *ready = ready
            if self._judge(candidate, predictor):
                ready = self._open(ready)

    def _open(self, waiting: Sequence[_GuardedPair]) -> list[_GuardedPair]:
        """The candidates that do not follow from the rules so far."""
        answers = self.deriver.derive("\n".join(self.deriving), [c.question for c in waiting])
        self.result.derived += sum(answers)
        return [c for c, follows in zip(waiting, answers, strict=True) if not follows]

    def _judge(self, candidate: _GuardedPair, predictor: Predictor) -> bool:
        """Whether the checker accepts the pair, under its conditions or stronger ones that do not make it follow."""
        pair, both = candidate.pair, candidate.pair.both
        for _ in range(_ATTEMPTS):
            guards = candidate.guards
            sound = "exact" if predictor.exact(pair.left, pair.right, guards) else "real"
            draft, verdict = self._check(Draft(self._name(pair), pair.left, pair.right, guards, both, sound))
            if verdict.accepted:
                self._accept(draft, verdict)
                return True
            if verdict.kind == "idle" and both:
                both = False
                continue
            further = strengthen(guards, verdict.reason, names_of(pair.left), reduces(pair.left))
            if verdict.kind == "idle" or further is None:
                break
            candidate = _under_guards(pair, further, predictor)
            if not self._open([candidate]):
                return False
        self.result.refuted += 1
        return False

    def _check(self, draft: Draft) -> tuple[Draft, Verdict]:
        """The verdict on the draft, or, if numbers refute its promise, on a draft that promises less."""
        verdict = check_rule(draft.rule(), self.scratch)
        if draft.sound == "exact" and verdict.kind == "refuted":
            return self._check(replace(draft, sound="real"))
        if draft.sound == "real" and verdict.reason.startswith(LEAVES_RANGE):
            return self._check(replace(draft, sound="approx"))
        return draft, verdict

    def _accept(self, draft: Draft, verdict: Verdict) -> None:
        stated = law(draft.left, draft.right) if self.options.catalogue else ""
        if stated == "commutative":  # beside the catalogue, a rule that matches every product would grow the e-graph
            self.deriving.append(replace(draft, name=f"{heads(draft.left)[0]}-commutes").command())
            self.result.commuting.append(heads(draft.left)[0])
            return
        self.deriving.append(draft.command())
        named = replace(draft, commutes=frozenset(self.result.commuting))
        self.numbers[stem(draft.left)] += 1
        self.taken.add(draft.name)
        left_out = "Over everything this would multiply the e-graph" if stated else ""
        self.result.rules.append(Discovered(named, named.rule(), verdict, left_out))

    def _name(self, pair: Pair) -> str:
        base = stem(pair.left)
        number = self.numbers[base] + 1
        while f"{base}-{number}" in self.taken:
            number += 1
        return f"{base}-{number}"


def _predict_guards(pair: Pair, predictor: Predictor) -> _GuardedPair | None:
    guards = predictor.guards(pair.left, pair.right)
    return None if guards is None else _under_guards(pair, guards, predictor)


def _under_guards(pair: Pair, guards: Guards, predictor: Predictor) -> _GuardedPair:
    dtype = predictor.dtype
    if dtype == "float32" and not guards.floating and predictor.integers(pair.left):
        dtype = "int32"  # so that rules for floating point cannot help to derive it
    left, right = (apply_guards(side, guards) for side in (pair.left, pair.right))
    return _GuardedPair(pair, guards, Question(left, right, guards, dtype))


def _mark_shipped(rules: Sequence[Discovered]) -> list[Discovered]:
    """Leave out rules that a rule of the catalogue states under the same conditions: beside it they would do
    nothing."""
    shipped = [r for file in shipped_files() for r in file.rules if r.name == r.base and not r.derives]
    names = {rule.name for rule in shipped}
    same = {
        o.rule.name: f"The catalogue's {o.other.name} says the same"
        for o in overlaps([*shipped, *(one.rule for one in rules)])
        if o.same and o.conditions and o.rule.name not in names and o.other.name in names
    }
    return [replace(one, left_out=one.left_out or same.get(one.rule.name, "")) for one in rules]
