"""Rules beside the shipped ones are used only once they are checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import RuleError
from ..loader import RuleSet, shipped_files
from ..records import Rule
from .verdict import Verdict

if TYPE_CHECKING:
    from .check import Judge

_SHOWN = 60
"""Characters of each tensor of a counterexample: the message is one line."""


def require_accepted(rules: RuleSet, *, judge: Judge, told: Callable[[str], None]) -> None:
    """Check the rules of a run that are not shipped, as far as there is no verdict from before.

    Raises RuleError for the first that may not be used, with the numbers that show it. `told` hears how far it is.
    """
    shipped = {file.path for file in shipped_files()}
    files = [file for file in rules.files if file.path not in shipped]
    chosen = {rule.name: rule for rule in rules.rules if rule.path not in shipped and not rule.derives}
    if not chosen:
        return
    from .check import check_files  # the solver takes a while to import

    authored = sum(rule.name == rule.base for rule in chosen.values())
    for number, verdict in enumerate(check_files(files, chosen=chosen.keys(), judge=judge), 1):
        if not verdict.accepted:
            raise RuleError(refusal(chosen[verdict.rule], verdict))
        told(f"{number} of {authored} rules checked")


def refusal(rule: Rule, verdict: Verdict) -> str:
    """Why a rule is not used, in one line."""
    found = verdict.counterexample
    shown = f": {_counterexample(found.sample, found.elements, _sides(found))}" if found is not None else ""
    place = f"{rule.path}:{rule.line}:{rule.column}: rule {rule.base}"
    advice = f"`eqfuse rules check {rule.path}` says more, --trust-rules uses it all the same"
    said = "is refuted" if verdict.kind == "refuted" else "cannot be used"
    return f"{place} {said}: {verdict.reason}{shown}; {advice}"


def _sides(found: Any) -> str:
    return f"left {found.left}, right {found.right} at {found.where}" if found.left else ""


def _counterexample(sample: str, elements: Mapping[str, Any], sides: str) -> str:
    tensors: Sequence[str] = [f"{name} = {_shortened(array)}" for name, array in elements.items()]
    return ", ".join(filter(None, (f"for {sample}", sides, *tensors)))


def _shortened(array: Any) -> str:
    text = " ".join(str(array.tolist() if hasattr(array, "tolist") else array).split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
