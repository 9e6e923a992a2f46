"""Finds all problems of rule files, with their places: egglog itself names one error at a time, and dies of some."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from ..support.errors import RuleError
from . import sexpr
from .binding import in_order_of_binding
from .constructors import sorts
from .egglog_bindings import execute, load
from .lint_rule import Finding, check_condition, check_rule
from .places import DIRECTORY, analysis_files, shipped_files
from .records import Command, Rule, RuleFile, option, parse, read_text, record_lines
from .sexpr import Document, Form, SexprError, walk
from .shorthand import SHARED, Conditions, expand_conditions, instances, read_conditions, shared_conditions
from .vocabulary import ACTIONS, DECLARATIONS, OWN_DECLARATIONS, RULES, RUN_COMMANDS, TOP_LEVEL, Vocabulary, nearest

UNNAMED = Path("<text>")
_OF_ANOTHER_DOMAIN = 'nothing says what a constructor of yours computes: write (Op "domain.Type" operands) instead'
_OWN_ADVICE = {
    "ruleset": "no run applies a ruleset of yours: put rules into simplify or explore",
    "constructor": _OF_ANOTHER_DOMAIN,
    "datatype": _OF_ANOTHER_DOMAIN,
    "datatype*": _OF_ANOTHER_DOMAIN,
}
"""The advice in place of a declaration that a file beside the shipped ones may not have."""


@dataclass(frozen=True, order=True)
class Problem:
    """One fault; `line` and `column` count from 1, `rule` is the name of the rule it is in, or ""."""

    path: Path
    line: int
    column: int
    message: str
    rule: str = ""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}: {self.message}"


def lint_files(sources: Sequence[Path | str]) -> list[Problem]:
    """The problems of rule files, or of texts of some, that are to be loaded together; none: they can be.

    Names must also be unique against the shipped catalogue. Raises RuleError if a file cannot be read.
    """
    readable: list[_Source] = []
    unreadable: list[Problem] = []
    for source in sources:
        path, text = (source, read_text(source)) if isinstance(source, Path) else (UNNAMED, source)
        try:
            readable.append(_Source(path, sexpr.read(text)))
        except SexprError as error:
            unreadable.append(Problem(path, *Document(text, (), {}).position(error.offset), str(error)))
    return [*unreadable, *_Linter(readable).problems()]


def require_clean(paths: Sequence[Path]) -> None:
    """Raise RuleError with the first problem of the files, and the number of further ones."""
    problems = lint_files(paths) if paths else []
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise RuleError(f"{problems[0]}{more}")


@dataclass(frozen=True)
class _Source:
    path: Path
    document: Document

    @cached_property
    def conditions(self) -> Conditions:
        """The conditions that the rules of the file may call."""
        return read_conditions(self.document.forms, shared_conditions())

    @cached_property
    def is_shipped(self) -> bool:
        """Whether the file is one of the catalogue, which may state facts and declare constructors."""
        return DIRECTORY in self.path.resolve().parents


@dataclass(frozen=True)
class _Beside:
    """What files are checked beside: declarations with their sorts, the same and shared conditions as `forms`, and the
    places of rules by their names."""

    declarations: str
    forms: tuple[Form, ...]
    places: Mapping[str, str]


@cache
def _shipped_without(linted: frozenset[Path]) -> _Beside:
    """The shipped files that are not among those that are checked themselves."""
    files = [f for f in (*analysis_files(), *shipped_files()) if f.path.resolve() not in linted]
    declarations = "\n".join((sorts(), *(d.text for file in files for d in file.declarations)))
    conditions = "" if SHARED in linted else read_text(SHARED)
    places = {r.name: f"{r.path.name}:{r.line}" for file in files for r in file.rules}
    return _Beside(declarations, sexpr.read(declarations + conditions).forms, places)


class _Linter:
    """Checks files that are to be loaded together, beside the shipped ones that are not among them."""

    def __init__(self, sources: Sequence[_Source]) -> None:
        beside = _shipped_without(frozenset(source.path.resolve() for source in sources if source.is_shipped))
        self.sources = sources
        self.base = beside.declarations
        self.places = dict(beside.places)
        forms = [*beside.forms, *(f for s in sources for f in s.document.forms)]
        self.declared = Counter(_subject(form) for form in forms if form.head in (*DECLARATIONS, "condition"))
        self.vocabulary = Vocabulary()
        for form in forms:
            self.vocabulary.declare(form)
        own = Vocabulary()
        for form in (f for s in sources if not s.is_shipped for f in s.document.forms):
            own.declare(form)
        self.own = frozenset(own.tables)

    def problems(self) -> list[Problem]:
        """By file as given, then by place."""
        problems: list[Problem] = []
        sound: list[RuleFile] = []
        for source in self.sources:
            clean: list[Form] = []
            if not source.document.forms:
                problems.append(Problem(source.path, 1, 1, "the file has no rules"))
            for form in source.document.forms:
                findings = dict.fromkeys(self._command(form, source))  # those of `@each` are often the same
                place, name = source.document.position, option(form, ":name")
                problems += [Problem(source.path, *place(offset), message, name) for offset, message in findings]
                clean += [] if findings else [form]
            sound.append(parse(source.path, Document(source.document.text, tuple(clean), source.document.comments)))
        problems += self._egglog_problems(sound)
        order = [source.path for source in self.sources]
        return sorted(problems, key=lambda p: (order.index(p.path), p.line, p.column))

    def _command(self, form: Form, source: _Source) -> Iterator[Finding]:
        head, tables = form.head, self.vocabulary.tables
        if head in RULES:
            yield from self._rule(form, source)
        elif head == "condition":
            yield from check_condition(form, self.vocabulary)
            if self.declared[_subject(form)] > 1:
                yield Finding(form.start, f"the name {_subject(form)} is declared twice")
        elif head == "union":
            message = "nothing checks what is united outside a rule: write a rewrite of simplify or explore"
            yield Finding(form.start, message)
        elif head in (*RUN_COMMANDS, *ACTIONS) and head != "set":
            yield Finding(form.start, f"a rule file holds declarations and rules; {head} does not belong in it")
        elif head not in TOP_LEVEL and head not in tables:
            yield Finding(form.start, f"there is no command {head}{nearest(head, (*TOP_LEVEL, *tables))}")
        elif head in DECLARATIONS:
            is_key = head == "constructor" and ":unextractable" in map(str, form.items)  # it is in no program
            if head not in OWN_DECLARATIONS and not is_key and not source.is_shipped:
                yield Finding(form.start, _OWN_ADVICE[head])
        elif not source.is_shipped:
            yield from self._row(form)

    def _row(self, form: Form) -> Iterator[Finding]:
        """A row of a table, outside a rule: one's own tables may be filled with numbers and strings."""
        row = form.items[1] if form.head == "set" and len(form.items) > 1 else form
        table = row.head if isinstance(row, Form) else ""
        if table not in self.own:
            message = f"{table or form.head} is a fact of the shipped analyses: a rule file may not state it"
            yield Finding(form.start, message)
        elif any(isinstance(n, Form) and n.head in self.vocabulary.constructors for n in walk(form)):
            message = f"nothing checks what is stated about terms outside a rule: derive {table} by a rule"
            yield Finding(form.start, message)

    def _rule(self, form: Form, source: _Source) -> Iterator[Finding]:
        try:
            rules = list(instances(form, record_lines(source.document, form)))
        except SexprError as error:
            yield Finding(error.offset, str(error))
            return
        for rule, comment in rules:
            own = None if source.is_shipped else self.own
            ordered = in_order_of_binding(expand_conditions(rule, source.conditions))
            yield from check_rule(ordered, comment, self.vocabulary, own)
            name = option(rule, ":name")
            if name in self.places:
                yield Finding(form.start, f"the name {name} is taken by the rule at {self.places[name]}")
            elif name:
                self.places[name] = f"{source.path.name}:{source.document.position(form.start)[0]}"

    def _egglog_problems(self, files: Sequence[RuleFile]) -> Iterator[Problem]:
        """The complaints of egglog itself about commands that seem in order: all declarations, then all rules."""
        scratch = load().EGraph()
        execute(scratch, self.base)
        commands: list[tuple[Path, Command | Rule]] = [(f.path, d) for f in files for d in f.declarations]
        commands += [(f.path, rule) for f in files for rule in f.rules if rule.name == rule.base]
        texts = {source.path: source.document.text for source in self.sources}
        for path, command in commands:
            try:
                scratch.run_program(*scratch.parse_program(command.text))
            except load().EggSmolError as error:
                line, column, message = _place(str(error))
                if command.text not in texts[path]:  # written in shorthand: the message is about the text in full
                    line = column = 1
                column += command.column - 1 if line == 1 else 0
                yield Problem(path, command.line + line - 1, column, message, getattr(command, "name", ""))


def _subject(form: Form) -> str:
    """The name that a declaration introduces."""
    subject = form.items[1] if len(form.items) > 1 else form
    return subject.head if isinstance(subject, Form) else subject.text


def _place(error: str) -> tuple[int, int, str]:
    """Line, column and message of an error as egglog prints it: ``In L:C-C of file: text``, then the message."""
    spans = list(re.finditer(r"^In (\d+):(\d+)-\d+[^:\n]*: ", error, re.MULTILINE))
    message = error.rstrip().rpartition("\n")[2].strip()
    if not spans:
        return 1, 1, f"egglog: {message}"
    return int(spans[-1].group(1)), int(spans[-1].group(2)), f"egglog: {message}"
