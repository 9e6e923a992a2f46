"""Discovering rules over some operators, to be written as a rule file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ...rules.loader import load_rules
from ...tools.discovery.discover import Discovery, Options, discover, rule_file


@dataclass(frozen=True)
class DiscoveredRules:
    """The request, and the rules that were found."""

    options: Options
    discovery: Discovery

    @cached_property
    def text(self) -> str:
        """The rules as a file."""
        return rule_file(self.options, self.discovery)

    def as_dict(self, output: Path | None) -> dict[str, Any]:
        """Plain data for JSON; `output` is the file that holds the rules."""
        fields = ("name", "formula", "properties", "sound", "requires")
        return {
            "operators": self.options.operators,
            "size": self.options.size,
            "catalogue": self.options.catalogue is not None,
            "output": output,
            **{name: getattr(self.discovery, name) for name in ("terms", "pairs", "derived", "refuted", "commuting")},
            "rules": [
                {
                    **{name: getattr(one.rule, name) for name in fields},
                    "verdict": one.verdict.kind,
                    "scope": one.verdict.scope,
                    "samples": one.verdict.samples,
                    "left_out": one.left_out or None,
                    "text": one.rule.text,
                }
                for one in self.discovery.rules
            ],
        }


def discover_rules(
    operators: Sequence[str], size: int, *, beside_catalogue: bool, observer: Callable[[str], None]
) -> DiscoveredRules:
    """Find rules over operators in terms of up to `size` operators; with `beside_catalogue`, only those that the
    shipped rules do not imply."""
    options = Options(tuple(operators), size, load_rules() if beside_catalogue else None)
    return DiscoveredRules(options, discover(options, observer))
