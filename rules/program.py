"""The egglog program of a selection of rules, kept in the user's cache: most runs load the same rules.

It is light to import. Only where a program is not kept yet are rule files read, checked and joined.
"""

from __future__ import annotations

from hashlib import sha256

from ..support.store import Store, source_digest
from .vocabulary import RuleSelection

_KEPT = 32
"""Programs of about 400 kB each: those of a few precisions and of a user's files at work."""


def rule_program(selection: RuleSelection) -> str:
    """All that egglog reads before the facts of a model.

    Raises RuleError for a file with problems, UsageError for a tag or a domain that does not exist.
    """
    store = Store.in_cache("programs", _KEPT)
    key = _key(selection)
    try:
        program = store.path(key).read_text(encoding="utf-8")
        store.use(key)
        return program
    except (OSError, UnicodeDecodeError):
        pass
    from .loader import load_selection, prelude  # with the linter and the table of operators, which take a while

    program = f"{prelude()}\n{load_selection(selection).program}"
    store.keep(key, lambda path: path.write_text(program, encoding="utf-8"))
    return program


def _key(selection: RuleSelection) -> str:
    """The sources that make programs, the names and contents of the user's files, and the selection."""
    parts = [source_digest("rules", "ir"), selection.precision]
    parts += [*selection.only, "-", *selection.skip, "-", *selection.domains]
    for path in selection.paths:
        for file in sorted(path.rglob("*.egg")) if path.is_dir() else [path]:
            content = sha256(file.read_bytes()).hexdigest() if file.is_file() else "no file"
            parts.append(f"{file.resolve()} {content}")
    return sha256("\n".join(parts).encode()).hexdigest()
