"""Pairs as rules of the rule language, with records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...rules import sexpr
from ...rules.commute import variables
from ...rules.records import Rule, parse
from ...rules.sexpr import Atom, Form, Node, substitute
from ..checking.overlap import COMMUTATIVE
from ..checking.verdict import Verdict
from .candidates import is_mirror_image
from .formula import properties, requirements, write_formula
from .guards import Guards, apply_guards
from .language import heads, names_of


@dataclass(frozen=True)
class Draft:
    """A rule in the making. `commutes`: commutative operators whose mirror images the record has to ask for."""

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
        """Both sides, over leaves that are as the conditions ask."""
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
    """Which law over everything the pair states of one operator: commutative, associative, or "" for neither."""
    if not isinstance(left, Form) or left.head not in COMMUTATIVE:
        return ""
    if is_mirror_image(left, right):
        return "commutative"
    distinct = len(names_of(left)) == 3 and len(heads(left)) == 2
    return "associative" if distinct and properties(left, right) == "associative" else ""


@dataclass(frozen=True)
class Discovered:
    """A rule that was found, and what the checker says of it. `left_out`: why it stands in the file as a comment; ""
    where it does not."""

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
