"""The cache of verdicts between runs, by the text of the rule and of everything that a verdict depends on."""

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
from .sampling.samples import SAMPLES_PER_DIRECTION
from .verdict import Verdict

_PACKAGES = ("egglog", "numpy", "onnx", "onnxruntime", "z3-solver")


@cache
def _digest_of_checker() -> bytes:
    """A digest of the analyses, the code and the packages that every verdict depends on."""
    digest = hashlib.sha256(prelude().encode())
    digest.update(source_digest("ir", "rules", "tools/checking", suffixes=(".py", ".toml")).encode())
    for package in _PACKAGES:
        digest.update(version(package).encode() + b"\0")
    return digest.digest()


class CacheKeys:
    """The keys of the verdicts on rules of files that are used together.

    A verdict depends on the rule, on the declarations of the files that it uses, and on the rules that derive facts
    that it asks for, again with their declarations; it does not depend on other rules of the files.
    """

    def __init__(self, files: Sequence[RuleFile], samples: int = SAMPLES_PER_DIRECTION) -> None:
        self._samples = str(samples)
        declared = [sexpr.read(d.text).forms[0] for file in files for d in file.declarations]
        self._declared = [(form, _subject(form)) for form in declared]
        self._own = frozenset(subject for _, subject in self._declared)
        deriving = [sexpr.read(r.text).forms[0] for file in files for r in file.rules if r.derives]
        self._deriving = [(form, _symbols(form.items[2]) & self._own) for form in deriving]

    def key(self, rule: Rule) -> str:
        """The key of the verdict on a rule."""
        digest = hashlib.sha256(_digest_of_checker())
        forms = self._dependencies(sexpr.read(rule.text).forms[0])
        for part in (self._samples, rule.text, rule.sound, rule.example, *rule.commutes, *map(str, forms)):
            digest.update(part.encode() + b"\0")
        return digest.hexdigest()

    def _dependencies(self, rule: Form) -> list[Form]:
        """The forms of the files that a verdict depends on; those that derive facts of the shipped analyses always
        count."""
        names = _symbols(rule) & self._own
        while True:
            forms = [form for form, subject in self._declared if subject in names]
            forms += [form for form, subjects in self._deriving if not subjects or subjects & names]
            more = {symbol for form in forms for symbol in _symbols(form)} & self._own
            if more <= names:
                return forms
            names |= more


def _subject(form: Form) -> str:
    """The name that a declaration declares, or the table of a row."""
    target = form.items[1] if form.head in DECLARATIONS or form.head == "set" else form.items[0]
    return target.head if isinstance(target, Form) else target.text


def _symbols(node: Node) -> set[str]:
    return {part.text for part in walk(node) if isinstance(part, Atom)}


def load(key: str) -> Verdict | None:
    """The stored verdict; None if there is none that can be read."""
    try:
        return msgspec.json.decode(_store().path(f"{key}.json").read_bytes(), type=Verdict)
    except (OSError, msgspec.MsgspecError):
        return None


def store(key: str, verdict: Verdict) -> None:
    """Store the verdict on a rule that may be used; other rules are checked again."""
    if verdict.accepted:
        fields = {k: v for k, v in asdict(verdict).items() if k != "counterexample"}
        _store().keep(f"{key}.json", lambda place: place.write_text(json.dumps(fields), encoding="utf-8"))


def _store() -> Store:
    return Store.in_cache("rules")
