"""The left side of a rule, taken apart into the operator that makes each variable, and the other conditions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from random import Random

from ....ir.operators import OPERATORS, Operand
from ....rules import sexpr
from ....rules.commute import is_variable, variables
from ....rules.places import analysis_files
from ....rules.records import Rule, conditions, option
from ....rules.sexpr import Atom, Form, Node
from ....rules.vocabulary import PRIMITIVES
from .conditions import Equation, Expression, Test, compile_tests, expression, is_of_table
from .types import TYPES, result_types

# Sorts of the arguments of constructors that are no operators, by head.
LEAVES: dict[str, tuple[str, ...]] = {
    "Var": ("String",),
    "Weight": ("String",),
    "Full": ("Ints", "f64", "String"),
    "Absent": (),
    "Out": ("N", "i64"),
}
TENSOR_SORTS = ("T", "N")
ASSERTED = frozenset({"const", "nonneg", "nonzero", "finite", "floating", "scalar", "aged"})
"""Relations that can be asserted of a leaf; the others are traced back to the rules that derive them."""
FACTS_OF_ELEMENTS = ("nonneg", "nonzero", "finite")
"""Those that bound the elements of a leaf."""


@cache
def sorts_of(head: str) -> tuple[str, ...] | None:
    """Sorts of a constructor's arguments; None if the head is no constructor of tensors."""
    if head in LEAVES:
        return LEAVES[head]
    operator = OPERATORS.get(head)
    return tuple("T" if isinstance(a, Operand) else a.kind for a in operator.arguments) if operator else None


@dataclass(frozen=True)
class Application:
    """A constructor and its arguments: names of variables, or literals as `sexpr.Atom` or `sexpr.Form`."""

    head: str
    arguments: tuple[str | Node, ...]


class Contradiction(ValueError):
    """Two descriptions of one variable do not agree."""


