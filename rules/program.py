"""The egglog program of a selection of rules, kept in the user's cache: most runs load the same rules.

It is light to import. Only where a program is not kept yet are rule files read, checked and joined.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
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
_HEAD = re.compile(r"\(([^\s()]+)")


@dataclass(frozen=True)
class Command:
    """One command of a program: it may run once there are rows in all tables of `needs`, and adds rows to `gives`.

    Tables are constructors, functions and relations. `gives` may name more than the command ever adds to.
    """

    text: str
    needs: frozenset[str]
    gives: frozenset[str]


@dataclass(frozen=True)
class Program:
    """All that egglog reads before the facts of a model."""

    commands: tuple[Command, ...]

    @property
    def text(self) -> str:
        """The whole program."""
        return "\n".join(command.text for command in self.commands)

    def text_for(self, facts: str) -> str:
        """The program without the rules that can never match after these facts, themselves an egglog program.

        A rule matches only if each table that its left side names has rows: from the facts, from a command, or from
        the right side of a rule that can match. egglog takes longer to load the rules than to run most of them.
        """
        given = set(_HEAD.findall(facts))
        chosen: set[int] = set()
        waiting = list(enumerate(self.commands))
        size = -1
        while len(given) > size:
            size = len(given)
            remaining = []
            for index, command in waiting:
                if command.needs <= given:
                    given |= command.gives
                    chosen.add(index)
                else:
                    remaining.append((index, command))
            waiting = remaining
        return "\n".join(command.text for index, command in enumerate(self.commands) if index in chosen)


def rule_program(selection: RuleSelection) -> Program:
    """The program of a selection, which egglog accepts.

    Raises RuleError for a file with problems, UsageError for a tag or a domain that does not exist, and egglog's error
    for what only egglog refuses.
    """
    store = Store.in_cache("programs", _KEPT)
    key = _key(selection)
    try:
        rows = json.loads(store.path(key).read_text(encoding="utf-8"))
        store.use(key)
        return Program(tuple(Command(text, frozenset(needs), frozenset(gives)) for text, needs, gives in rows))
    except (OSError, ValueError):
        pass
    from .loader import load_selection, prelude  # with the linter and the table of operators, which take a while

    program = Program(tuple(_commands(f"{prelude()}\n{load_selection(selection).program}")))
    execute(load().EGraph(), program.text)  # once the whole, since later runs load parts
    rows = [(command.text, sorted(command.needs), sorted(command.gives)) for command in program.commands]
    store.keep(key, lambda path: path.write_text(json.dumps(rows), encoding="utf-8"))
    return program


def _commands(text: str) -> Iterator[Command]:
    from .sexpr import read

    forms = read(text).forms
    tables = frozenset(table for form in forms if form.head in DECLARATIONS for table in _declared(form))
    for form in forms:
        needs, gives = _dependencies(form)
        yield Command(text[form.start : form.end], tables & needs, tables & gives)


def _declared(form: Form) -> set[str]:
    """The names of the tables that a declaration declares; a data type has one for each constructor."""
    return _heads(form.items[1:]) if form.head.startswith("datatype") else {str(form.items[1])}


def _dependencies(form: Form) -> tuple[set[str], set[str]]:
    """The heads in the left side of a rule and those in its right side; a fact has no left side."""
    if form.head in DECLARATIONS:
        return set(), set()
    if form.head not in RULES:
        return set(), _heads([form])
    left, right = _heads(form.items[1:2]), _heads(form.items[2:3])
    conditions = _heads(form.items[3:])  # of a rewrite: all else there is atoms
    if form.head == "birewrite":  # either side may be the left one
        return (left & right) | conditions, left | right
    return left | conditions, right


def _heads(nodes: Sequence[Node]) -> set[str]:
    from .sexpr import Form, walk

    return {inner.head for node in nodes for inner in walk(node) if isinstance(inner, Form)}


def _key(selection: RuleSelection) -> str:
    """The sources that make programs, the names and contents of the user's files, and the selection."""
    parts = [source_digest("rules", "ir"), selection.precision]
    parts += [*selection.only, "-", *selection.skip, "-", *selection.domains]
    for path in selection.paths:
        for file in sorted(path.rglob("*.egg")) if path.is_dir() else [path]:
            content = sha256(file.read_bytes()).hexdigest() if file.is_file() else "no file"
            parts.append(f"{file.resolve()} {content}")
    return sha256("\n".join(parts).encode()).hexdigest()
