"""Discovery: enumerate terms, drop equations that follow from rules, check the others, and go on with the new rules.

This follows Ruler (Nandi et al., "Rewrite rule inference using equality saturation", OOPSLA 2021, section 3). But only
the best pair becomes a rule before the others are asked again, and the rule checker replaces Ruler's validation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...ir.operators import OPERATORS
from ...rules import sexpr
from ...rules.commute import variables
from ...rules.egglog_bindings import execute
from ...rules.loader import RuleSet
from ...rules.places import shipped_files
from ...rules.records import Rule, parse
from ...rules.sexpr import Atom, Form, Node, substitute
from ...support.errors import UsageError
from ..checking.check import check_rule
from ..checking.oracles.extremes import LEAVES_RANGE
from ..checking.overlap import COMMUTATIVE, overlaps
from ..checking.sampling.conditions import Type
from ..checking.sampling.scratch import Scratch, is_of_egglog
from ..checking.sampling.terms import Leaf, facts, literal_text
from ..checking.verdict import Verdict
from .candidates import Enumeration, Guards, Pair, Predictor, apply_guards, is_mirror_image, strengthen
from .language import VARIABLES, Domain, atoms_of, choose_domains, heads, names_of, reduces, subterms

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


_INFIX = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "Pow": "^", "And": "and", "Or": "or", "Xor": "xor"}
_NAMES = {"ReduceSum": "sum", "ReduceProd": "prod", "ReduceMean": "mean", "ReduceMax": "max", "ReduceMin": "min"}


def write_formula(node: Node) -> str:
    """A term in the notation of mathematics."""
    if isinstance(node, Atom):
        return node.text
    if node.head == "Full":
        return "1" if str(node.items[2]) == "1.0" else "v"
    parts = node.items[1 : 1 + len(OPERATORS[node.head].operands)]
    if node.head in _INFIX:
        return f" {_INFIX[node.head]} ".join(map(_factor, parts))
    if node.head == "Abs":
        return f"|{write_formula(parts[0])}|"
    if node.head == "Neg":
        return f"-{_factor(parts[0])}"
    if node.head == "Reciprocal":
        return f"1/{_factor(parts[0])}"
    if node.head == "BitShift":
        return f"{_factor(parts[0])} << {_factor(parts[1])}"
    return f"{_NAMES.get(node.head, node.head.lower())}({', '.join(map(write_formula, parts))})"


def _factor(node: Node) -> str:
    text = write_formula(node)
    bare = not isinstance(node, Form) or node.head not in (*_INFIX, "Neg", "Reciprocal", "BitShift")
    return text if bare else f"({text})"


def requirements(guards: Guards, left: Node) -> str:
    """The conditions in words."""
    names = names_of(left)
    said = ["floating point"] if guards.floating else []
    said += ["the reductions keep their axes"] if guards.keepdims and reduces(left) else []
    said += [f"{', '.join(names)} have one shape"] if guards.same_shape and len(names) > 1 else []
    said += [f"{n} {_sign(n, guards)}" for n in names if n in guards.nonneg or n in guards.nonzero]
    return ", ".join(said) or "none"


def _sign(name: str, guards: Guards) -> str:
    if name in guards.nonneg:
        return "> 0" if name in guards.nonzero else ">= 0"
    return "!= 0"


def properties(left: Node, right: Node) -> str:
    """The algebraic property that the rule states, in the terms of DNNFusion (PLDI 2021), Table 4."""
    if right in list(subterms(left))[1:] or _is_constant(right):
        return "identity"
    if is_mirror_image(left, right) or _exchanges(left, right):
        return "commutative"
    if any(head.startswith("Reduce") for head in heads(left)) and {"Add", "Sub"} & {*heads(left), *heads(right)}:
        return "linear"
    if _associative(left, right) or _homomorphism(left, right):
        return "associative"
    return "distributive" if _distributive(left, right) else "strength"


def _is_constant(node: Node) -> bool:
    return isinstance(node, Form) and node.head == "Full"


def _exchanges(left: Node, right: Node) -> bool:
    """f(g(a)) = g'(f'(a)), as a sum of exponentials and the exponential of a product."""
    one, other = heads(left), heads(right)
    unary = all(len(names_of(t)) == 1 and len(atoms_of(t)) == 1 for t in (left, right))
    return unary and len(one) == len(other) == 2 and one[0] != other[0] and one[1] != other[1]


def _associative(left: Node, right: Node) -> bool:
    kinds = {*heads(left), *heads(right)}
    return len(kinds) == 1 and kinds <= COMMUTATIVE and sorted(atoms_of(left)) == sorted(atoms_of(right))


def _homomorphism(left: Node, right: Node) -> bool:
    """f(a) * f(b) = f(a * b), or with another operation on the right."""
    one, other = sorted((left, right), key=lambda t: -len(heads(t)))
    same_leaves = sorted(atoms_of(one)) == sorted(atoms_of(other))
    unary = {h for h in heads(one) if len(OPERATORS[h].operands) == 1}
    outer, inner = heads(one)[:1], heads(other)[:1]
    return same_leaves and len(heads(one)) == 3 and len(heads(other)) == 2 and set(inner) == unary and outer != inner


def _distributive(left: Node, right: Node) -> bool:
    binary = {h for h in (*heads(left), *heads(right)) if len(OPERATORS[h].operands) == 2}
    return len(binary) > 1 and len(atoms_of(right)) < len(atoms_of(left))


@dataclass(frozen=True)
class Draft:
    """A rule before it is checked. `commutes` are commutative operators whose mirror images the record has to ask
    for."""

    name: str
    left: Node
    right: Node
    guards: Guards
    both: bool
    sound: str
    commutes: frozenset[str] = frozenset()

    def conditions(self) -> list[str]:
        """The conditions as the rule writes them."""
        names = names_of(self.left)
        first = names[0]
        uses_dtype = any(v.text == "t" for side in (self.left, self.right) for v in variables(side))
        asked = [f"(= t (dtype {first}))"] if uses_dtype else []
        asked += [f"(= (shape {first}) (shape {n}))" for n in names[1:]] if self.guards.same_shape else []
        asked += [f"(floating {first})"] if self.guards.floating else []
        asked += [f"(nonneg {n})" for n in names if n in self.guards.nonneg]
        return asked + [f"(nonzero {n})" for n in names if n in self.guards.nonzero]

    def command(self) -> str:
        """The egglog command."""
        left, right = apply_guards(self.left, self.guards), apply_guards(self.right, self.guards)
        head = "birewrite" if self.both else "rewrite"
        when = f"\n         :when ({' '.join(self.conditions())})" if self.conditions() else ""
        return f'({head} {left} {right}{when}\n         :ruleset explore :name "{self.name}")'

    def example(self) -> str:
        """Both sides, over leaves that fulfil the conditions."""
        signed = self.guards.nonneg | self.guards.nonzero
        names: dict[str, Node] = {n: Form((Atom("Exp"), Atom(n))) for n in signed}
        sides = [substitute(apply_guards(side, self.guards), names) for side in (self.left, self.right)]
        return " => ".join(map(str, sides))

    def record(self, remark: str = "") -> str:
        """The comment above the command; `remark` is a further line."""
        lines = [f"{write_formula(self.left)} = {write_formula(self.right)}", *([remark] if remark else [])]
        lines += [
            f"@property {properties(self.left, self.right)}",
            f"@sound {self.sound}",
            f"@requires {requirements(self.guards, self.left)}",
            "@source discovered",
            f"@example {self.example()}",
        ]
        mirrors = sorted(self.commutes.intersection(heads(self.left)))
        lines += [f"@commutes {' '.join(mirrors)}"] if mirrors and not self.both else []
        return "\n".join(f"; {line}" for line in lines)

    def rule(self) -> Rule:
        """The rule as the checker takes it."""
        return parse(Path("discovered.egg"), sexpr.read(f"{self.record()}\n{self.command()}\n")).rules[0]


def stem(left: Node) -> str:
    """The beginning of a rule's name."""
    return "-".join(("discovered", *dict.fromkeys(head.lower() for head in heads(left))))


