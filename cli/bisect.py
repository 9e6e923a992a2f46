"""``eqfuse bisect``."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict

from ..bisection import guilty_rules
from ..rules.loader import load_rules
from . import render
from .options import options_of

VERIFICATION_FAILED = 3


def bisect(arguments: argparse.Namespace) -> int:
    """Name the rule, where it stands, and how it fails; exit code 3 where there is one."""
    options = options_of(arguments, verify=True)
    tell = None if arguments.quiet or arguments.json else lambda line: print(line, file=sys.stderr)
    guilt = guilty_rules(arguments.model, options, tell)
    if arguments.json:
        render.print_json(None if guilt is None else asdict(guilt))
    elif guilt is None and not arguments.quiet:
        print(f"{arguments.model}: verification passes with all rules")
    elif guilt is not None:
        catalogue = load_rules(options.rules, precision=options.precision).rules
        for name in guilt.rules:
            rule = next(r for r in catalogue if r.base == name)
            print(f"{rule.path}:{rule.line}:{rule.column}: rule {name} makes it fail")
            print(rule.text)
        print(f"after {guilt.runs} runs: {guilt.failure}")
    return 0 if guilt is None else VERIFICATION_FAILED
