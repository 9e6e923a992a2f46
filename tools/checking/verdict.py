"""The verdict of the checker on a rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .oracles.numeric import Counterexample

Kind = Literal["proved", "proved-if", "tested", "assumed", "refuted", "idle", "unchecked"]
KINDS: tuple[Kind, ...] = ("proved", "proved-if", "tested", "assumed", "refuted", "idle", "unchecked")


@dataclass(frozen=True)
class Verdict:
    """``proved``: equal for all elements; ``proved-if``: under `condition`, which the rule's own left side makes sure
    of; ``tested``: equal on all numbers tried; ``assumed``: it fires, but makes an operator of another domain, of which
    only its author knows what it computes; ``refuted``: not equal, or without end, see `counterexample`; ``idle``: no
    sample made the rule fire, or not its example, so that little or nothing is known; ``unchecked``: the checker itself
    failed, which says nothing about the rule.

    `scope` says for which shapes it is proved: ``every rank and size`` (see `unbounded`), ``any shape`` of
    element-wise operators that do not broadcast, or how many sampled ones. `samples` counts the samples of the left
    side that fired and were tested in numbers, `settings` the element types, ranks, sizes, attributes and the like that
    they have between them. `example`: the rule fired on its own example. `uncovered` lists types,
    ranks, attributes and elements that no sample has. `remark` is about a rule that is true.
    """

    rule: str
    kind: Kind
    scope: str = ""
    condition: str = ""
    samples: int = 0
    settings: int = 0
    example: bool = True
    reason: str = ""
    remark: str = ""
    uncovered: tuple[str, ...] = ()
    counterexample: Counterexample | None = None

    @property
    def accepted(self) -> bool:
        """Whether the rule may be used."""
        return self.kind not in ("refuted", "idle", "unchecked")
