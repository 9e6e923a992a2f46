"""Which rows of each map of a chain are made in which step, and how many of them are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .map_chain import Stage


@dataclass(frozen=True)
class StageRows:
    """In step `t` of part `p` a stage makes the rows from ``p * part + t * count + offset`` on, `count` of them.

    Only those from ``p * part + low`` on, and below ``(p + 1) * part + high``, are needed.
    """

    count: int
    offset: int
    part: int
    low: int
    high: int

    def first(self, part: Any, step: Any) -> Any:
        """The first row of a step."""
        return part * self.part + step * self.count + self.offset


@dataclass(frozen=True)
class RowPlan:
    """The rows of the stages in `steps` steps of each of `parts` parts of the last map.

    `kept` are the rows that lie between the first that is still to be read and the last that is made, for each map but
    the last, with its border.
    """

    stages: tuple[StageRows, ...]
    kept: tuple[int, ...]
    steps: int
    parts: int


def plan_rows(stages: Sequence[Stage], rows: int, parts: int) -> RowPlan:
    """The plan in which a step makes `rows` rows of the last map; with all of a part's rows there is one step.

    A step makes of each map as many rows as let the next stage make its own, of which it begins with as many as are
    complete. Parts have no row in common but those that windows at their border read.
    """
    windows = [stage.window for stage in stages[1:] if stage.window is not None]
    height = stages[-1].shape[1]
    part = -(-height // parts)
    counts, sizes, lows, highs = [rows], [part], [0], [0]
    for window in reversed(windows):
        counts.insert(0, counts[0] * window.stride)
        sizes.insert(0, sizes[0] * window.stride)
        lows.insert(0, lows[0] * window.stride - window.border.top)
        highs.insert(0, (highs[0] - 1) * window.stride + window.span - window.border.top)
    offsets, kept = [lows[0]], []
    for number, window in enumerate(windows):
        behind = offsets[-1] + window.border.top
        offsets.append((behind - window.span) // window.stride + 1)
        rows_kept = counts[number] + behind - offsets[-1] * window.stride
        kept.append(min(rows_kept, window.border.height))
    if rows >= part and rows + offsets[-1] < part:
        return plan_rows(stages, part - offsets[-1], parts)
    steps = -(-(part - offsets[-1]) // rows)
    plans = map(StageRows, counts, offsets, sizes, lows, highs)
    return RowPlan(tuple(plans), tuple(kept), steps, parts)


def plan_planes(stages: Sequence[Stage]) -> RowPlan:
    """The plan with one step, whose code for each stage makes all rows."""
    heights = [stage.shape[1] for stage in stages]
    kept = tuple(stage.window.border.height for stage in stages[1:] if stage.window is not None)
    return RowPlan(tuple(StageRows(1, 0, height, 0, 0) for height in heights), kept, 1, 1)


def group_stages(stages: Sequence[Stage]) -> tuple[tuple[int, ...], ...]:
    """The numbers of stages whose channels belong together: each reads the channels that the one before makes."""
    groups: list[tuple[int, ...]] = [(0,)]
    for number, stage in enumerate(stages[1:], 1):
        if stage.window is not None and stage.window.is_per_channel:
            groups[-1] += (number,)
        else:
            groups.append((number,))
    return tuple(groups)
