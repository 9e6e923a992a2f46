"""The rules that an explanation may use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...rules.loader import Rule, RuleSet
from .patterns import Recorder, Unclear, make_recorder, read_patterns
from .signatures import Signatures, read_signatures

RECORDING = "record."
"""Prefix of the names of rulesets that record the matches of a ruleset."""


@dataclass(frozen=True)
class Catalogue:
    """Rules with recorders of their matches, the declarations and analyses of the rule files, and all tables."""

    rules: tuple[Rule, ...]
    recorders: tuple[Recorder, ...]
    declarations: str
    tables: Signatures


def collect_rules(rules: RuleSet, reported: Iterable[str]) -> Catalogue:
    """The rules among `rules` whose names egglog `reported`, and always the analyses."""
    tables = read_signatures(rules.files)
    wanted = dict.fromkeys(rules.by_name[name] for name in reported if name in rules.by_name)
    recorded, recorders = [], []
    for rule in wanted:
        if rule.derives:
            continue
        try:
            recorders += [
                make_recorder(p, f"record.{p.name}", f"{RECORDING}{rule.ruleset}", tables) for p in read_patterns(rule)
            ]
        except Unclear:
            continue  # its matches cannot be recorded; other rules may lead to the same result
        recorded.append(rule)
    return Catalogue(tuple(recorded), tuple(recorders), analyses(rules), tables)


def analyses(rules: RuleSet) -> str:
    """The declarations of the rule files, and their rules that only derive facts."""
    declared = [d.text for file in rules.files for d in file.declarations]
    return "\n".join((*declared, *(rule.program for rule in rules.rules if rule.derives), ""))
