"""Mistakes inside one rule: in its expressions, its variables, its record."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from ..ir.operators import OPERATORS, Operand
from .binding import ABORTING, bound_by, bound_by_tables, unbound_in
from .commute import is_variable, swappable, swaps, variables
from .records import DERIVING, FIELDS, PROPERTIES, SOUNDNESS, conditions, option, parse_example, record
from .sexpr import Atom, Form, Node, SexprError, walk
from .vocabulary import ACTIONS, PRIMITIVES, RUN, Vocabulary, key_problem, nearest


class Finding(NamedTuple):
    """A message about what stands at an offset."""

    offset: int
    message: str


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
OPTIONS = {
    "rewrite": (":when", ":ruleset", ":name", ":subsume"),
    "birewrite": (":when", ":ruleset", ":name"),
    "rule": (":ruleset", ":name", ":naive", ":no-decomp"),
}
REQUIRED = ("property", "sound")
MAX_SWAPS = 6


def check_rule(
    form: Form, comment: Sequence[Atom], vocabulary: Vocabulary, own: Collection[str] | None
) -> Iterator[Finding]:
    """All findings about a ``rewrite``, ``birewrite`` or ``rule``.

    `own` are the relations and functions of the files beside the shipped ones: their rules state facts of no others;
    None for a shipped rule.
    """
    malformed = list(_structure(form))
    if malformed:
        yield from malformed
        return
    yield from _name_and_ruleset(form)
    if option(form, ":ruleset") != DERIVING:
        yield from _record(form, comment, vocabulary)
    if own is not None or option(form, ":ruleset") != DERIVING:  # shipped analyses know their ranks
        yield from _check_failure(form)
    expressions = [finding for fact in _facts(form) for finding in _calls(fact, vocabulary, frozenset())]
    for addition in _additions(form):
        expressions += _calls(addition, vocabulary, ACTIONS if form.head == "rule" else frozenset())
        expressions += _lookups(addition, vocabulary)
    yield from expressions
    if not expressions:
        yield from _variables(form, vocabulary)
        yield from _actions(form, vocabulary, own)


def check_condition(form: Form, vocabulary: Vocabulary) -> Iterator[Finding]:
    """All findings about ``(condition (name parameters...) facts...)``."""
    head, facts = (form.items[1], form.items[2:]) if len(form.items) > 2 else (form, ())
    if not facts or not isinstance(head, Form) or not head.head or not all(map(is_variable, head.items)):
        yield Finding(form.start, "a condition is (condition (name parameters...) facts...)")
        return
    parameters = {str(item) for item in head.items[1:]} | {"_"}
    for fact in facts:
        yield from _calls(fact, vocabulary, frozenset())
        for variable in variables(fact):
            if variable.text not in parameters:
                yield Finding(variable.start, f"the variable {variable} is no parameter of the condition {head.head}")


def _structure(form: Form) -> Iterator[Finding]:
    parts = form.items[1:3]
    if len(parts) < 2 or any(isinstance(p, Atom) and p.text.startswith(":") for p in parts):
        yield Finding(form.start, f"a {form.head} needs two parts before its options")
        return
    if form.head == "rule" and any(isinstance(item, Atom) for part in parts for item in (part, *_items(part))):
        yield Finding(form.start, "a rule is (rule (facts...) (actions...) options...)")
        return
    for item in form.items[3:]:
        if isinstance(item, Atom) and item.text.startswith(":") and item.text not in OPTIONS[form.head]:
            yield Finding(item.start, f"{form.head} has no option {item.text}{nearest(item.text, OPTIONS[form.head])}")


def _name_and_ruleset(form: Form) -> Iterator[Finding]:
    name, ruleset = option(form, ":name"), option(form, ":ruleset")
    if not name:
        yield Finding(form.start, 'the rule has no :name "..."')
    elif not NAME.fullmatch(name):
        yield Finding(form.start, f"the name {name!r} may hold letters, digits, dots, hyphens and underscores only")
    if not ruleset:
        yield Finding(form.start, "the rule has no :ruleset")
    elif ruleset not in RUN:
        hint = nearest(ruleset, RUN) or _choices(RUN)
        yield Finding(form.start, f"there is no ruleset {ruleset}{hint}")
    elif ruleset == DERIVING and form.head != "rule":
        message = f"a {form.head} changes programs and has to be checked: put it into simplify or explore"
        yield Finding(form.start, message)


def _record(form: Form, comment: Sequence[Atom], vocabulary: Vocabulary) -> Iterator[Finding]:
    formula, given = record(comment)
    fields = {name: value.text for name, value in given.items()}
    if not formula:
        yield Finding(form.start, "the rule has no comment above it that begins with a line of maths")
    required = (*REQUIRED, "example") if form.head == "rule" else REQUIRED
    missing = [f"@{field}" for field in required if not fields.get(field)]
    if missing:
        yield Finding(form.start, f"the record lacks {', '.join(missing)}")
    for field in fields:
        if field not in FIELDS:
            yield Finding(form.start, f"unknown field @{field}{nearest(field, FIELDS)}")
    for value in fields.get("property", "").replace(",", " ").split():
        if value not in PROPERTIES:
            yield Finding(form.start, f"unknown property {value}{nearest(value, PROPERTIES) or _choices(PROPERTIES)}")
    sound = fields.get("sound", "")
    if sound and sound not in SOUNDNESS:
        yield Finding(form.start, f"unknown soundness {sound}{_choices(SOUNDNESS)}")
    if "commutes" in fields:
        yield from _commutes(form, fields["commutes"].replace(",", " ").split(), vocabulary)
    if fields.get("example"):
        start = given["example"].start
        problems = _example(form, fields["example"], vocabulary)
        yield from (Finding(start + offset, message) for offset, message in problems)


def _example(form: Form, text: str, vocabulary: Vocabulary) -> Iterator[Finding]:
    try:
        example = parse_example(text)
    except SexprError as error:
        yield Finding(error.offset, str(error) if "example" in str(error) else f"in the example: {error}")
        return
    if len(example.lefts) > 1 and form.head != "rule":
        message = f"before the => of the example has to stand one term: the {form.head} matches one"
        yield Finding(example.lefts[1].start, message)
    for side in (*example.lefts, example.right):
        for node in walk(side):
            if isinstance(node, Form) and node.head in vocabulary.tables.keys() - vocabulary.constructors:
                yield Finding(node.start, f"in the example: {node.head} makes no term")
        for offset, message in (*_calls(side, vocabulary, frozenset()), *_keys(side, {})):
            yield Finding(offset, f"in the example: {message}")


def _choices(names: tuple[str, ...]) -> str:
    return f"; one of {', '.join(names)}"


def _commutes(form: Form, names: list[str], vocabulary: Vocabulary) -> Iterator[Finding]:
    if form.head != "rewrite":
        yield Finding(form.start, f"@commutes mirrors the left side of a rewrite, and this is a {form.head}")
        return
    left = form.items[1]
    for name in names:
        if vocabulary.tables.get(name, 2) != 2:
            yield Finding(form.start, f"@commutes {name}: it does not take two operands")
        elif not any(swappable(node, frozenset({name})) for node in walk(left)):
            yield Finding(form.start, f"@commutes {name}: the left side has none")
    if swaps(left, frozenset(names)) > MAX_SWAPS:
        yield Finding(form.start, f"@commutes would make more than {2**MAX_SWAPS} variants")


# --- expressions


def _facts(form: Form) -> list[Node]:
    """What has to hold: the facts of a rule; the left side of a rewrite, then its conditions."""
    if form.head == "rule":
        return list(_items(form.items[1]))
    return [form.items[1], *conditions(form)]


def _items(node: Node) -> tuple[Node, ...]:
    return node.items if isinstance(node, Form) else ()


def _additions(form: Form) -> list[Node]:
    """What a match adds: the actions of a rule, the right side of a rewrite."""
    return list(_items(form.items[2])) if form.head == "rule" else [form.items[2]]


_CONSTANT_NAMES = ("Const", "Constant", "Initializer")
"""Names that authors who know ONNX give to a constant, for which terms have none."""
_CONSTANT_HINT = (
    "; a constant is a variable with the condition (const c), (= 2.0 (value c)) if all its elements are 2, and a rule "
    "makes one by (Full shape number dtype)"
)


def _calls(node: Node, vocabulary: Vocabulary, actions: frozenset[str]) -> Iterator[Finding]:
    if isinstance(node, Atom):
        return
    head = node.head
    arity = vocabulary.tables.get(head, vocabulary.conditions.get(head))
    if not head:
        yield Finding(node.start, "a name must follow the parenthesis")
    elif head not in actions and head not in PRIMITIVES and arity is None:
        names = {*vocabulary.tables, *vocabulary.conditions, *PRIMITIVES, *actions}
        hint = _CONSTANT_HINT if head in _CONSTANT_NAMES else nearest(head, names)
        yield Finding(node.start, f"there is no constructor or function {head}{hint}")
    elif arity is not None and arity != len(node.items) - 1:
        yield Finding(node.start, f"{head} takes {arity} argument{'s' * (arity != 1)}, not {len(node.items) - 1}")
    for item in node.items[1:]:
        yield from _calls(item, vocabulary, frozenset())


def _lookups(addition: Node, vocabulary: Vocabulary) -> Iterator[Finding]:
    is_set = isinstance(addition, Form) and addition.head == "set" and len(addition.items) == 3
    target = addition.items[1] if isinstance(addition, Form) and is_set else None
    for node in walk(addition):
        if isinstance(node, Form) and node.head in vocabulary.functions and node is not target:
            message = f"{node.head} cannot be looked up on the right: bind it on the left, (= v {node})"
            yield Finding(node.start, message)


# --- variables


def _variables(form: Form, vocabulary: Vocabulary) -> Iterator[Finding]:
    values = [id(item) for item in form.items[3:]]  # such as the name of the ruleset, which is no variable
    taken = [v for v in variables(form) if vocabulary.takes(v.text) and id(v) not in values]
    for variable in taken:
        message = f"the variable {variable.text} has the name of a declaration; call it something else"
        yield Finding(variable.start, message)
    bare = [side for side in form.items[1 : 3 if form.head == "birewrite" else 2] if isinstance(side, Atom)]
    if form.head != "rule" and bare:
        yield Finding(bare[0].start, f"the bare variable {bare[0]} as a left side would match everything")
        return
    if taken:
        return
    yield from _bound(form, _facts(form), _additions(form))
    if form.head == "birewrite":
        backwards = [form.items[2], *_facts(form)[1:]]
        yield from _bound(form, backwards, [form.items[1]])


def _bound(form: Form, facts: list[Node], additions: list[Node]) -> Iterator[Finding]:
    bound = {name for fact in facts for name in bound_by_tables(fact)}
    findings = []
    for fact in facts:  # in the order in which they are computed
        message = "no condition binds the variable {} from what is bound already"
        findings += [Finding(v.start, message.format(v.text)) for v in unbound_in(fact, bound)]
        bound |= bound_by(fact, bound)
    yield from {finding.message: finding for finding in reversed(findings)}.values()  # the first of each
    if findings:
        return
    for node in additions:
        if isinstance(node, Form) and node.head == "let" and len(node.items) == 3 and form.head == "rule":
            yield from _unbound(node.items[2], bound)
            bound.add(str(node.items[1]))
        else:
            yield from _unbound(node, bound)


def _unbound(node: Node, bound: set[str]) -> Iterator[Finding]:
    for variable in variables(node):
        if variable.text not in bound:
            yield Finding(variable.start, f"the variable {variable.text} is not bound on the left")


# --- what a match does


def _check_failure(form: Form) -> Iterator[Finding]:
    """vec-set and vec-remove abort the process on an index out of range, as does vec-get on the right: ask before."""
    facts, made = _facts(form), _additions(form)
    if form.head == "birewrite":  # each side is made from the other and the conditions
        facts, made = facts[1:], [facts[0], *made]
    sides = [(node, False) for fact in facts for node in walk(fact)]
    sides += [(node, True) for addition in made for node in walk(addition)]
    seen = ""
    for node, is_made in sides:
        if not isinstance(node, Form) or len(node.items) < 3:
            continue
        vector, index = node.items[1], node.items[2]
        looked = f"(vec-get {vector} {index})" in seen or f"(vec-length {vector})" in seen
        fails = node.head in ABORTING or (node.head == "vec-get" and is_made)
        if fails and not looked:
            message = f"{node.head} aborts on an index out of range: ask (vec-get {vector} {index}) before"
            yield Finding(node.start, message)
        elif node.head == "vec-get" or "vec-length" in str(node):
            seen += str(node)


def _leaves(nodes: list[Node], matched: str) -> Iterator[Finding]:
    """Leaves that no program has: names unknown to the left side, missing operands, further outputs of custom ones."""
    for node in nodes:
        if str(node) == "(Absent)":
            yield Finding(node.start, "(Absent) is no tensor: it only stands for an optional operand that is not given")
    for node in (part for outer in nodes for part in walk(outer)):
        if not isinstance(node, Form):
            continue
        if node.head in ("Var", "Weight") and str(node) not in matched:
            message = f"{node} is of one model, and a rule is for all: match it on the left, and use a variable"
            yield Finding(node.start, message)
        elif node.head == "Out" and str(node.items[1]).startswith("(Op ") and str(node.items[2]).lstrip("0"):
            yield Finding(node.start, "an operator of another domain has one output: write (Out (Op ...) 0)")
        given = OPERATORS[node.head].arguments if node.head in OPERATORS else ()
        for item, argument in zip(node.items[1:], given, strict=False):
            if str(item) == "(Absent)" and not (isinstance(argument, Operand) and argument.optional):
                message = f"{node.head} needs its operand {argument.name}: (Absent) is for optional ones only"
                yield Finding(item.start, message)


def _actions(form: Form, vocabulary: Vocabulary, own: Collection[str] | None) -> Iterator[Finding]:
    facts, actions = _facts(form), _additions(form)
    united = [i for a in actions if isinstance(a, Form) and a.head == "union" for i in a.items[1:]]
    yield from _leaves([*actions, *united], " ".join(map(str, (*facts, *form.items[1:2]))))
    if form.head == "birewrite":
        yield from _leaves([form.items[1]], " ".join(map(str, form.items[2:])))
    yield from (finding for node in (*facts, *actions) for finding in _keys(node, _definitions(facts)))
    deriving = option(form, ":ruleset") == DERIVING
    for action in actions if form.head == "rule" else ():
        head = action.head if isinstance(action, Form) else ""
        if head in ("delete", "panic"):
            message = f"{head} is no action of a rule, which may only add what is equal: leave it out"
            yield Finding(action.start, message)
        elif head in ("union", "subsume") and deriving:
            message = f"{head} changes programs and has to be checked: put the rule into simplify or explore"
            yield Finding(action.start, message)
        elif isinstance(action, Form) and (row := _row(action, vocabulary)) and not _may_state(row, form, own):
            advice = "which a rule of yours may ask for, but not state"
            yield Finding(action.start, f"{row.head} is a fact of the shipped analyses, {advice}")


def _row(action: Form, vocabulary: Vocabulary) -> Form | None:
    """The row that an action adds to a function or relation; None for any other action."""
    row = action.items[1] if action.head == "set" and len(action.items) == 3 else action
    states = isinstance(row, Form) and row.head in vocabulary.tables and row.head not in vocabulary.constructors
    return row if states else None  # type: ignore[return-value]


def _may_state(row: Form, form: Form, own: Collection[str] | None) -> bool:
    """Whether a rule may add a row to a table.

    It may for its author's own tables and for those that only ask the analyses something; it may state facts about
    operators of other domains, which only their author knows, and the type of a term that a checked rule makes: a wrong
    type contradicts that of the term it is united with.
    """
    if own is None or row.head in own or row.head.endswith("-demand") or len(row.items) < 2:
        return True
    term = row.items[1]
    lets = {str(a.items[1]): a.items[2] for a in _additions(form) if isinstance(a, Form) and a.head == "let"}
    if str(term) in lets and row.head in ("shape", "dtype") and option(form, ":ruleset") != DERIVING:
        return True
    definitions = _definitions(_facts(form))
    equal = [term, *(n for n in [lets.get(str(term))] if n), *definitions.get(str(term), ())]
    operators_ = [n.items[1] for n in equal if isinstance(n, Form) and n.head == "Out" and len(n.items) > 1]
    keys = [o.items[1] for o in operators_ if isinstance(o, Form) and o.head == "Op" and len(o.items) > 1]
    return any(isinstance(key, Form) or not is_variable(key) or str(key) in definitions for key in keys)


def _definitions(facts: list[Node]) -> dict[str, list[Node]]:
    """By variable: the expressions that facts make equal to it."""
    equal: dict[str, list[Node]] = {}
    for fact in facts:
        if isinstance(fact, Form) and fact.head == "=":
            for item in fact.items[1:]:
                equal.setdefault(str(item), []).extend(other for other in fact.items[1:] if isinstance(other, Form))
    return equal


def _keys(node: Node, definitions: dict[str, list[Node]]) -> Iterator[Finding]:
    """Operators by key that are ONNX's own, so that their meaning is known, or that are no operators."""
    for part in walk(node):
        if isinstance(part, Form) and part.head == "Op" and len(part.items) == 3:
            for key in (part.items[1], *definitions.get(str(part.items[1]), ())):
                text = _first_text(key)
                if text is not None:
                    yield from (Finding(part.start, message) for message in [key_problem(text)] if message)


def _first_text(key: Node) -> str | None:
    """The known part of a key: all of a string, or the beginning of a sum of strings, without attributes."""
    if isinstance(key, Form) and key.head == "+" and len(key.items) > 1:
        first = _first_text(key.items[1])
        return first.partition("/")[0] if first and "/" in first else None
    return key.text[1:-1] if isinstance(key, Atom) and key.text.startswith('"') else None