@dataclass
class LeftSide:
    """`applications` has the constructor that makes a tensor variable; every other tensor variable is a leaf. In
    `conditions` terms stand as variables. `tensors` are the tensor variables in the order of their first mention,
    `numbers` the constants of the rule."""

    applications: dict[str, Application] = field(default_factory=dict)
    conditions: list[Node] = field(default_factory=list)
    tensors: dict[str, None] = field(default_factory=dict)
    numbers: tuple[float, ...] = ()
    decks: dict[str, list[float]] = field(default_factory=dict)
    """By element type the numbers that are still to be chosen for constants, before any comes again."""
    _terms: dict[str, str] = field(default_factory=dict)
    """Variables of terms by the text of the term."""
    _alias: dict[str, str] = field(default_factory=dict)
    _fresh: int = 0

    @cached_property
    def roots(self) -> list[str]:
        """Variables made by an operator that are no operand of another."""
        used = {a for application in self.applications.values() for a in application.arguments if isinstance(a, str)}
        return [v for v in self.applications if v not in used]

    @cached_property
    def widening_leaves(self) -> list[str]:
        """The leaves of which each may widen the result of an operator whose operands broadcast."""
        used = {a for application in self.applications.values() for a in application.arguments if isinstance(a, str)}
        leaves = [v for v in self.tensors if v in used and v not in self.applications]
        rows = (OPERATORS.get(application.head) for application in self.applications.values())
        return leaves if len(leaves) > 1 and any(row is not None and row.broadcasts for row in rows) else []

    @cached_property
    def possible_types(self) -> list[str]:
        """The element types admitted by all those operators whose results have the type of their operands."""
        every = [types for a in self.applications.values() if (types := result_types(a.head))]
        return [t for t in TYPES if all(t in types for types in every)] or list(TYPES)

    def name(self, variable: str) -> str:
        """The variable that stands for this one and all that are united with it."""
        while variable in self._alias:
            variable = self._alias[variable]
        return variable

    def _new_variable(self) -> str:
        self._fresh += 1
        return f"?{self._fresh}"

    @cached_property
    def _written_equations(self) -> list[tuple[tuple[str, ...], Form]]:
        """The conditions that are equations, each with the variables that it may bind. An equation that lists the
        elements of a vector binds each of these, too."""
        written = [
            (tuple(i.text for i in c.items[1:] if isinstance(i, Atom) and is_variable(i)), c)
            for c in self.conditions
            if isinstance(c, Form) and c.head == "="
        ]
        return [*written, *(each for names, c in written for name in names for each in _elements_of(Atom(name), c))]

    @cached_property
    def equations(self) -> list[Equation]:
        """The equations that bind variables."""
        return [Equation(names, form) for names, form in self._written_equations if names]

    @cached_property
    def tests(self) -> list[Test]:
        """The conditions that Python can decide without the e-graph."""
        return compile_tests(list(map(_tighten, self.conditions)))

    @cached_property
    def facts_of_tables(self) -> list[Node]:
        """The conditions that only the rows of a table satisfy."""
        return list(filter(is_of_table, self.conditions))

    @cached_property
    def lookups(self) -> dict[str, list[Expression]]:
        """The lookups in conditions, as ``(shape x)``, each with the expressions that equations set it equal to."""
        equal: dict[str, list[Expression]] = {}
        for condition in self.conditions:
            for node in sexpr.walk(condition):
                if isinstance(node, Form) and len(node.items) == 2 and isinstance(node.items[1], Atom):
                    equal.setdefault(str(node), [])
        for _, equation in self._written_equations:
            for item in equation.items[1:]:
                if isinstance(item, Form) and str(item) in equal:
                    equal[str(item)] += [expression(other) for other in equation.items[1:] if other is not item]
        return equal

    def components(self, vector: str) -> tuple[list[Expression], dict[int, list[Expression]]]:
        """The expressions that equations set the length of a vector equal to, and by place those for its elements."""
        return self.lookups.get(f"(vec-length {vector})", []), self._elements.get(vector, {})

    @cached_property
    def _elements(self) -> dict[str, dict[int, list[Expression]]]:
        """By vector and place the expressions that equations set an element equal to."""
        elements: dict[str, dict[int, list[Expression]]] = {}
        for _, equation in self._written_equations:
            for item in equation.items[1:]:
                if isinstance(item, Form) and item.head == "vec-get" and str(item.items[2]).isdigit():
                    others = [expression(other) for other in equation.items[1:] if other is not item]
                    of_vector = elements.setdefault(str(item.items[1]), {})
                    of_vector.setdefault(int(str(item.items[2])), []).extend(others)
        return elements

    @cached_property
    def assertions(self) -> dict[str, set[str]]:
        """By variable the relations that hold of it alone."""
        relations: dict[str, set[str]] = {}
        for condition in self.conditions:
            if isinstance(condition, Form) and len(condition.items) == 2:
                relations.setdefault(str(condition.items[1]), set()).add(condition.head)
        return relations

    @cached_property
    def facts_of_terms(self) -> tuple[str, ...]:
        """The facts about elements that hold of results of operators, which the analyses derive from those of leaves;
        all, if a relation is asked for that a file of rules declares itself."""
        heads = {condition.head for condition in self.conditions if isinstance(condition, Form)}
        if heads - PRIMITIVES - ASSERTED - _sorts_of_relations().keys():
            return FACTS_OF_ELEMENTS
        about = set[str]().union(*(self.assertions.get(variable, ()) for variable in self.applications))
        return tuple(fact for fact in FACTS_OF_ELEMENTS if fact in about)

    def is_constant(self, leaf: str) -> bool:
        """Whether conditions ask that a leaf depends on no input of a model."""
        asked = self.assertions.get(leaf, set()) & {"const", "scalar", "aged"}
        return bool(asked) or any(f"({function} {leaf})" in self.lookups for function in ("age", "pieces", "value"))

    def operator_of_constants(self) -> str:
        """The head of an operator that is an operand of another and has constants for all its own operands; "" if there
        is none."""
        used = {a for each in self.applications.values() for a in each.arguments if isinstance(a, str)}
        made = {v: a for v, a in self.applications.items() if v in used and a.head in OPERATORS}
        return next((a.head for v, a in made.items() if self._needs_constants_alone(v)), "")

    def _needs_constants_alone(self, variable: str) -> bool:
        application = self.applications.get(variable)
        if application is None or application.head not in OPERATORS:
            return self.is_constant(variable) or (application is not None and application.head in ("Weight", "Full"))
        sorts = sorts_of(application.head) or ()
        operands = [a for sort, a in zip(sorts, application.arguments, strict=True) if sort in TENSOR_SORTS]
        return bool(operands) and all(self._needs_constants_alone(str(each)) for each in operands)

    def without_bounds_of_sizes(self) -> LeftSide | None:
        """The left side without conditions that compare sizes, which may hold for the number that stands for a symbolic
        size although no size fulfils them; None if it has no such condition."""
        names = {a for each in self.applications.values() for a in _shape_attributes(each)}
        about_sizes = [c for c in self.conditions if _mentions_size(c, names)]
        while len(names) < len(names := names | {v for c in about_sizes for v in _bound(c)}):
            about_sizes = [c for c in self.conditions if _mentions_size(c, names)]
        kept = [c for c in self.conditions if c not in about_sizes or not _compares(c)]
        return None if len(kept) == len(self.conditions) else replace(self, conditions=kept)

    # --- building

    def add_facts(self, facts: Iterable[Node]) -> None:
        """Take in the facts of a rule. Raises Contradiction."""
        for fact in facts:
            if isinstance(fact, Form) and sorts_of(fact.head) is not None:
                self._term(fact)
            elif isinstance(fact, Form) and fact.head == "=" and any(map(_is_term, fact.items[1:])):
                first, *others = (self._term(item) for item in fact.items[1:])
                for other in others:
                    self._unite(first, other)
            else:
                self.conditions.append(self._name_terms(fact))
        self._resolve_aliases()

    def _term(self, node: Node) -> str:
        """The variable of a term; equal terms have one."""
        if isinstance(node, Atom):
            self.tensors.setdefault(self.name(node.text))
            return self.name(node.text)
        text = str(node)
        if text not in self._terms:
            sorts = sorts_of(node.head)
            if sorts is None or len(sorts) != len(node.items) - 1:
                raise Contradiction(f"{text} is no term")
            arguments = tuple(
                self._term(item) if sort in TENSOR_SORTS else self._literal(item)
                for sort, item in zip(sorts, node.items[1:], strict=True)
            )
            variable = self._new_variable()
            self._terms[text] = variable
            self.applications[variable] = Application(node.head, arguments)
            self.tensors.setdefault(variable)
        return self.name(self._terms[text])

    def _literal(self, node: Node) -> str | Node:
        if isinstance(node, Form) and any(True for _ in variables(node)):
            variable = self._new_variable()
            self.conditions.append(Form((Atom("="), Atom(variable), node)))
            return variable
        return node.text if is_variable(node) and isinstance(node, Atom) else node

    def _name_terms(self, node: Node) -> Node:
        """A condition with variables in the place of terms."""
        if isinstance(node, Atom):
            return node
        if sorts_of(node.head) is not None:
            return Atom(self._term(node))
        return Form(tuple(self._name_terms(item) for item in node.items))

    def _unite(self, first: str, second: str) -> None:
        """Make two variables of tensors or literals one."""
        first, second = self.name(first), self.name(second)
        if first == second:
            return
        if first.startswith("?") and not second.startswith("?"):
            first, second = second, first
        self._alias[second] = first
        self.tensors.pop(second, None)
        mine, other = self.applications.get(first), self.applications.pop(second, None)
        if other is None:
            return
        self.applications[first] = other
        if mine is not None:
            self._unify(mine, other)

    def _unify(self, one: Application, other: Application) -> None:
        if one.head != other.head:
            raise Contradiction(f"{one.head} is not {other.head}")
        sorts = sorts_of(one.head) or ()
        for sort, a, b in zip(sorts, one.arguments, other.arguments, strict=True):
            if sort in TENSOR_SORTS and isinstance(a, str) and isinstance(b, str):
                self._unite(a, b)
            elif isinstance(a, str) and isinstance(b, str):
                self.conditions.append(Form((Atom("="), Atom(a), Atom(b))))
            elif isinstance(a, str) or isinstance(b, str):
                variable, literal = (a, b) if isinstance(a, str) else (b, a)
                self.conditions.append(Form((Atom("="), Atom(str(variable)), literal)))  # type: ignore[arg-type]
            elif not _same_literal(a, b):
                raise Contradiction(f"{a} is not {b}")

    def _resolve_aliases(self) -> None:
        names = {v: self.name(v) for v in self._alias}
        for variable, application in list(self.applications.items()):
            arguments = tuple(names.get(a, a) if isinstance(a, str) else a for a in application.arguments)
            self.applications[variable] = Application(application.head, arguments)
        self.conditions = [rename(c, names) for c in self.conditions]


