"""Verdicts kept between runs, by the text of the rule and of everything that had a part in them."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from pathlib import Path

from ...errors import EqfuseError
from ...support.files import cache_folder, write_text
from ..loader import DIRECTORY, prelude
from ..records import Rule, RuleFile
from .verdict import Verdict

_SOURCES = ("*.py", "checking/**/*.py", "semantics/*.py")
_PACKAGES = ("egglog", "numpy", "onnx", "z3-solver")


def folder() -> Path:
    """Where verdicts are kept: ``$XDG_CACHE_HOME/eqfuse/rules``, by default under ``~/.cache``."""
    return cache_folder() / "rules"


@cache
def _checker() -> bytes:
    """What else a verdict depends on: the code of the checker and of what it builds on, the meaning of the operators,
    the analyses, and the solvers."""
    digest = hashlib.sha256(prelude().encode())
    for path in sorted(path for pattern in _SOURCES for path in DIRECTORY.glob(pattern)):
        digest.update(path.read_bytes())
    for package in _PACKAGES:
        digest.update(version(package).encode() + b"\0")
    return digest.digest()


def key(rule: Rule, file: RuleFile) -> str:
    """The name of a rule's verdict."""
    digest = hashlib.sha256(_checker())
    for part in (rule.text, rule.sound, rule.example, *rule.commutes, *(d.text for d in file.declarations)):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()


def load(name: str) -> Verdict | None:
    """A verdict kept before; None where there is none that can be read."""
    try:
        return Verdict(**json.loads((folder() / f"{name}.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def store(name: str, verdict: Verdict) -> None:
    """Keep the verdict on a rule that may be used: what is wrong is looked at again. A folder that cannot be written
    is no error."""
    if not verdict.accepted:
        return
    with suppress(OSError, EqfuseError):
        folder().mkdir(parents=True, exist_ok=True)
        kept = {k: v for k, v in asdict(verdict).items() if k != "counterexample"}
        write_text(folder() / f"{name}.json", json.dumps(kept))
