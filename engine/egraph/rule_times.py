"""The seconds of each rule, as exact as egglog measured them.

egglog's bindings round durations down to whole milliseconds, and most rules take less in one iteration; the text of a
report has the exact durations.
"""

from __future__ import annotations

import re

_SECTION = re.compile(r"\bsearch_and_apply_time_per_rule: \{(.*?)\}, \w+: ", re.DOTALL)
_ENTRY = re.compile(r'"((?:[^"\\]|\\.)*)": ([\d.]+)(ns|µs|ms|s)')
_UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def rule_seconds(report: object) -> dict[str, float]:
    """Seconds of searching and applying by the name of the rule, from a RunReport of egglog."""
    section = _SECTION.search(str(report))
    entries = _ENTRY.findall(section.group(1)) if section else []
    return {name: float(number) * _UNITS[unit] for name, number, unit in entries}
