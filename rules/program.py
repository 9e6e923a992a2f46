"""The egglog program of a selection of rules, kept in the user's cache: most runs load the same rules.

It is light to import. Only where a program is not kept yet are rule files read, checked and joined.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from ..support.store import Store, source_digest
from .egglog_bindings import execute, load
from .vocabulary import DECLARATIONS, RULES, RuleSelection

if TYPE_CHECKING:
    from .sexpr import Form, Node

_KEPT = 32
"""Programs of about 500 kB each: those of a few precisions and of a user's files at work."""


@dataclass(frozen=True)
class Command:
    """One command of a program: it does nothing before there are rows in all tables of `needs`.

    Tables are constructors, functions and relations.
    """

    text: str
    needs: frozenset[str]


Commands = Sequence[Command]


def split_ready(commands: Commands, tables: Collection[str]) -> tuple[list[Command], list[Command]]:
    """The commands that may do something once these tables have rows, and the others."""
    ready = [command for command in commands if command.needs.issubset(tables)]
    return ready, [command for command in commands if not command.needs.issubset(tables)]


@dataclass(frozen=True)
class Program:
    """All that egglog reads before the facts of a model, and the tables that it declares."""

    commands: tuple[Command, ...] = ()
    tables: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """The whole program."""
        return "\n".join(command.text for command in self.commands)


def rule_program(selection: RuleSelection) -> Program:
    """The program of a selection; egglog has accepted the user's part of it, beside all declarations.

    Raises RuleError for a file with problems, UsageError for a tag or a domain that does not exist, and egglog's error
    for what only egglog refuses in the user's files.
    """
    return _keep(_key(selection), lambda: _build(selection))


def _build(selection: RuleSelection) -> Program:
    from .loader import load_selection, prelude  # with the linter and the table of operators, which take a while

    shipped, own = load_selection(selection).parts
    text = f"{prelude()}\n{shipped.program}"
    if not own.files:
        return _extend(Program(), text)
    base = _keep(sha256(text.encode()).hexdigest(), lambda: _extend(Program(), text))
    program = _extend(base, own.program)
    declarations = tuple(command for command in base.commands if not command.needs)
    execute(load().EGraph(), Program(declarations + program.commands[len(base.commands) :]).text)
    return program


def _keep(key: str, build: Callable[[], Program]) -> Program:
    """The program that is kept under a key, or the one that is built and kept now."""
    store = Store.in_cache("programs", _KEPT)
    stored = store.read_bytes(key)
    if stored is not None:
        rows, tables = json.loads(stored)
        return Program(tuple(Command(text, frozenset(needs)) for text, needs in rows), frozenset(tables))
    program = build()
    rows = [(command.text, sorted(command.needs)) for command in program.commands]
    store.keep_bytes(key, json.dumps([rows, sorted(program.tables)]).encode())
    return program


def _extend(program: Program, text: str) -> Program:
    """A program with further commands."""
    from .sexpr import read

    forms = read(text).forms
    tables = program.tables.union(*(_declared_names(form) for form in forms if form.head in DECLARATIONS))
    added = tuple(Command(text[form.start : form.end], tables & _conditions(form)) for form in forms)
    return Program(program.commands + added, tables)


def _declared_names(form: Form) -> set[str]:
    """The names of the tables that a declaration declares; a data type has one for each constructor."""
    return _heads(form.items[1:]) if form.head.startswith("datatype") else {str(form.items[1])}


def _conditions(form: Form) -> set[str]:
    """The heads in the left side of a rule; of a birewrite those of both, for either side may be the left one."""
    if form.head not in RULES:
        return set()
    left, conditions = _heads(form.items[1:2]), _heads(form.items[3:])  # of a rewrite: all else there is atoms
    return (left & _heads(form.items[2:3]) if form.head == "birewrite" else left) | conditions


def _heads(nodes: Sequence[Node]) -> set[str]:
    from .sexpr import Form, walk

    return {inner.head for node in nodes for inner in walk(node) if isinstance(inner, Form)}


def _key(selection: RuleSelection) -> str:
    """The sources that make programs, the names and contents of the user's files, and the selection.

    In which folders the files are changes no program.
    """
    parts = [source_digest("rules", "ir"), selection.precision]
    parts += [*selection.only, "-", *selection.skip, "-", *selection.domains]
    for path in selection.rules:
        for file in sorted(path.rglob("*.egg")) if path.is_dir() else [path]:
            content = sha256(file.read_bytes()).hexdigest() if file.is_file() else "no file"
            parts.append(f"{file.name} {content}")
    return sha256("\n".join(parts).encode()).hexdigest()
