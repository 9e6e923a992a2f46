"""Numbers with their units, as text for people."""

from __future__ import annotations

_SCALES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def figure(value: float, unit: str = "") -> str:
    """A number with three or four digits and a decimal prefix: 1.23 GFLOP."""
    for scale, prefix in _SCALES:
        if abs(value) >= scale:
            return f"{value / scale:.4g} {prefix}{unit}".rstrip()
    return f"{value:.4g} {unit}".rstrip()


def memory(number: float) -> str:
    """A number of bytes."""
    return figure(number, "B")


def seconds(value: float) -> str:
    """A duration."""
    if value < 1e-3:
        return f"{value * 1e6:.4g} us"
    return f"{value * 1e3:.4g} ms" if value < 1 else f"{value:.3g} s"


def seconds_range(median: float, lower: float, upper: float) -> str:
    """A median duration and a range in its unit: ``1.2 ms (1.1 to 1.4)``."""
    text = seconds(median)
    scale = {"us": 1e6, "ms": 1e3, "s": 1.0}[text.split()[1]]
    return f"{text} ({lower * scale:.4g} to {upper * scale:.4g})"


def change(before: float, after: float) -> str:
    """A relative change."""
    if before == after:
        return "="
    return f"{100 * (after - before) / before:+.1f} %" if before else "new"


def count_text(number: int, noun: str) -> str:
    """``1 rule``, ``2 rules``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def rule_seconds(value: float) -> str:
    """The time of a rule; 0 means that it was too short to measure."""
    return seconds(value) if value else "< 1 ms"


def percentage(share: float) -> str:
    """A share in percent; 100 % only when nothing is missing."""
    return "100 %" if share == 1 else f"{min(100 * share, 99.9):.3g} %"


def ulps(number: float) -> str:
    """A number of units in the last place."""
    return f"{number:.0f}" if number < 1e6 else f"{number:.3g}"
