"""What follows a rule: passes that finish the loops which it has tiled.

    function --rule--> Tiled --PASSES--> Scheduled
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tvm import s_tir

from ..base.draft import Draft, Scheduled
from ..base.tiled import Tiled
from .axis_ends import end_with_axes
from .borders import peel_borders
from .outlining import outline_loops
from .prefetch import fetch_ahead
from .tails import overlap_tails
from .taps import leave_out_taps

Rule = Callable[[Draft], Iterator[Tiled]]
"""Tiles a draft in the ways that suit its function, the best first; in none if the function is not of the rule's kind:
the draft may be changed all the same. It raises REFUSALS if a primitive of TVM refuses a block that looked right."""
Pass = Callable[[Tiled], Tiled]
"""Finishes what a rule has tiled; changes nothing if it does not apply. It raises REFUSALS if the tiling is wrong."""
PASSES: tuple[Pass, ...] = (
    end_with_axes, overlap_tails, leave_out_taps, peel_borders, fetch_ahead, outline_loops,
)  # fmt: skip
"""The passes over the loops of every rule, in this order."""
PASSES_OF_TILES = PASSES[:3]
"""The passes over smaller tiles, before `overlap_tails` of the usual ones makes both one function."""
REFUSALS = (s_tir.ScheduleError, RuntimeError, TypeError)
"""The errors of a rule or a pass if the rule does not match after all: TypeError if an extent is dynamic that has to be
a number."""


def apply_rule(rule: Rule, draft: Draft) -> Scheduled | None:
    """The schedule by a rule and all passes; None if the rule does not match.

    Raises what the last of its ways of tiling raises, one of REFUSALS, if no way can be finished.
    """
    refusal: Exception | None = None
    for tiled in rule(draft):
        try:
            finished = _finish(tiled, PASSES)
        except REFUSALS as error:
            refusal = error
        else:
            return Scheduled(finished.draft.schedule, finished.repack, finished.rule)
    if refusal is not None:
        raise refusal
    return None


def _finish(tiled: Tiled, passes: Sequence[Pass]) -> Tiled:
    """What a rule has tiled, with the smaller tiles that belong to it, after these passes."""
    if tiled.smaller is not None:
        tiled = replace(tiled, smaller=_finish(tiled.smaller, PASSES_OF_TILES))
    for finish in passes:
        tiled = finish(tiled)
    return tiled
