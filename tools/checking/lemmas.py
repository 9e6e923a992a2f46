"""Rules of the user's files that derive facts, put into the rules that ask for these facts.

A derived fact says no more than the conditions of the rule that derives it, so a rewrite that asks for the fact is
checked as a rewrite that asks for these conditions. Chains of derivations may have any length: for every deriving rule,
and every place at which a rule asks for the derived fact, one way goes through it and derives the rest by the fewest
rules.

The shipped analyses derive some facts only on demand; a rule that asks for one without a demand of its own is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count, product
from math import inf

from ...rules import sexpr
from ...rules.binding import in_order_of_binding, place_of_conditions
from ...rules.commute import is_variable, variables
from ...rules.places import analysis_files
from ...rules.records import Rule, conditions, option
from ...rules.sexpr import Atom, Form, Node
from .sampling.left_side import Derivation, derivations_in, substitute

_MOST = 120
"""Ways to derive the facts of a rule, at most: to check more takes minutes."""
_MOST_TOGETHER = 16
"""Combinations of the derivations of several facts that are all checked; if there are more, only the shortest is."""


@dataclass(frozen=True)
class RuleExpansion:
    """A rule whose derived facts are replaced by the conditions of the rules that derive them, named in `by`."""

    by: tuple[str, ...]
    rule: Rule


class TooManyDerivations(Exception):
    """The facts of a rule are derived in more ways than can be checked."""


def expand_derived_facts(rule: Rule, declarations: str) -> list[RuleExpansion]:
    """The rule for each way to derive its facts by the rules among `declarations`; [] if it asks for none of their
    facts. Raises TooManyDerivations."""
    forms = sexpr.read(declarations).forms
    lemmas = _Lemmas([*derivations_in(forms), *_values_set(forms)], frozenset(_functions(forms)))
    form = sexpr.read(rule.text).forms[0]
    place = place_of_conditions(form)
    if place is None:
        return []
    facts: Form = form.items[place]  # type: ignore[assignment]
    result: dict[str, RuleExpansion] = {}
    for way in lemmas.ways(facts.items):
        by, conditions = way
        expanded = in_order_of_binding(Form((*form.items[:place], Form(conditions), *form.items[place + 1 :])))
        result.setdefault(" ".join(by), RuleExpansion(by, replace(rule, text=str(expanded))))
        if len(result) > _MOST:
            raise TooManyDerivations
    return list(result.values())


def _functions(forms: Sequence[Form]) -> Iterator[str]:
    """The functions that the files declare."""
    return (str(form.items[1]) for form in forms if form.head == "function")


def _values_set(forms: Sequence[Form]) -> Iterator[Derivation]:
    """The values that rules set for functions, as derivations of a fact with the value as one more argument."""
    for form in forms:
        actions = form.items[2] if form.head == "rule" else None
        for action in actions.items if isinstance(actions, Form) else ():
            if isinstance(action, Form) and action.head == "set" and isinstance(action.items[1], Form):
                conclusion = Form((*action.items[1].items, action.items[2]))
                premises = form.items[1].items if isinstance(form.items[1], Form) else ()
                yield Derivation(option(form, ":name"), conclusion, premises)


Step = tuple[int, Derivation]
"""The place of a derived fact among the facts of a rule, and the rule that derives it."""


@dataclass
class _Lemmas:
    """The derivations of a file, and the functions whose values it sets."""

    derivations: Sequence[Derivation]
    functions: frozenset[str]
    _fresh: Iterator[int] = field(default_factory=count)
    _flat: dict[int, tuple[Node, ...]] = field(default_factory=dict)
    """By the id of a derivation its premises, with lookups of the file's own functions as facts."""

    def __post_init__(self) -> None:
        heads = {d.conclusion.head for d in self.derivations}
        self.functions &= heads
        self._flat = {id(d): self._flatten(d.premises) for d in self.derivations}
        self._by_head = {head: [d for d in self.derivations if d.conclusion.head == head] for head in heads}
        self._cost = self._fewest_rules()

    def _flatten(self, facts: Sequence[Node]) -> tuple[Node, ...]:
        """Facts without lookups of the file's own functions: ``(= v (f x))`` becomes ``(f x v)``."""
        result: list[Node] = []
        for fact in facts:
            if isinstance(fact, Form) and fact.head == "=" and len(fact.items) == 3:
                sides = sorted(fact.items[1:], key=lambda side: not self._is_lookup(side))
                if self._is_lookup(sides[0]) and not self._looks_up(sides[1]):
                    assert isinstance(sides[0], Form)
                    result.append(Form((*sides[0].items, sides[1])))
                    continue
            result.append(self._without_lookups(fact, result))
        return tuple(result)

    def _is_lookup(self, node: Node) -> bool:
        return isinstance(node, Form) and node.head in self.functions

    def _looks_up(self, node: Node) -> bool:
        return any(self._is_lookup(part) for part in sexpr.walk(node))

    def _without_lookups(self, node: Node, facts: list[Node]) -> Node:
        if isinstance(node, Atom):
            return node
        inner = Form(tuple(self._without_lookups(item, facts) for item in node.items))
        if not self._is_lookup(node):
            return inner
        value = Atom(f"value-{next(self._fresh)}")
        facts.append(Form((*inner.items, value)))
        return value

    # --- which rules derive a fact

    def _fitting(self, fact: Node, facts: Sequence[Node]) -> list[Derivation]:
        """The rules that derive the fact, without those that derive it for other literals."""
        if not isinstance(fact, Form) or fact.head not in self._by_head:
            return []
        known = dict(_literal_equations(facts))
        items = [known.get(str(item), item) for item in fact.items[1:]]
        return [d for d in self._by_head[fact.head] if _fits(d.conclusion.items[1:], items)]

    def _fewest_rules(self) -> dict[int, float]:
        """By the id of a derivation the number of rules that it takes, including those for its premises; infinite if it
        has no end."""
        costs = {id(d): inf for d in self.derivations}
        for _ in self.derivations:
            for d in self.derivations:
                premises = self._flat[id(d)]
                costs[id(d)] = 1 + sum(self._least(fact, premises, costs) for fact in premises)
        return costs

    def _least(self, fact: Node, facts: Sequence[Node], costs: Mapping[int, float]) -> float:
        if not isinstance(fact, Form) or fact.head not in self._by_head:
            return 0
        return min((costs[id(d)] for d in self._fitting(fact, facts)), default=inf)

    def _steps(self, facts: Sequence[Node]) -> list[list[Step]]:
        """For each derived fact the derivations that have an end, those by the fewest rules first."""
        steps = []
        for place, fact in enumerate(facts):
            if isinstance(fact, Form) and fact.head in self._by_head:
                fitting = [d for d in self._fitting(fact, facts) if self._cost[id(d)] < inf]
                steps.append([(place, d) for d in sorted(fitting, key=lambda d: self._cost[id(d)])])
        return steps

    # --- the ways to derive all facts

    def ways(self, facts: Sequence[Node]) -> Iterator[tuple[tuple[str, ...], tuple[Node, ...]]]:
        """For each way the names of its rules, and the facts, with conditions of these rules in place of derived
        facts."""
        facts = self._flatten(facts)
        steps = self._steps(facts)
        if not steps or not all(steps):
            return
        together = list(product(*steps))
        for choice in together if len(together) <= _MOST_TOGETHER else [tuple(s[0] for s in steps)]:
            yield self._derive(facts, {place: [(place, d)] for place, d in choice})
        for path in self._paths(facts):
            yield self._derive(facts, {path[0][0]: path})

    def _paths(self, facts: Sequence[Node]) -> Iterator[list[Step]]:
        """A shortest path of derivations to each place at which a rule asks for a fact, and on to each rule that
        derives it."""
        waiting: list[list[Step]] = [[step] for steps in self._steps(facts) for step in steps]
        seen: set[int] = set()
        for path in waiting:
            yield path
            last = path[-1][1]
            if id(last) not in seen:
                seen.add(id(last))
                waiting += [[*path, step] for steps in self._steps(self._flat[id(last)]) for step in steps]

    def _derive(
        self, facts: Sequence[Node], paths: Mapping[int, Sequence[Step]]
    ) -> tuple[tuple[str, ...], tuple[Node, ...]]:
        """The names of the rules, and the conditions, if the facts at the places in `paths` are derived along these
        paths."""
        by: list[str] = []
        result: list[Node] = []
        firsts = {steps[0][0]: steps[0][1] for steps in self._steps(facts)}
        for place, fact in enumerate(facts):
            if place not in firsts:
                result.append(fact)
                continue
            assert isinstance(fact, Form)
            path = paths.get(place, ((place, firsts[place]),))
            derivation = path[0][1]
            inside = _conditions_of(derivation, self._flat[id(derivation)], fact, f"'{next(self._fresh)}")
            names, conditions = self._derive(inside, {path[1][0]: path[1:]} if len(path) > 1 else {})
            by += [derivation.rule, *names]
            result += conditions
        return tuple(by), tuple(result)


