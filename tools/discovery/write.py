"""Pairs as rules of the rule language, with records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...ir.operators import OPERATORS
from ...rules import sexpr
from ...rules.commute import variables
from ...rules.records import Rule, parse
from ...rules.sexpr import Atom, Form, Node, substitute
from ..checking.overlap import COMMUTATIVE
from ..checking.verdict import Verdict
from .candidates import is_mirror_image
from .guards import Guards, apply_guards
from .language import heads, names_of, reduces, subterms

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
    unary = all(len(names_of(t)) == 1 and len(_leaves(t)) == 1 for t in (left, right))
    return unary and len(one) == len(other) == 2 and one[0] != other[0] and one[1] != other[1]


def _associative(left: Node, right: Node) -> bool:
    kinds = {*heads(left), *heads(right)}
    return len(kinds) == 1 and kinds <= COMMUTATIVE and sorted(_leaves(left)) == sorted(_leaves(right))


def _homomorphism(left: Node, right: Node) -> bool:
    """f(a) * f(b) = f(a * b), or with another operation on the right."""
    one, other = sorted((left, right), key=lambda t: -len(heads(t)))
    same_leaves = sorted(_leaves(one)) == sorted(_leaves(other))
    unary = {h for h in heads(one) if len(OPERATORS[h].operands) == 1}
    outer, inner = heads(one)[:1], heads(other)[:1]
    return same_leaves and len(heads(one)) == 3 and len(heads(other)) == 2 and set(inner) == unary and outer != inner


def _distributive(left: Node, right: Node) -> bool:
    binary = {h for h in (*heads(left), *heads(right)) if len(OPERATORS[h].operands) == 2}
    return len(binary) > 1 and len(_leaves(right)) < len(_leaves(left))


def _leaves(term: Node) -> list[str]:
    return [str(t) for t in subterms(term) if not isinstance(t, Form)]


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
