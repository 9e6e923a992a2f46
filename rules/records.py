"""Rules and their records as written in a rule file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from ..support.errors import RuleError
from . import sexpr
from .binding import in_order_of_binding, with_distinct_operands
from .commute import mirror
from .sexpr import Atom, Document, Form, Node, SexprError
from .shorthand import expand_conditions, instances, read_conditions, shared_conditions
from .vocabulary import PROPERTIES, SOUNDNESS

__all__ = [
    "PROPERTIES",
    "SOUNDNESS",
    "Command",
    "Example",
    "Rule",
    "RuleFile",
    "conditions",
    "option",
    "own_example",
    "parse",
    "parse_example",
    "read_file",
    "read_text",
    "record",
    "record_lines",
    "variants",
]

FIELDS = ("property", "sound", "requires", "source", "example", "commutes", "domain")  # `@each` is gone by then
SHARED_FIELDS = ("@property", "@sound", "@domain")
"""The fields that the head of a file may give for all of its rules that do not say otherwise."""
_FIELD = re.compile(rf"\s+(?=@(?:{'|'.join((*FIELDS, 'each'))})\s)")
"""Where one field ends and the next begins, on one line."""
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
    infinity behaviour). A rule with a `domain`, which makes operators of a runtime's own, is used only if that is
    asked for. Where the record does not say, nothing is required, the rule is derived, and its example is the
    rewrite itself; other fields are then empty. `line` and `column` are those of the command.
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
    domain: str
    path: Path
    line: int
    column: int

    @property
    def base(self) -> str:
        """The name as the author wrote it: mirrored variants carry it with a suffix ``~1``, ``~2``, ..."""
        return self.name.partition("~")[0]

    @property
    def program(self) -> str:
        """What egglog reads: the text, or commands that mean the same."""
        (form,) = sexpr.read(self.text).forms
        commands = with_distinct_operands(form)
        return self.text if commands == (form,) else "\n".join(map(str, commands))

    @property
    def place(self) -> str:
        """``file:line:column`` of the command."""
        return f"{self.path}:{self.line}:{self.column}"

    @property
    def derives(self) -> bool:
        """Whether it derives facts for the analyses; such a rule changes no program and carries no record."""
        return self.ruleset == DERIVING

    @property
    def tags(self) -> tuple[str, ...]:
        """The names that select it: topic, properties, soundness, name, and the author's name of a variant."""
        return tuple(dict.fromkeys((self.topic, *self.properties, self.sound, self.base, self.name)))


@dataclass(frozen=True)
class RuleFile:
    """One .egg file; a rule comes before its mirrored variants."""

    path: Path
    declarations: tuple[Command, ...]
    rules: tuple[Rule, ...]


def option(form: Form, key: str) -> str:
    """The value behind an option like ``:name``, without quotes; "" if it is not given."""
    value = _option(form, key)
    return "" if value is None else str(value).strip('"')


def conditions(form: Form) -> tuple[Node, ...]:
    """The conditions of a rewrite besides its left side: the items behind ``:when``."""
    value = _option(form, ":when")
    return value.items if isinstance(value, Form) else ()


def _option(form: Form, key: str) -> Node | None:
    pairs = pairwise(form.items)
    return next((value for item, value in pairs if isinstance(item, Atom) and item.text == key), None)


def record_lines(document: Document, form: Form) -> list[Atom]:
    """The comment above a rule, a field a line, with those `SHARED_FIELDS` that only the head of the file gives."""
    comment = [field for line in document.comment_block(form) for field in _fields(line)]
    given = {line.text.partition(" ")[0] for line in comment}
    fields = SHARED_FIELDS[-1:] if option(form, ":ruleset") == DERIVING else SHARED_FIELDS
    shared = (line for written in document.head for line in _fields(written) if line.text.startswith(fields))
    return [*comment, *(line for line in shared if line.text.partition(" ")[0] not in given)]


def _fields(line: Atom) -> Iterator[Atom]:
    """The fields of a comment line, and the text before the first of them."""
    ends = [*_FIELD.finditer(line.text)]
    begins, stops = [0, *(m.end() for m in ends)], [*(m.start() for m in ends), len(line.text)]
    for begin, stop in zip(begins, stops, strict=True):
        yield Atom(line.text[begin:stop], line.start + begin)


def record(comment: Sequence[Atom]) -> tuple[str, dict[str, Atom]]:
    """The formula and the fields of a comment block; what follows on a line without @ stays a remark."""
    fields: dict[str, Atom] = {}
    for line in comment:
        if line.text.startswith("@"):
            name, _, value = line.text[1:].partition(" ")
            first = fields.get(name, Atom("", line.start + len(line.text) - len(value.lstrip())))
            fields[name] = Atom(f"{first.text} {value.strip()}".lstrip(), first.start)
    return next((line.text for line in comment if line.text and not line.text.startswith("@")), ""), fields


