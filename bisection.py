"""Finding the rule that makes a run fail, by halving the set of rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .api import Options, run
from .errors import EqfuseError
from .rules.loader import RuleSet, load_rules


@dataclass(frozen=True)
class Guilt:
    """Why a run fails: without any one of `rules` it passes.

    `helpers` are rules without which those alone do not fail; other rules of the run may do instead of them.
    `failure` is the message of the smallest failing run, `runs` the number of runs it took.
    """

    rules: tuple[str, ...]
    helpers: tuple[str, ...]
    failure: str
    runs: int


def guilty_rules(model: Path, options: Options, observer: Callable[[str], None] | None = None) -> Guilt | None:
    """The rules that make the run fail: verification, the shape canary, or an error; None where it passes.

    Raises EqfuseError where the run fails even without rules: then none of them is guilty.
    """
    catalogue = load_rules(options.rules, precision=options.precision, only=options.only, skip=options.skip)
    names = list(dict.fromkeys(rule.base for rule in catalogue.rules if not rule.derives))
    search = _Search(model, options, observer, tuple(names))
    search.run(())
    if search.failure(names) is None:
        return None
    needed = search.needed(names, _shipped(catalogue, options))
    culprits = [n for n in needed if len(needed) == 1 or search.failure([m for m in names if m != n]) is None]
    helpers = tuple(n for n in needed if culprits and n not in culprits)
    return Guilt(tuple(culprits or needed), helpers, search.failure(needed) or "", search.runs)


def _shipped(catalogue: RuleSet, options: Options) -> int:
    """How many of the rules, which stand first, do not come from the user's files."""
    own = load_rules(precision=options.precision, only=(), skip=options.skip)
    shipped = {rule.base for rule in own.rules}
    return len(dict.fromkeys(r.base for r in catalogue.rules if not r.derives and r.base in shipped))


class _Search:
    def __init__(
        self, model: Path, options: Options, observer: Callable[[str], None] | None, names: tuple[str, ...]
    ) -> None:
        self.model, self.observer, self.names = model, observer, names
        self.options = replace(options, verify=True)
        self.runs = 0
        self.known: dict[frozenset[str], str | None] = {}

    def failure(self, names: Sequence[str]) -> str | None:
        """How the run with these rules fails; None where it passes."""
        key = frozenset(names)
        if key not in self.known:
            try:
                self.run(names)
                self.known[key] = None
            except EqfuseError as error:
                self.known[key] = str(error)
        return self.known[key]

    def run(self, names: Sequence[str]) -> None:
        """Optimise and verify with these rules alone. Raises EqfuseError where that fails."""
        self.runs += 1
        if self.observer:
            self.observer(f"run {self.runs}: {len(names)} rules")
        chosen = set(names)
        skip = (*self.options.skip, *(n for n in self.names if n not in chosen))
        run(self.model, None, replace(self.options, skip=skip), None)

    def needed(self, names: Sequence[str], suspected: int) -> list[str]:
        """Rules that fail together and none of which can be left out, of `names`, that fail together.

        The last rule of the shortest prefix that fails is needed; with it always added, the next one is found among
        the rules before it, until those found fail alone. The search looks first at the prefix of length `suspected`.
        """
        found: list[str] = []
        while not found or self.failure(found) is None:
            low, high, middle = 0, len(names), suspected
            while high - low > 1:
                middle = middle if low < middle < high else (low + high) // 2
                fails = self.failure([*found, *names[:middle]]) is not None
                low, high = (low, middle) if fails else (middle, high)
                middle = (low + high) // 2
            found = [names[high - 1], *found]
            names = names[: high - 1]
        return found