def _literal_equations(facts: Sequence[Node]) -> Iterator[tuple[str, Atom]]:
    """The variables that facts set equal to a literal."""
    for fact in facts:
        if isinstance(fact, Form) and fact.head == "=" and len(fact.items) == 3:
            one, other = fact.items[1:]
            for name, value in ((one, other), (other, one)):
                if isinstance(name, Atom) and is_variable(name) and isinstance(value, Atom) and not is_variable(value):
                    yield name.text, value


def _fits(own: Sequence[Node], items: Sequence[Node]) -> bool:
    """Whether a conclusion and a fact have the same number of arguments, and no two different literals in one place."""
    pairs = zip(own, items, strict=False)
    return len(own) == len(items) and not any(
        isinstance(a, Atom) and isinstance(b, Atom) and not is_variable(a) and not is_variable(b) and a.text != b.text
        for a, b in pairs
    )


def _conditions_of(lemma: Derivation, premises: Sequence[Node], fact: Form, suffix: str) -> tuple[Node, ...]:
    """The conditions under which a rule derives a fact; its other variables get names of their own."""
    nodes = (*premises, lemma.conclusion)
    values: dict[str, Node] = {v.text: Atom(f"{v.text}{suffix}") for node in nodes for v in variables(node)}
    bound: set[str] = set()
    equations: list[tuple[Node, Node]] = []
    for own, item in zip(lemma.conclusion.items[1:], fact.items[1:], strict=True):
        if isinstance(own, Atom) and is_variable(own) and own.text not in bound:
            bound.add(own.text)
            values[own.text] = item
        else:
            equations.append((own, item))
    conditions = [substitute(node, values) for node in premises]
    conditions += [Form((Atom("="), substitute(own, values), item)) for own, item in equations]
    return tuple(conditions)


