"""The order in which the conditions of a rule are computed: what binds a variable stands before what computes with it.

egglog computes conditions in the order in which they are written. Where one computes with a variable that only a later
one binds, it panics or crashes at the first match, and so it does where `vec-set` or `vec-remove` is out of range.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from .commute import is_variable, variables
from .sexpr import Atom, Form, Node, walk
from .vocabulary import PRIMITIVES

Preference = Callable[[Sequence[Node], Node], Any]
"""A key for what may be the next condition after others: the least one is."""
_FEW = 3
"""Items of a term of two operands."""
ABORTING = ("vec-set", "vec-remove")
"""Primitives that end the process on an index out of range."""


def place_of_conditions(rule: Form) -> int | None:
    """The place among the items of a rule at which its list of conditions stands, or the facts of a ``rule``."""
    options = [item.text if isinstance(item, Atom) else "" for item in rule.items]
    place = 1 if rule.head == "rule" else options.index(":when") + 1 if ":when" in options else len(options)
    return place if place < len(options) and isinstance(rule.items[place], Form) else None


def in_order_of_binding(rule: Form, preference: Preference = lambda ordered, condition: 0) -> Form:
    """The rule with its conditions in an order in which each finds its variables bound; the rule itself if they
    stand so. Of those that can be next the first is, or the one that is preferred.

    What a side computes from variables that only conditions bind becomes the last condition, for egglog computes the
    sides first."""
    place = place_of_conditions(rule)
    if place is None:
        return rule
    written: Form = rule.items[place]  # type: ignore[assignment]
    sides = () if rule.head == "rule" else rule.items[1 : 3 if rule.head == "birewrite" else 2]
    bound = set[str]().union(*map(bound_by_tables, written.items))
    if sides:
        bound |= set.intersection(*(set(bound_by_tables(side)) for side in sides))
    moved: dict[str, Form] = {}
    patterns = [_move_computed(side, bound, moved) for side in sides]
    computed = (Form((Atom("="), Atom(name), form)) for name, form in moved.items())
    rest: list[Node] = [*written.items, *computed]
    ordered: list[Node] = []
    while rest:
        ready = [fact for fact in rest if not any(True for _ in unbound_in(fact, bound))]
        safe = [fact for fact in ready if not _waits_for(fact, ordered, rest)]
        following = min(safe or ready or rest, key=lambda fact: preference(ordered, fact))
        bound |= bound_by(following, bound)
        rest.remove(following)
        ordered.append(following)
    if tuple(ordered) == written.items:
        return rule
    facts = Form(tuple(ordered), written.start, written.end)
    after = rule.items[1 + len(patterns) : place]
    items = (rule.items[0], *patterns, *after, facts, *rule.items[place + 1 :])
    return Form(items, rule.start, rule.end)


def with_distinct_operands(rule: Form) -> tuple[Form, ...]:
    """The commands that mean the rule, in which no term of three operands or more has a value twice.

        (rewrite (Where c x x) x)    =>    (rewrite (Where c x x~2) x :when ((value-eq x~2 x)))

    egglog 13.2 takes a subsumed row for a match of a term that has a value twice beside another operand, and then asks
    for 8 GB. A birewrite becomes a rewrite for each direction.
    """
    place = place_of_conditions(rule)
    facts: tuple[Node, ...] = rule.items[place].items if place is not None else ()  # type: ignore[union-attr]
    if rule.head == "rule":
        conditions = _conditions(facts, {})
        return (rule,) if len(conditions) == len(facts) else (Form((rule.items[0], Form(conditions), *rule.items[2:])),)
    sides, others = rule.items[1:3], rule.items[3:]
    options = others if place is None else (*others[: place - 4], *others[place - 2 :])
    commands, is_changed = [], False
    directions = ((sides[0], sides[1], "=>"), (sides[1], sides[0], "<="))
    for left, right, suffix in directions if rule.head == "birewrite" else directions[:1]:
        again: dict[str, Node] = {}
        pattern = _spread(left, again)
        conditions = _conditions(facts, again)
        is_changed |= len(conditions) > len(facts)
        when = (Atom(":when"), Form(conditions)) if conditions else ()
        named = [_suffixed(each, suffix) if rule.head == "birewrite" else each for each in options]
        commands.append(Form((Atom("rewrite"), pattern, right, *when, *named)))
    return tuple(commands) if is_changed else (rule,)


def _conditions(facts: tuple[Node, ...], again: dict[str, Node]) -> tuple[Node, ...]:
    """The facts with other names for values that a term has twice, behind the equations of those that a pattern has by
    the names in `again`, in front of those of their own: egglog computes with no variable that is not bound before."""
    first = [_equal(name, value) for name, value in again.items()]
    named = dict(again)
    spread = [_spread(fact, named) for fact in facts]
    return (*first, *spread, *(_equal(name, value) for name, value in named.items() if name not in again))


def _spread(node: Node, again: dict[str, Node]) -> Node:
    """The node with a name for each value that its operands, or those of a term in it, have already: a variable, or
    what is computed. `again` gets the values by these names."""
    if isinstance(node, Atom):
        return node
    items, seen = [node.items[0]], Counter[str]()
    for item in node.items[1:]:
        is_value = item.head in PRIMITIVES if isinstance(item, Form) else is_variable(item) and item.text != "_"
        if is_value and node.head not in PRIMITIVES and len(node.items) > _FEW:
            text = str(item)
            seen[text] += 1
            if seen[text] > 1:
                name = f"{text}~{seen[text]}" if isinstance(item, Atom) else f"again~{len(again) + 1}"
                again[name] = item
                items.append(Atom(name))
                continue
        items.append(_spread(item, again))
    return Form(tuple(items))


def _equal(name: str, value: Node) -> Form:
    return Form((Atom("value-eq"), Atom(name), value))


def _suffixed(item: Node, suffix: str) -> Node:
    """The name of a rule, which is the only text among its options, with a suffix."""
    return Atom(f'{item.text[:-1]}{suffix}"') if isinstance(item, Atom) and item.text.startswith('"') else item


def _move_computed(side: Node, bound: Collection[str], moved: dict[str, Form]) -> Node:
    """The side with a name in the place of each form that computes with variables that are not `bound`."""
    if isinstance(side, Atom):
        return side
    if side.head in PRIMITIVES and any(v.text not in bound for v in variables(side)):
        name = next((n for n, form in moved.items() if str(form) == str(side)), f"computed-{len(moved) + 1}")
        moved[name] = side
        return Atom(name, side.start)
    items = tuple(_move_computed(item, bound, moved) for item in side.items)
    return Form(items, side.start, side.end)


def bound_by_tables(node: Node) -> Iterator[str]:
    """Variables that get a value from a table: arguments of constructors, functions and relations, and what equals
    one of those."""
    if isinstance(node, Atom):
        return
    is_table = node.head not in PRIMITIVES
    equals_table = node.head == "=" and any(isinstance(i, Form) and i.head not in PRIMITIVES for i in node.items)
    for item in node.items[1:]:
        if isinstance(item, Form):
            yield from bound_by_tables(item)
        elif (is_table or equals_table) and is_variable(item):
            yield item.text


def unbound_in(fact: Node, bound: Collection[str]) -> Iterator[Atom]:
    """The variables that a fact computes with and that are not bound; both sides of an equation between
    unknown ones."""
    sides = _variable_sides(fact)
    computed = [item for item in fact.items[1:] if item not in sides] if isinstance(fact, Form) and sides else [fact]
    if computed:
        yield from (v for item in computed for v in variables(item) if v.text not in bound and v.text != "_")
    elif not any(side.text in bound for side in sides):
        yield from sides


def bound_by(fact: Node, bound: Collection[str]) -> set[str]:
    """The variables that a fact gives a value by what it computes from bound ones: sides of an equation."""
    return set() if any(True for _ in unbound_in(fact, bound)) else {side.text for side in _variable_sides(fact)}


def _variable_sides(fact: Node) -> list[Atom]:
    """The sides of an equation that are variables."""
    if not isinstance(fact, Form) or fact.head != "=":
        return []
    return [item for item in fact.items[1:] if isinstance(item, Atom) and is_variable(item)]


def _waits_for(fact: Node, ordered: Sequence[Node], rest: Sequence[Node]) -> bool:
    """Whether one of the `rest`, and none before it, looks up an index at which a fact changes a vector, or the length
    of the vector."""
    changes = (part for part in walk(fact) if isinstance(part, Form) and part.head in ABORTING and len(part.items) > 2)
    asked = [(f"(vec-get {each.items[1]} {each.items[2]})", f"(vec-length {each.items[1]})") for each in changes]
    if not asked:
        return False  # nearly always: texts of all conditions took most of the time of reading the rules
    before, later = (" ".join(map(str, facts)) for facts in ((*ordered, fact), rest))
    return any(not any(a in before for a in either) and any(a in later for a in either) for either in asked)
