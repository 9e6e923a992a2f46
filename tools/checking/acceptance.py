"""The user's own rules are used only after they are checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...rules.loader import is_chosen
from ...rules.places import rule_paths
from ...rules.records import Rule, RuleFile, read_file
from ...rules.sexpr import SexprError
from ...rules.vocabulary import RuleSelection
from ...support.countdown import Countdown
from ...support.errors import RuleError
from .cache import CacheKeys, load
from .oracles.numeric import Counterexample
from .verdict import Verdict

if TYPE_CHECKING:
    from .check import Judge

_SHOWN = 60
"""Characters of each tensor of a counterexample: the message is one line."""


def _rules_of(files: Sequence[RuleFile], selection: RuleSelection) -> dict[str, Rule]:
    """By name the rules of some files that a run uses, as their authors wrote them."""
    rules = (rule for file in files for rule in file.rules if rule.name == rule.base and not rule.derives)
    return {r.name: r for r in rules if is_chosen(r, selection)}


def require_accepted(selection: RuleSelection, *, judge: Judge, report: Callable[[str], None]) -> None:
    """Check the rules of a run that are not shipped, as far as no verdict is stored.

    `report` is called with the progress. Raises RuleError for the first rule that may not be used, with a
    counterexample.
    """
    paths = rule_paths(selection.rules)
    if _are_stored(selection, paths):
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
        report(countdown.advance())


def _are_stored(selection: RuleSelection, paths: Sequence[Path]) -> bool:
    """Whether verdicts that accept all rules are stored. Other contents of the files are left to their loader."""
    try:
        files = [read_file(path) for path in paths]
        keys = CacheKeys(files)
    except SexprError:
        return False
    return all(load(keys.key(rule)) is not None for rule in _rules_of(files, selection).values())


def refusal(rule: Rule, verdict: Verdict) -> str:
    """Why a rule is not used, in one line."""
    place = f"{rule.path}:{rule.line}:{rule.column}: rule {rule.base}"
    problem = "is refuted" if verdict.kind == "refuted" else "cannot be used"
    example = "" if verdict.counterexample is None else f": {_counterexample_text(verdict.counterexample)}"
    advice = f"`eqfuse rules check {rule.path}` says more, --trust-rules uses it all the same"
    return f"{place} {problem}: {verdict.reason}{example}; {advice}"


def _counterexample_text(example: Counterexample) -> str:
    sides = f"left {example.left}, right {example.right} at {example.where}" if example.left else ""
    tensors = [f"{name} = {elements_text(array, _SHOWN)}" for name, array in example.elements.items()]
    return ", ".join(filter(None, (f"for {example.sample}", sides, *tensors)))


def elements_text(array: Any, most: int) -> str:
    """The elements of a counterexample in at most `most` characters, those of extended precision rounded."""
    if getattr(array, "dtype", None) == np.longdouble:
        array = array.astype(np.float64)
    text = " ".join(str(array.tolist() if hasattr(array, "tolist") else array).split())
    return text if len(text) <= most else f"{text[:most]}..."
