"""Finding the rule that makes verification fail, by halving the set of rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .api import Options, run
from .engine.saturate import UnsoundRuleError
from .errors import EqfuseError, VerificationError
from .rules.loader import load_rules


@dataclass(frozen=True)
class Guilt:
    """The smallest set of rules found that fails together, and how it fails."""

    rules: tuple[str, ...]
    failure: str
    runs: int


def guilty_rules(model: Path, options: Options, observer: Callable[[str], None] | None = None) -> Guilt | None:
    """A set of rules from which no one can be left out without verification passing; None where all pass.

    Delta debugging (Zeller and Hildebrandt, TSE 2002) over the rules of the run. Usually it ends with one rule.
    """
    catalogue = load_rules(options.rules, precision=options.precision, only=options.only, skip=options.skip)
    search = _Search(model, options, observer)
    names = list(dict.fromkeys(rule.base for rule in catalogue.rules))
    failure = search.failure(names)
    if failure is None:
        return None
    culprits = search.shrink(names)
    return Guilt(tuple(culprits), search.failure(culprits) or failure, search.runs)


class _Search:
    def __init__(self, model: Path, options: Options, observer: Callable[[str], None] | None) -> None:
        self.model, self.options, self.observer = model, options, observer
        self.runs = 0
        self.known: dict[frozenset[str], str | None] = {}

    def failure(self, names: Sequence[str]) -> str | None:
        """How the run with these rules fails; None where it passes."""
        key = frozenset(names)
        if key not in self.known:
            self.runs += 1
            if self.observer:
                self.observer(f"run {self.runs}: {len(names)} rules")
            self.known[key] = self._run(tuple(names)) if names else None
        return self.known[key]

    def _run(self, names: tuple[str, ...]) -> str | None:
        try:
            run(self.model, None, replace(self.options, only=names, verify=True), None)
        except (VerificationError, UnsoundRuleError) as error:
            return str(error)
        except EqfuseError as error:
            return f"the run itself failed: {error}"
        return None

    def shrink(self, names: list[str]) -> list[str]:
        """Halve while one half fails alone; then drop finer and finer parts."""
        parts = 2
        while len(names) > 1:
            size = -(-len(names) // parts)
            chunks = [names[i : i + size] for i in range(0, len(names), size)]
            smaller = self._failing(names, chunks)
            if smaller is not None:
                parts = 2 if len(smaller) <= size else max(parts - 1, 2)
                names = smaller
            elif size == 1:
                break
            else:
                parts = min(2 * parts, len(names))
        return names

    def _failing(self, names: list[str], chunks: list[list[str]]) -> list[str] | None:
        for chunk in chunks:
            if self.failure(chunk) is not None:
                return chunk
        if len(chunks) > 2:
            for chunk in chunks:
                rest = [n for n in names if n not in set(chunk)]
                if self.failure(rest) is not None:
                    return rest
        return None