def _tighten(condition: Node) -> Node:
    """A condition with a tolerance of some roundings of float32, with one of float64 instead: the numbers of a sample
    are exact, and the rule is true within rounding."""
    if not isinstance(condition, Form) or condition.head not in ("<", "<="):
        return condition
    distance, bound = condition.items[1:]
    if getattr(distance, "head", "") != "abs" or not isinstance(bound, Atom) or not _is_rounding(bound.text):
        return condition
    return Form((condition.items[0], distance, Atom(_ROUNDING_OF_FLOAT64)))


def _is_rounding(text: str) -> bool:
    try:
        return 0 < float(text) <= _ROUNDING_OF_FLOAT32
    except ValueError:
        return False


_ROUNDING_OF_FLOAT32 = 2e-6
"""Some last bits of a number of size 1."""
_ROUNDING_OF_FLOAT64 = "0.000000000001"


def _shape_attributes(application: Application) -> Iterator[str]:
    """The variables that are shapes to which an operator brings its operand."""
    row = OPERATORS.get(application.head)
    for argument, variable in zip(row.arguments if row else (), application.arguments, strict=False):
        if argument.name == "shape" and isinstance(variable, str):
            yield variable


def _mentions_size(condition: Node, names: Set[str]) -> bool:
    """Whether a condition is about sizes, not only about ranks, or about one of the variables with these names."""
    if isinstance(condition, Atom):
        return condition.text in names
    if condition.head == "vec-length":
        return False
    return condition.head == "shape" or any(_mentions_size(item, names) for item in condition.items[1:])


