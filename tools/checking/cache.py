"""Verdicts kept between runs, by the text of the rule and of everything that had a part in them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from importlib.metadata import version

import msgspec

from ...rules import sexpr
from ...rules.loader import prelude
from ...rules.records import Rule, RuleFile
from ...rules.sexpr import Atom, Form, Node, walk
from ...rules.vocabulary import DECLARATIONS
from ...support.store import Store, source_digest
from .verdict import WANTED, Verdict

_PACKAGES = ("egglog", "numpy", "onnx", "onnxruntime", "z3-solver")


@cache
def _checker() -> bytes:
    """What else a verdict depends on: the code of the checker and of what it builds on, the meaning of the operators,
    the analyses, and the solvers."""
    digest = hashlib.sha256(prelude().encode())
    digest.update(source_digest("ir", "rules", "tools/checking", suffixes=(".py", ".toml")).encode())
    for package in _PACKAGES:
        digest.update(version(package).encode() + b"\0")
    return digest.digest()


class Keys:
    """The names of the verdicts on rules of files that are used together.

    A verdict depends on the rule, on the declarations of the files that it uses, and on the rules that derive what it
    asks for, again with what those use; a rule elsewhere in the files may change without it.
    """

    def __init__(self, files: Sequence[RuleFile], samples: int = WANTED) -> None:
        self._samples = str(samples)
        declared = [sexpr.read(d.text).forms[0] for file in files for d in file.declarations]
        self._declared = [(form, _subject(form)) for form in declared]
        self._own = frozenset(subject for _, subject in self._declared)
        deriving = [sexpr.read(r.text).forms[0] for file in files for r in file.rules if r.derives]
        self._deriving = [(form, _symbols(form.items[2]) & self._own) for form in deriving]

    def of(self, rule: Rule) -> str:
        """The name of the verdict on a rule."""
        digest = hashlib.sha256(_checker())
        used = self._used(sexpr.read(rule.text).forms[0])
        for part in (self._samples, rule.text, rule.sound, rule.example, *rule.commutes, *map(str, used)):
            digest.update(part.encode() + b"\0")
        return digest.hexdigest()

    def _used(self, rule: Form) -> list[Form]:
        """What of the files has a part in a verdict. Rules that derive facts of the shipped analyses always have."""
        names = _symbols(rule) & self._own
        while True:
            found = [form for form, subject in self._declared if subject in names]
            found += [form for form, subjects in self._deriving if not subjects or subjects & names]
            more = {symbol for form in found for symbol in _symbols(form)} & self._own
            if more <= names:
                return found
            names |= more


def _subject(form: Form) -> str:
    """What a declaration declares, or what a row of a table is of."""
    target = form.items[1] if form.head in DECLARATIONS or form.head == "set" else form.items[0]
    return target.head if isinstance(target, Form) else target.text


def _symbols(node: Node) -> set[str]:
    return {part.text for part in walk(node) if isinstance(part, Atom)}


def load(name: str) -> Verdict | None:
    """A verdict kept before; None where there is none that can be read."""
    try:
        return msgspec.json.decode(_store().path(f"{name}.json").read_bytes(), type=Verdict)
    except (OSError, msgspec.MsgspecError):
        return None


def store(name: str, verdict: Verdict) -> None:
    """Keep the verdict on a rule that may be used: what is wrong is looked at again."""
    if verdict.accepted:
        kept = {k: v for k, v in asdict(verdict).items() if k != "counterexample"}
        _store().keep(f"{name}.json", lambda place: place.write_text(json.dumps(kept), encoding="utf-8"))


def _store() -> Store:
    return Store.named("rules")
