"""The rules to look at: those of the catalogue and of users' files, and an example of each as ONNX."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from onnx import defs

from ...ir.operation import VARIADIC
from ...ir.operators import DOMAINS, OPERATORS, Operand, OperatorSchema
from ...rules.loader import Rule, load_rules
from ...rules.places import analysis_files
from ...rules.sexpr import Atom, Form, read
from ...support.errors import UsageError

_FIELDS = ("name", "topic", "ruleset", "formula", "properties", "sound", "requires", "source", "example")


def list_rules(paths: Sequence[Path], only: Sequence[str]) -> list[Rule]:
    """The shipped rules and those of files, or the rules of some groups, without mirrored variants and derivations."""
    loaded = load_rules(paths, precision="fast", only=only, domains=DOMAINS).rules
    return [rule for rule in loaded if rule.name == rule.base and not rule.derives]


def find_rule(name: str, paths: Sequence[Path]) -> Rule:
    """The shipped rule or the one of some files that has this name. Raises UsageError if there is none."""
    rules = load_rules(paths, precision="fast", domains=DOMAINS).by_name
    if name not in rules:
        near = get_close_matches(name, list(rules), 1)
        hint = f"; did you mean {near[0]}?" if near else "; `eqfuse rules list` names them all"
        raise UsageError(f"no rule is called {name!r}{hint}")
    return rules[name]


def record_of(rule: Rule) -> dict[str, Any]:
    """The record and the text of a rule, as plain data for JSON."""
    return {**{name: getattr(rule, name) for name in _FIELDS}, "file": rule.place, "text": rule.text}


def example_as_onnx(rule: Rule, paths: Sequence[Path]) -> tuple[str, str] | None:
    """A sample on which the rule fires, before and after; None if no sample of its example makes it fire."""
    from ...tools.checking.check import rules_as_written, scratch_for
    from ...tools.checking.right_side import before_and_after  # the list needs no checker
    from ...tools.checking.sampling.hits import example_hits

    files = load_rules(paths, precision="fast", domains=DOMAINS).files
    for file, candidate in rules_as_written(files):
        if candidate.base == rule.base:
            hits = sorted(example_hits(candidate, scratch_for(file)), key=lambda hit: hit.sample.is_empty)
            sides = (before_and_after(hit) for hit in hits)
            return next((pair for pair in sides if pair is not None), None)
    return None


TABLE_FACTS = ("nonneg", "nonzero", "finite", "apart-from-zero")
"""Facts that are derived for some operators only; `shape`, `dtype` and `const` are asked for of any."""

_NUMPY_NAMES = {"float": "float32", "double": "float64"}
"""Rules call element types as numpy does; ONNX calls these two otherwise."""


@dataclass(frozen=True)
class OperatorOperand:
    """A tensor argument, and the element types that ONNX lets it have; none are listed for other domains."""

    name: str
    optional: bool
    types: tuple[str, ...]


@dataclass(frozen=True)
class OperatorAttribute:
    """A literal argument: its sort, ONNX's default, None if there is none, and the opset from which ONNX has it as an
    input, None if it is an attribute."""

    name: str
    sort: str
    default: int | float | str | None
    input_since: int | None


@dataclass(frozen=True)
class OperatorRecord:
    """An operator: its term with the names of all arguments in order, and what the rules know and do about it.

    `outputs` above 1, or `sort` N, are read one by one, as ``(Out e 0)``. `facts` are each a fact with the name of the
    rule that derives it. `read_by` and `made_by` are numbers of shipped rules.
    """

    name: str
    domain: str
    category: str
    term: str
    sort: str
    operands: tuple[OperatorOperand, ...]
    attributes: tuple[OperatorAttribute, ...]
    outputs: int
    is_chain: bool
    facts: tuple[str, ...]
    read_by: int
    made_by: int


def list_operators() -> tuple[OperatorSchema, ...]:
    """The rows of the operator table, by category and name."""
    return tuple(sorted(OPERATORS.values(), key=lambda row: (row.category, row.name)))


def term_of(row: OperatorSchema) -> str:
    """The term with the names of its arguments, those that may be absent with a question mark."""
    names = (f"{a.name}?" if isinstance(a, Operand) and a.optional else a.name for a in row.arguments)
    return f"({' '.join((row.name, *names))})"


def describe_operator(name: str) -> OperatorRecord:
    """One operator. Raises UsageError if rules can look into none of that name."""
    row = OPERATORS.get(name)
    if row is None:
        near = get_close_matches(name, OPERATORS, 1)
        hint = f"did you mean {near[0]}?" if near else "`eqfuse rules operators` lists them"
        raise UsageError(f"rules can look into no operator {name!r}, only match its key as (Op ...); {hint}")
    types = _types(row)
    operands = tuple(
        OperatorOperand(each.name, each.optional, types[place] if place < len(types) else ())
        for place, each in enumerate(row.operands)
    )
    attributes = tuple(OperatorAttribute(a.name, a.kind, a.default, a.input_since) for a in row.attributes)
    rules = [rule for rule in load_rules((), precision="fast").rules if rule.name == rule.base and not rule.derives]
    sides = [_sides(rule, name) for rule in rules]
    return OperatorRecord(
        name, row.domain, row.category, term_of(row), row.sort, operands, attributes, row.outputs, name in VARIADIC,
        tuple(_facts(name)), sum(reads for reads, _ in sides), sum(makes for _, makes in sides),
    )  # fmt: skip


def _types(row: OperatorSchema) -> Sequence[tuple[str, ...]]:
    """The element types of each operand in the newest opset of the onnx package."""
    if row.domain or not defs.has(row.op_type):
        return ()
    schema = defs.get_schema(row.op_type)
    named = {each.type_param_str: each.allowed_type_strs for each in schema.type_constraints}
    types = [[each.removeprefix("tensor(").removesuffix(")") for each in named.get(i.type_str, (i.type_str,))]
             for i in schema.inputs]  # fmt: skip
    return [tuple(sorted(_NUMPY_NAMES.get(each, each) for each in own)) for own in types]


def _facts(name: str) -> Iterator[str]:
    """The facts that an analysis derives of a term of this operator."""
    for file in analysis_files():
        for rule in file.rules:
            form = read(rule.text).forms[0]
            if form.head != "rule" or not all(isinstance(each, Form) for each in form.items[1:3]):
                continue
            query, actions = form.items[1:3]
            assert isinstance(query, Form)
            assert isinstance(actions, Form)
            bound = {
                str(each.items[1])
                for each in query.items
                if isinstance(each, Form) and each.head == "=" and isinstance(each.items[-1], Form)
                and each.items[-1].head == name
            }  # fmt: skip
            for action in actions.items:
                if isinstance(action, Form) and action.head in TABLE_FACTS and str(action.items[1]) in bound:
                    yield f"({action.head} e) by {rule.name}"


def _sides(rule: Rule, name: str) -> tuple[bool, bool]:
    """Whether a rule reads a term of the operator, and whether it makes one."""
    form = read(rule.text).forms[0]
    left, right = (_mentions(part, name) for part in form.items[1:3])
    both_ways = form.head == "birewrite"
    return left or (both_ways and right), right or (both_ways and left)


def _mentions(part: Atom | Form, name: str) -> bool:
    if not isinstance(part, Form):
        return False
    return part.head == name or any(_mentions(item, name) for item in part.items)