def _bound(condition: Node) -> Iterator[str]:
    """The variables that an equation sets equal to something."""
    if isinstance(condition, Form) and condition.head == "=":
        yield from (item.text for item in condition.items[1:] if isinstance(item, Atom) and is_variable(item))


def _compares(condition: Node) -> bool:
    return isinstance(condition, Form) and condition.head in ("<", "<=", ">", ">=", "!=")


def _elements_of(vector: Atom, equation: Form) -> Iterator[tuple[tuple[str, ...], Form]]:
    """Equations for the variables that an equation lists as elements of a vector."""
    for other in equation.items[1:]:
        for place, item in enumerate(other.items[1:] if isinstance(other, Form) and other.head == "vec-of" else ()):
            if isinstance(item, Atom) and is_variable(item):
                yield (item.text,), Form((Atom("="), item, Form((Atom("vec-get"), vector, Atom(str(place))))))


def _is_term(node: Node) -> bool:
    return isinstance(node, Form) and sorts_of(node.head) is not None


def _same_literal(a: Node, b: Node) -> bool:
    try:
        return float(str(a)) == float(str(b))
    except ValueError:
        return str(a) == str(b)


def substitute(node: Node, values: Mapping[str, Node]) -> Node:
    """Put expressions in the place of variables."""
    if isinstance(node, Atom):
        return values.get(node.text, node) if is_variable(node) else node
    return Form((*node.items[:1], *(substitute(item, values) for item in node.items[1:])))


def rename(node: Node, names: Mapping[str, str]) -> Node:
    """Give variables other names."""
    return substitute(node, {name: Atom(new) for name, new in names.items()})


# --- the facts of a rule


def directions(rule: Rule) -> list[tuple[Node, ...]]:
    """The facts that make the rule fire, for each direction of a birewrite."""
    form = sexpr.read(rule.text).forms[0]
    if form.head == "rule":
        return [_items(form.items[1])]
    sides = form.items[1:3] if form.head == "birewrite" else form.items[1:2]
    return [(side, *conditions(form)) for side in sides]


def _items(node: Node) -> tuple[Node, ...]:
    return node.items if isinstance(node, Form) else ()


@dataclass(frozen=True)
class Derivation:
    """The rule of this name derives a fact about a relation, the conclusion, from premises."""

    rule: str
    conclusion: Form
    premises: tuple[Node, ...]


def derivations_in(forms: Iterable[Form]) -> Iterator[Derivation]:
    """The derivations of the rules among some forms."""
    for form in forms:
        for action in _items(form.items[2]) if form.head == "rule" else ():
            if isinstance(action, Form) and action.head not in ("set", "union", "let", "subsume", "delete"):
                yield Derivation(option(form, ":name"), action, _items(form.items[1]))


@cache
def derivations() -> dict[str, list[Derivation]]:
    """By relation the derivations of the analyses."""
    by_relation: dict[str, list[Derivation]] = {}
    for derivation in derivations_in(sexpr.read(r.text).forms[0] for file in analysis_files() for r in file.rules):
        by_relation.setdefault(derivation.conclusion.head, []).append(derivation)
    return by_relation