@dataclass(frozen=True)
class Example:
    """The two sides of an example. A rule that unites several terms may need them all on the left; it makes `right`
    of the first."""

    lefts: tuple[Node, ...]
    right: Node


def own_example(form: Form) -> str:
    """A rewrite as its own example; "" for what has no two sides."""
    if form.head not in ("rewrite", "birewrite") or len(form.items) < 3:
        return ""
    return f"{form.items[1]} => {form.items[2]}"


def parse_example(text: str) -> Example:
    """Read ``before => after``. Raises SexprError, with the offset in the text, if it is anything else."""
    if text.count("=>") != 1:
        raise SexprError(text.rfind("=>") if "=>" in text else 0, "the example needs one => between two terms")
    before, _, after = text.partition("=>")
    lefts = _terms(before)
    right = _terms(" " * (len(before) + 2) + after)
    if not lefts or any(isinstance(left, Atom) for left in lefts):
        raise SexprError(0, "before the => of the example has to stand a term that the rule matches")
    if len(right) != 1:
        at = right[1].start if right else len(text)
        raise SexprError(at, "behind the => of the example has to stand one term")
    return Example(lefts, right[0])


_BARE = re.compile(r'\s*([^\s()";]+)\s*')


def _terms(text: str) -> tuple[Node, ...]:
    bare = _BARE.fullmatch(text)
    if bare is not None:
        return (Atom(bare[1], bare.start(1)),)
    document = sexpr.read(text)
    if document.comments:
        raise SexprError(min(document.comments), "the example ends in a comment; put remarks on lines of their own")
    return document.forms


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.replace(",", " ").split())


def _rule(path: Path, document: Document, written: Form, form: Form, comment: Sequence[Atom]) -> Rule:
    formula, fields = record(comment)
    given = dict.fromkeys(FIELDS, "") | {name: value.text for name, value in fields.items()}
    line, column = document.position(written.start)
    return Rule(
        name=option(form, ":name"),
        topic=path.stem,
        ruleset=option(form, ":ruleset"),
        text=document.text[form.start : form.end] if form is written else str(form),
        formula=formula,
        properties=_words(given["property"]),
        sound=given["sound"],
        requires=given["requires"] or "none",
        source=given["source"] or "derived",
        example=given["example"] or own_example(form),
        commutes=_words(given["commutes"]),
        domain=given["domain"],
        path=path,
        line=line,
        column=column,
    )


def variants(rule: Rule, form: Form) -> list[Rule]:
    """The rule, whose text the form is, and its mirrored variants."""
    if not rule.commutes or form.head != "rewrite":
        return [rule]
    others = ((f"{rule.name}~{i}", other) for i, other in enumerate(mirror(form, frozenset(rule.commutes)), 1))
    return [rule, *(replace(rule, name=name, text=str(_rename(other, name))) for name, other in others)]


def _rename(form: Form, name: str) -> Form:
    place = next(i for i, item in enumerate(form.items) if str(item) == ":name")
    return Form((*form.items[: place + 1], Atom(f'"{name}"'), *form.items[place + 2 :]))


def parse(path: Path, document: Document) -> RuleFile:
    """The declarations and rules of a text that was read; nothing is checked."""
    declarations: list[Command] = []
    rules: list[Rule] = []
    conditions = read_conditions(document.forms, shared_conditions())
    for form in document.forms:
        if form.head in RULE_COMMANDS:
            for instance, comment in instances(form, record_lines(document, form)):
                expanded = in_order_of_binding(expand_conditions(instance, conditions))
                rules += variants(_rule(path, document, form, expanded, comment), expanded)
        elif form.head != "condition":
            declarations.append(Command(document.text[form.start : form.end], *document.position(form.start)))
    return RuleFile(path, tuple(declarations), tuple(rules))


def read_text(path: Path) -> str:
    """The text of a rule file: UTF-8, a byte-order mark is left out. Raises RuleError if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise RuleError(f"{path}: is no rule file: byte {error.start} is not UTF-8 text") from error
    except OSError as error:
        raise RuleError(f"{path}: cannot be read: {error.strerror or error}") from error


def read_file(path: Path) -> RuleFile:
    """Read one rule file. Raises RuleError if it cannot be read, SexprError if parentheses do not match."""
    return parse(path, sexpr.read(read_text(path)))
