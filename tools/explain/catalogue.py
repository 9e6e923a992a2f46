"""The rules that an explanation may use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...rules.loader import Rule, RuleSet
from .patterns import Recorder, Unclear, patterns, recorder
from .signatures import Signatures, signatures

RECORDING = "record."
"""Begin of the names of the rulesets that record the matches of a ruleset."""


@dataclass(frozen=True)
class Catalogue:
    """Rules with recorders of their matches, the declarations and analyses of the rule files, and all tables."""

    rules: tuple[Rule, ...]
    recorders: tuple[Recorder, ...]
    declarations: str
    tables: Signatures


def catalogue(rules: RuleSet, reported: Iterable[str]) -> Catalogue:
    """Those of the rules that egglog reported, by the names that it uses; the analyses in any case."""
    tables = signatures(rules.files)
    wanted = dict.fromkeys(rules.by_name[name] for name in reported if name in rules.by_name)
    kept, recorders = [], []
    for rule in wanted:
        if rule.derives:
            continue
        try:
            made = [recorder(p, f"record.{p.name}", f"{RECORDING}{rule.ruleset}", tables) for p in patterns(rule)]
        except Unclear:
            continue  # what it did cannot be put down; other rules may lead to the same
        kept.append(rule)
        recorders += made
    return Catalogue(tuple(kept), tuple(recorders), analyses(rules), tables)


def analyses(rules: RuleSet) -> str:
    """The declarations of the rule files, and their rules that only derive facts."""
    declared = [d.text for file in rules.files for d in file.declarations]
    return "\n".join((*declared, *(rule.text for rule in rules.rules if rule.derives), ""))