def law(left: Node, right: Node) -> str:
    """The general law that the pair states about one operator: commutative, associative, or "" for neither."""
    if not isinstance(left, Form) or left.head not in COMMUTATIVE:
        return ""
    if is_mirror_image(left, right):
        return "commutative"
    distinct = len(names_of(left)) == 3 and len(heads(left)) == 2
    return "associative" if distinct and properties(left, right) == "associative" else ""


@dataclass(frozen=True)
class Discovered:
    """A rule that was found, and the checker's verdict. `left_out` says why the file has it only as a comment; "" if it
    is a rule there."""

    draft: Draft
    rule: Rule
    verdict: Verdict
    left_out: str = ""


def file_text(rules: Sequence[Discovered], head: Sequence[str]) -> str:
    """A rule file that begins with some lines of comment."""
    return "\n\n".join(("\n".join(f"; {line}" for line in head), *map(_entry, rules))) + "\n"


def _entry(one: Discovered) -> str:
    verdict = one.verdict
    scope = f" for {verdict.scope}" if verdict.scope else ""
    remark = f"{verdict.kind.replace('proved-if', 'proved')}{scope}, tested on {verdict.samples} samples"
    text = f"{one.draft.record(remark)}\n{one.draft.command()}"
    if not one.left_out:
        return text
    inner = "\n".join(f"; {line.removeprefix('; ')}" for line in text.splitlines())
    return f"; {one.left_out}:\n{inner}"
