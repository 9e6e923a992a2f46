"""Whether a rule's left side matches at a node, and if not, the first condition that is not met."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...rules.loader import Rule
from .patterns import Unclear
from .probe import Attempt, Probe, Result
from .search import Search
from .session.session import OutOfTime, Session


@dataclass(frozen=True)
class Diagnosis:
    """The best attempts, on the model as it is and among all that the rules make of it.

    `after` is None where the time limit came first. `results` are those of matches among all.
    """

    before: Attempt
    after: Attempt | None
    results: tuple[Result, ...]


def diagnose(candidates: Sequence[Rule], terms: Sequence[int], search: Search, seconds: float) -> Diagnosis:
    """Try a rule (with its mirrored variants) at the terms of a node, and tell how the best of them fares.

    Raises OutOfTime where not even the first attempt comes to an end.
    """
    with Session(seconds) as session:
        probe = Probe(candidates, terms, search, session)
        before = probe.attempt("before")
        try:
            probe.saturate()
            after = probe.attempt("after")
        except OutOfTime:
            return Diagnosis(before, None, ())
        try:
            return Diagnosis(before, after, tuple(probe.results()) if after.matches else ())
        except (OutOfTime, Unclear):
            return Diagnosis(before, after, ())
