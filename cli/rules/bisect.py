"""``eqfuse bisect``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from ...driver.bisect import Guilt, guilty_rules
from ...rules.loader import Rule, load_rules
from .. import render
from ..options import options_of
from ..progress import Progress
from ..terminal import write

VERIFICATION_FAILED = 3


def bisect(arguments: argparse.Namespace) -> int:
    """Name the rule, where it stands, and how it fails; exit code 3 where there is one."""
    options = options_of(arguments, verify=True)
    with Progress(arguments) as progress:
        guilt = guilty_rules(arguments.model, options, progress)
    catalogue = load_rules(options.rules, precision=options.precision).rules if guilt else ()
    if arguments.json:
        render.print_json(_as_dict(guilt, catalogue) if guilt else None)
    elif guilt is None:
        render.say(arguments, f"{arguments.model}: the run passes with all rules")
    else:
        _print(guilt, catalogue)
    return 0 if guilt is None else VERIFICATION_FAILED


def _find(name: str, catalogue: Sequence[Rule]) -> Rule:
    return next(rule for rule in catalogue if rule.base == name)


def _place(rule: Rule) -> str:
    return f"{rule.path}:{rule.line}:{rule.column}"


def _print(guilt: Guilt, catalogue: Sequence[Rule]) -> None:
    for rule in (_find(name, catalogue) for name in guilt.rules):
        write(f"{_place(rule)}: rule {rule.base} makes it fail")
        write(rule.text)
    for rule in (_find(name, catalogue) for name in guilt.helpers):
        write(f"{_place(rule)}: rule {rule.base} brings it to light")
    write(f"after {guilt.runs} runs: {guilt.failure}")


def _as_dict(guilt: Guilt, catalogue: Sequence[Rule]) -> dict[str, Any]:
    def described(names: Sequence[str]) -> list[dict[str, str]]:
        rules = [_find(name, catalogue) for name in names]
        return [{"name": r.base, "file": _place(r), "text": r.text} for r in rules]

    return {
        "rules": described(guilt.rules),
        "helpers": described(guilt.helpers),
        "failure": guilt.failure,
        "runs": guilt.runs,
    }
