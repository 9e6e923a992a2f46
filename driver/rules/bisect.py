"""Finding the rule that makes a run fail, by halving the set of rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...rules.loader import Rule, load_rules, load_selection
from ...rules.places import shipped_files
from ...support.errors import EqfuseError, ProcessError, VerificationError
from ...support.minimal_failure import minimal_failure
from ..optimize import optimize_model
from ..options import Options


@dataclass(frozen=True)
class Guilt:
    """Why a run fails: `rules` fail together, none can be left out of them, and without any one the run passes.

    `helpers` are needed to make those fail, but other rules of the run could take their place.
    `failure` is the message of the smallest failing run, `runs` the number of runs.
    """

    rules: tuple[str, ...]
    helpers: tuple[str, ...]
    failure: str
    runs: int


def guilty_rules(model: Path, options: Options, observer: Callable[[str], None] | None = None) -> Guilt | None:
    """The rules that make the run fail: by verification, contradictions or an error. None if it passes.

    If the shipped rules alone pass, those of the user's files are searched, beside the shipped ones.
    Raises EqfuseError if the run fails even without rules: then none of them is guilty.
    """
    shipped, own = _names(options)
    search = _RuleSearch(model, options, observer, (*shipped, *own))
    search.require_innocence()
    if search.failure(search.names) is None:
        return None
    beside, suspects = (shipped, own) if search.failure(shipped) is None else ((), shipped)
    needed = minimal_failure(lambda names: search.failure((*beside, *names)) is not None, suspects)
    culprits = tuple(n for n in needed if search.failure([m for m in search.names if m != n]) is None) or needed
    helpers = tuple(n for n in needed if n not in culprits)
    return Guilt(culprits, helpers, search.failure((*beside, *needed)) or "", search.runs)


def rules_named(names: Sequence[str], options: Options) -> list[Rule]:
    """Rules of a run by their names."""
    catalogue = load_rules(options.rules, precision=options.precision).rules
    return [next(rule for rule in catalogue if rule.base == name) for name in names]


def _names(options: Options) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The rules of the run, without those that only derive facts: the shipped ones, and those of the user's files."""
    chosen = load_selection(options.selection)
    shipped = {file.path for file in shipped_files()}
    rules = [rule for rule in chosen.rules if not rule.derives]
    return (
        tuple(dict.fromkeys(rule.base for rule in rules if rule.path in shipped)),
        tuple(dict.fromkeys(rule.base for rule in rules if rule.path not in shipped)),
    )


def _describe(error: EqfuseError) -> str:
    """What went wrong, without advice for the command that optimises."""
    return error.fact if isinstance(error, VerificationError) else str(error)


class _RuleSearch:
    def __init__(
        self, model: Path, options: Options, observer: Callable[[str], None] | None, names: tuple[str, ...]
    ) -> None:
        self.model, self.observer, self.names = model, observer, names
        self.options = replace(options, verify=True)
        self.runs = 0
        self.outcomes: dict[frozenset[str], str | None] = {}

    def failure(self, names: Sequence[str]) -> str | None:
        """How the run with these rules fails; None if it passes."""
        key = frozenset(names)
        if key not in self.outcomes:
            try:
                self.run(names)
                self.outcomes[key] = None
            except ProcessError:
                raise
            except EqfuseError as error:
                self.outcomes[key] = _describe(error)
        return self.outcomes[key]

    def require_innocence(self) -> None:
        """Raise VerificationError if the run fails without any rule."""
        try:
            self.run(())
            self.outcomes[frozenset()] = None
        except VerificationError as error:
            raise VerificationError(f"no rule is guilty, the run fails without any: {_describe(error)}") from error

    def run(self, names: Sequence[str]) -> None:
        """Optimise and verify with these rules alone. Raises EqfuseError if that fails.

        It is a ProcessError, which ends the search, if the processes fail, whichever the rules.
        """
        self.runs += 1
        if self.observer:
            self.observer(f"run {self.runs}: {len(names)} rules")
        chosen = set(names)
        skip = (*self.options.skip, *(n for n in self.names if n not in chosen))
        try:
            optimize_model(self.model, None, replace(self.options, skip=skip), None)
        except ProcessError as error:
            raise ProcessError(f"{self.model}: the search ended, since no rule is to blame for this: {error}") from None
