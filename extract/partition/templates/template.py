"""A template: what kind of kernel it makes, which operators it accepts, and at what cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .operator_set import OperatorSet

LOOPS = "its loops cannot be tiled together without computing values twice"


@dataclass(frozen=True)
class Template:
    """`accepts` says why a kernel of this kind cannot be made of some operators; None if it can.

    `cost` are the seconds of an accepted one, without its launch, by its schedule's estimate. `rule` names the schedule
    of a template whose kernels have several anchor ops: only the lowering knows whether it fits, and confirms the
    chosen kernels.
    """

    name: str
    accepts: Callable[[OperatorSet], str | None]
    cost: Callable[[OperatorSet], float] = lambda operators: operators.seconds
    rule: str | None = None

    @property
    def is_intensive(self) -> bool:
        """Whether it is AGO's intensive fusion: several anchor ops in one kernel."""
        return self.rule is not None