_DEMAND = "-demand"
"""The end of the name of every relation by which a rule demands facts."""


def describe_missing_demand(rule: Rule, declarations: str) -> str:
    """The first fact that a rule asks for although no rule among `declarations` demands it, as part of a sentence; ""
    if there is none. Rules and analyses of other files may demand it for the rule's operators."""
    demanded = {row.head for row in _rows(sexpr.read(declarations).forms)}
    form = sexpr.read(rule.text).forms[0]
    facts = form.items[1] if form.head == "rule" else Form((form.items[1], *conditions(form)))
    for fact in (node for node in sexpr.walk(facts) if isinstance(node, Form)):
        demands = _demands().get(fact.head, frozenset())
        if demands and demands.isdisjoint(demanded):
            names = " or ".join(f"({demand} ...)" for demand in sorted(demands))
            return f"it asks for {fact}, which is derived on demand, and no rule of its file makes {names}"
    return ""


@cache
def _demands() -> dict[str, frozenset[str]]:
    """By fact the demands from which it is derived; facts that are derived without one are left out."""
    premises: dict[str, list[frozenset[str]]] = {}
    for form in (sexpr.read(rule.text).forms[0] for file in analysis_files() for rule in file.rules):
        if form.head == "rule":
            heads = frozenset(node.head for node in sexpr.walk(form.items[1]) if isinstance(node, Form))
            for row in _rows((form,)):
                premises.setdefault(row.head, []).append(heads)
    facts = {head for head in premises if not head.endswith(_DEMAND)}
    while free := {head for head in facts if any(not (_own(each) | each & facts) for each in premises[head])}:
        facts -= free
    behind = {head: frozenset[str]().union(*map(_own, premises[head])) for head in facts}
    for _ in facts:
        behind = {
            head: own or own.union(*(behind[other] for each in premises[head] for other in each & facts))
            for head, own in behind.items()
        }
    return behind


def _own(heads: Iterable[str]) -> frozenset[str]:
    return frozenset(head for head in heads if head.endswith(_DEMAND))


def _rows(forms: Iterable[Form]) -> Iterator[Form]:
    """The rows of tables that the actions of rules make."""
    for form in forms:
        actions: Node = form.items[2] if form.head == "rule" else Form(())
        for action in actions.items if isinstance(actions, Form) else ():
            if isinstance(action, Form) and action.head not in ("union", "let", "subsume", "delete"):
                row = action.items[1] if action.head == "set" else action
                if isinstance(row, Form):
                    yield row
