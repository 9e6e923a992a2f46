"""The verdict of the checker on a rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .oracles.numeric import Counterexample

Kind = Literal["proved", "proved-if", "tested", "assumed", "refuted", "idle", "unchecked"]
KINDS: tuple[Kind, ...] = ("proved", "proved-if", "tested", "assumed", "refuted", "idle", "unchecked")


@dataclass(frozen=True)
class Verdict:
    """The kind of verdict, and what it rests on.

    ``proved``: both sides are equal for all elements. ``proved-if``: they are under `condition`, which the rule's own
    left side guarantees. ``tested``: they are equal on all numbers tried. ``assumed``: the rule fires, but makes an
    operator of another domain, and only its author knows what that computes. ``refuted``: the sides differ, or the rule
    never ends; see `counterexample`. ``idle``: the rule fired on no sample, or not on its example, so that little or
    nothing is known. ``unchecked``: egglog does not take the rule, or the checker itself failed; whether the rule is
    right stays open.

    `scope` says for which shapes the rule is proved: ``every rank and size`` (see `unbounded`), ``any shape`` of
    element-wise operators that do not broadcast, or a number of sampled shapes. `samples` counts the samples of the
    left side on which the rule fired and that were tested in numbers, `settings` the element types, ranks, sizes,
    attributes and so on of these samples together. `example`: the rule fired on its own example. `uncovered` lists
    types, ranks, attributes and elements that no sample has. `remark` is about a rule that is true.
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
