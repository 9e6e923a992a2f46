"""``eqfuse bisect``."""

from __future__ import annotations

import argparse

from ...driver.options import Options
from ...driver.rules.bisect import guilty_rules, rules_named
from ...support.errors import VerificationError
from .. import render
from ..options import options_of
from ..progress import Progress
from ..terminal import write


def bisect(arguments: argparse.Namespace) -> int:
    """Name the rule, its place, and how the run fails; exit code 3 if there is a guilty rule."""
    options = options_of(Options, arguments, verify=True)
    with Progress(arguments) as progress:
        guilt = guilty_rules(arguments.model, options, progress)
    if guilt is None:
        if arguments.json:
            render.print_json({"rules": [], "helpers": [], "failure": None, "runs": None})
        elif not arguments.quiet:
            write(f"{arguments.model}: the run passes with all rules")
        return 0
    rules, helpers = (rules_named(names, options) for names in (guilt.rules, guilt.helpers))
    if arguments.json:
        sides = {"rules": rules, "helpers": helpers}
        content = {
            side: [{"name": rule.base, "file": rule.place, "text": rule.text} for rule in side_rules]
            for side, side_rules in sides.items()
        }
        render.print_json({**content, "failure": guilt.failure, "runs": guilt.runs})
        return VerificationError.exit_code
    for rule in rules:
        write(f"{rule.place}: rule {rule.base} makes it fail")
        write(rule.text)
    for rule in helpers:
        write(f"{rule.place}: rule {rule.base} reveals the failure")
    write(f"after {guilt.runs} runs: {guilt.failure}")
    return VerificationError.exit_code
