"""What is wrong with a rule file, each with its place: egglog itself names the first error only, and dies of some."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import RuleError
from . import sexpr
from .egglog_bindings import execute, load
from .lint_rule import check_rule
from .loader import analysis_files, shipped_files
from .records import Command, Rule, RuleFile, option, parse
from .sexpr import Document, Form, SexprError
from .signatures import sorts
from .vocabulary import RULES, RUN_COMMANDS, TOP_LEVEL, Vocabulary, nearest

UNNAMED = Path("<text>")


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


def lint(source: Path | str) -> list[Problem]:
    """The problems of a rule file, or of the text of one, by place; none: it can be loaded.

    Names must also be unique against the shipped catalogue. Raises RuleError where a file cannot be read.
    """
    return lint_files([source])


def lint_files(sources: Sequence[Path | str]) -> list[Problem]:
    """The problems of several files that are to be loaded together. Raises RuleError where one cannot be read."""
    readable: list[_Source] = []
    unreadable: list[Problem] = []
    for source in sources:
        path, text = (source, _text(source)) if isinstance(source, Path) else (UNNAMED, source)
        try:
            readable.append(_Source(path, sexpr.read(text)))
        except SexprError as error:
            unreadable.append(Problem(path, *Document(text, (), {}).position(error.offset), str(error)))
    return [*unreadable, *_Linter(readable).problems()]


def require_clean(paths: Sequence[Path]) -> None:
    """Raise RuleError with the first problem of the files, and the number of further ones."""
    problems = lint_files(paths)
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise RuleError(f"{problems[0]}{more}")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RuleError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


@dataclass(frozen=True)
class _Source:
    path: Path
    document: Document


class _Linter:
    """Checks files that are to be loaded together, beside the shipped ones that are not among them."""

    def __init__(self, sources: Sequence[_Source]) -> None:
        own = {source.path.resolve() for source in sources}
        beside = [f for f in (*analysis_files(), *shipped_files()) if f.path.resolve() not in own]
        self.sources = sources
        self.base = "\n".join((sorts(), *(d.text for file in beside for d in file.declarations)))
        self.places = {r.name: f"{r.path.name}:{r.line}" for file in beside for r in file.rules}
        self.vocabulary = Vocabulary()
        for form in (*sexpr.read(self.base).forms, *(f for s in sources for f in s.document.forms)):
            self.vocabulary.declare(form)

    def problems(self) -> list[Problem]:
        """By file as given, then by place."""
        found: list[Problem] = []
        sound: list[RuleFile] = []
        for source in self.sources:
            clean: list[Form] = []
            for form in source.document.forms:
                faults = list(self._faults(source, form))
                found += faults
                clean += [] if faults else [form]
            sound.append(parse(source.path, Document(source.document.text, tuple(clean), source.document.comments)))
        found += self._refused(sound)
        order = [source.path for source in self.sources]
        return sorted(found, key=lambda p: (order.index(p.path), p.line, p.column))

    def _faults(self, source: _Source, form: Form) -> Iterator[Problem]:
        for offset, message in (*self._command(form, source.document), *self._unique(source, form)):
            yield Problem(source.path, *source.document.position(offset), message, option(form, ":name"))

    def _command(self, form: Form, document: Document) -> Iterator[tuple[int, str]]:
        head = form.head
        if head in RULES:
            yield from check_rule(form, document.comment_block(form), self.vocabulary)
        elif head in RUN_COMMANDS:
            yield form.start, f"a rule file holds declarations and rules; {head} does not belong in it"
        elif head not in TOP_LEVEL and head not in self.vocabulary.tables:
            yield form.start, f"there is no command {head}{nearest(head, (*TOP_LEVEL, *self.vocabulary.tables))}"

    def _unique(self, source: _Source, form: Form) -> Iterator[tuple[int, str]]:
        name = option(form, ":name")
        if form.head not in RULES or not name:
            return
        if name in self.places:
            yield form.start, f"the name {name} is taken by the rule at {self.places[name]}"
        else:
            self.places[name] = f"{source.path.name}:{source.document.position(form.start)[0]}"

    def _refused(self, files: Sequence[RuleFile]) -> Iterator[Problem]:
        """What egglog itself says of each command that seems in order: all declarations, then all rules."""
        scratch = load().EGraph()
        execute(scratch, self.base)
        commands: list[tuple[Path, Command | Rule]] = [(f.path, d) for f in files for d in f.declarations]
        commands += [(f.path, rule) for f in files for rule in f.rules if rule.name == rule.base]
        for path, command in commands:
            try:
                scratch.run_program(*scratch.parse_program(command.text))
            except load().EggSmolError as error:
                line, column, message = _place(str(error))
                column += command.column - 1 if line == 1 else 0
                yield Problem(path, command.line + line - 1, column, message, getattr(command, "name", ""))


def _place(error: str) -> tuple[int, int, str]:
    """Line, column and message of an error as egglog prints it: ``In L:C-C of file: text``, then the message."""
    spans = list(re.finditer(r"^In (\d+):(\d+)-\d+[^:\n]*: ", error, re.MULTILINE))
    message = error.rstrip().rpartition("\n")[2].strip()
    if not spans:
        return 1, 1, f"egglog: {message}"
    return int(spans[-1].group(1)), int(spans[-1].group(2)), f"egglog: {message}"
