"""Rules and their records as written in a rule file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from . import sexpr
from .commute import mirrored
from .sexpr import Atom, Document, Form, Node
from .vocabulary import PROPERTIES, SOUNDNESS

__all__ = [
    "PROPERTIES",
    "SOUNDNESS",
    "Command",
    "Rule",
    "RuleFile",
    "conditions",
    "option",
    "parse",
    "read_file",
    "record",
]

FIELDS = ("property", "sound", "requires", "source", "example", "commutes")
DERIVING = "analysis"
RULE_COMMANDS = ("rewrite", "birewrite", "rule")


@dataclass(frozen=True)
class Command:
    """A command that is no rule: a declaration of a relation, function or ruleset."""

    text: str
    line: int
    column: int


@dataclass(frozen=True)
class Rule:
    """A rule with its record.

    `text` is the egglog command, `formula` the first line of its comment: one line of maths. `sound` is ``exact``
    (bit-identical results), ``real`` (equal over the real numbers) or ``approx`` (may change overflow, NaN or
    infinity behaviour). Fields that the record does not give are empty. `line` and `column` are those of the command.
    """

    name: str
    topic: str
    ruleset: str
    text: str
    formula: str
    properties: tuple[str, ...]
    sound: str
    requires: str
    source: str
    example: str
    commutes: tuple[str, ...]
    path: Path
    line: int
    column: int

    @property
    def base(self) -> str:
        """The name as the author wrote it: mirrored variants carry it with a suffix ``~1``, ``~2``, ..."""
        return self.name.partition("~")[0]

    @property
    def derives(self) -> bool:
        """Whether it derives facts for the analyses; such a rule changes no program and carries no record."""
        return self.ruleset == DERIVING

    @property
    def tags(self) -> tuple[str, ...]:
        """What it can be selected by: topic, properties, name, and the author's name of a variant."""
        return tuple(dict.fromkeys((self.topic, *self.properties, self.base, self.name)))


@dataclass(frozen=True)
class RuleFile:
    """One .egg file; a rule comes before its mirrored variants."""

    path: Path
    declarations: tuple[Command, ...]
    rules: tuple[Rule, ...]


def option(form: Form, key: str) -> str:
    """The value behind an option like ``:name``, without quotes; "" where it is not given."""
    for written, value in pairwise(form.items):
        if isinstance(written, Atom) and written.text == key:
            return str(value).strip('"')
    return ""


def conditions(form: Form) -> tuple[Node, ...]:
    """What a rewrite asks for besides its left side: the items behind ``:when``."""
    for written, value in pairwise(form.items):
        if str(written) == ":when" and isinstance(value, Form):
            return value.items
    return ()


def record(comment: list[str]) -> tuple[str, dict[str, str]]:
    """The formula and the fields of a comment block; what follows on a line without @ stays a remark."""
    fields: dict[str, str] = {}
    remarks = [line for line in comment if line and not line.startswith("@")]
    for line in comment:
        if line.startswith("@"):
            name, _, value = line[1:].partition(" ")
            fields[name] = f"{fields.get(name, '')} {value.strip()}".strip()
    return (remarks[0] if remarks else ""), fields


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.replace(",", " ").split())


def _rule(path: Path, document: Document, form: Form) -> Rule:
    formula, fields = record(document.comment_block(form))
    line, column = document.position(form.start)
    return Rule(
        name=option(form, ":name"),
        topic=path.stem,
        ruleset=option(form, ":ruleset"),
        text=document.text[form.start : form.end],
        formula=formula,
        properties=_words(fields.get("property", "")),
        sound=fields.get("sound", ""),
        requires=fields.get("requires", ""),
        source=fields.get("source", ""),
        example=fields.get("example", ""),
        commutes=_words(fields.get("commutes", "")),
        path=path,
        line=line,
        column=column,
    )


def _variants(rule: Rule, form: Form) -> list[Rule]:
    if not rule.commutes or form.head != "rewrite":
        return [rule]
    others = mirrored(form, frozenset(rule.commutes))
    named = ((f"{rule.name}~{i}", other) for i, other in enumerate(others, 1))
    return [rule, *(replace(rule, name=name, text=_renamed(other, name)) for name, other in named)]


def _renamed(form: Form, name: str) -> str:
    items = list(form.items)
    place = next(i for i, item in enumerate(items) if isinstance(item, Atom) and item.text == ":name")
    items[place + 1] = Atom(f'"{name}"')
    return str(Form(tuple(items)))


def parse(path: Path, document: Document) -> RuleFile:
    """The declarations and rules of a text that was read; nothing is checked."""
    declarations: list[Command] = []
    rules: list[Rule] = []
    for form in document.forms:
        if form.head in RULE_COMMANDS:
            rules += _variants(_rule(path, document, form), form)
        else:
            declarations.append(Command(document.text[form.start : form.end], *document.position(form.start)))
    return RuleFile(path, tuple(declarations), tuple(rules))


def read_file(path: Path) -> RuleFile:
    """Read one rule file. Raises OSError, or SexprError where parentheses do not match."""
    return parse(path, sexpr.read(path.read_text(encoding="utf-8")))
