"""Rules beside the shipped ones are used only once they are checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...engine.egraph.messages import RuleSelection
from ...errors import RuleError
from ...rules.loader import is_chosen
from ...rules.places import rule_paths
from ...rules.records import Rule, RuleFile, read_file
from ...rules.sexpr import SexprError
from ...support.countdown import Countdown
from .cache import Keys, load
from .verdict import Verdict

if TYPE_CHECKING:
    from .check import Judge

_SHOWN = 60
"""Characters of each tensor of a counterexample: the message is one line."""


def _rules_of(files: Sequence[RuleFile], selection: RuleSelection) -> dict[str, Rule]:
    """By name the rules of some files that are to be used and have to be checked for that."""
    rules = (rule for file in files for rule in file.rules if rule.name == rule.base and not rule.derives)
    return {r.name: r for r in rules if is_chosen(r, selection.precision, selection.only, selection.skip)}


def require_accepted(selection: RuleSelection, *, judge: Judge, told: Callable[[str], None]) -> None:
    """Check the rules of a run that are not shipped, as far as there is no verdict from before.

    Raises RuleError for the first that may not be used, with the numbers that show it. `told` hears how far it is.
    """
    paths = rule_paths(selection.paths)
    if _are_known(selection, paths):
        return
    from ...rules.lint import require_clean  # the lint and the checker have imports of their own
    from .check import check_files

    require_clean(paths)
    files = [read_file(path) for path in paths]
    rules = _rules_of(files, selection)
    countdown = Countdown(len(rules), "rules checked")
    for verdict in check_files(files, chosen=rules, judge=judge):
        if not verdict.accepted:
            raise RuleError(refusal(rules[verdict.rule], verdict))
        told(countdown.advance())


def _are_known(selection: RuleSelection, paths: Sequence[Path]) -> bool:
    """Whether all rules were accepted before. What else the files may hold, whoever loads them looks at."""
    try:
        files = [read_file(path) for path in paths]
        keys = Keys(files)
    except SexprError:
        return False
    return all(load(keys.of(rule)) is not None for rule in _rules_of(files, selection).values())


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
    tensors: Sequence[str] = [f"{name} = {shown(array, _SHOWN)}" for name, array in elements.items()]
    return ", ".join(filter(None, (f"for {sample}", sides, *tensors)))


def shown(array: Any, most: int) -> str:
    """The elements of a counterexample in at most so many characters, those of extended precision rounded."""
    if getattr(array, "dtype", None) == np.longdouble:
        array = array.astype(np.float64)
    text = " ".join(str(array.tolist() if hasattr(array, "tolist") else array).split())
    return text if len(text) <= most else f"{text[:most]}..."