def _is_traceable(fact: Form, tensors: frozenset[str]) -> bool:
    return (
        fact.head not in ASSERTED
        and fact.head in derivations()
        and len(fact.items) > 1
        and all(isinstance(i, Atom) for i in fact.items)
        and (any(isinstance(i, Atom) and i.text in tensors for i in fact.items[1:]) or _is_arithmetic(fact.head))
    )


@cache
def _is_demand(relation: str) -> bool:
    """Whether a relation of literals only says that some tensor has them: egglog decides that."""
    return "T" not in _sorts_of_relations().get(relation, ("T",)) and all(
        set(_tensor_variables(each.premises)) - {str(i) for i in each.conclusion.items[1:]}
        for each in derivations()[relation]
    )


@cache
def _is_arithmetic(relation: str) -> bool:
    """Whether a relation of literals follows from arithmetic alone, apart from demands that some tensor has them."""
    rules = derivations().get(relation, [])
    heads = {n.head for rule in rules for fact in rule.premises for n in sexpr.walk(fact) if isinstance(n, Form)}
    return bool(rules) and not any(name in derivations() and not name.endswith("-shape") for name in heads)


def names_operators(facts: Sequence[Node]) -> bool:
    """Whether facts are about operators, and not only about facts of the analyses."""
    return any(_is_term(node) for fact in trace_facts(facts, Random(0)) for node in sexpr.walk(fact))


def trace_facts(facts: Sequence[Node], random: Random, depth: int = 4) -> tuple[Node, ...]:
    """The facts with each derived relation between tensors replaced by the premises of a rule that derives it."""
    facts = [each for fact in facts for each in _name_operands(fact, random)]
    tensors = frozenset(_tensor_variables(facts))
    result: list[Node] = []
    for fact in facts:
        if isinstance(fact, Form) and fact.head in derivations() and _is_demand(fact.head):
            continue
        if depth and isinstance(fact, Form) and _is_traceable(fact, tensors):
            derivation = random.choice(derivations()[fact.head])
            result += trace_facts(_premises_of(fact, derivation, random), random, depth - 1)
        else:
            result.append(fact)
    return tuple(result)


def _name_operands(fact: Node, random: Random) -> list[Node]:
    """A fact about terms and computed literals as one about variables, with their equations."""
    if not isinstance(fact, Form) or fact.head not in derivations() or fact.head in ASSERTED:
        return [fact]
    items, equations = [], []
    for item in fact.items:
        if isinstance(item, Form):
            variable = Atom(f"?{random.randrange(10**9)}")
            equations.append(Form((Atom("="), variable, item)))
            items.append(variable)
        else:
            items.append(item)
    return [*equations, Form(tuple(items))]


def _tensor_variables(facts: Iterable[Node]) -> Iterator[str]:
    relations = _sorts_of_relations()
    for fact in facts:
        for node in sexpr.walk(fact):
            if isinstance(node, Form):
                sorts = sorts_of(node.head) or relations.get(node.head, ())
                for sort, item in zip(sorts, node.items[1:], strict=False):
                    if sort in TENSOR_SORTS and isinstance(item, Atom):
                        yield item.text


@cache
def _sorts_of_relations() -> dict[str, tuple[str, ...]]:
    """Sorts of the arguments of every declared relation and function."""
    sorts: dict[str, tuple[str, ...]] = {}
    for declaration in (d for file in analysis_files() for d in file.declarations):
        form = sexpr.read(declaration.text).forms[0]
        if form.head in ("relation", "function") and isinstance(form.items[2], Form):
            sorts[str(form.items[1])] = tuple(map(str, form.items[2].items))
    return sorts


def _premises_of(fact: Form, derivation: Derivation, random: Random) -> list[Node]:
    """The premises from which a derivation concludes a fact."""
    names = {v.text: f"?{random.randrange(10**9)}" for p in derivation.premises for v in variables(p)}
    equations: list[Node] = []
    for item, own in zip(fact.items[1:], derivation.conclusion.items[1:], strict=True):
        if isinstance(own, Atom) and is_variable(own) and own.text in names and isinstance(item, Atom):
            if is_variable(item) and names[own.text].startswith("?"):
                names[own.text] = item.text
            else:
                equations.append(Form((Atom("="), Atom(names[own.text]), item)))
        else:
            equations.append(Form((Atom("="), rename(own, names), item)))
    return [rename(p, names) for p in derivation.premises] + equations
