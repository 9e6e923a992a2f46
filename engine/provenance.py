"""How a model was made, as it says itself: entries of its metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from ..rules.vocabulary import Precision
from .model import Model

PRECISION_KEY = "eqfuse.precision"
RULES_KEY = "eqfuse.rules"
METHOD_KEY = "eqfuse.partition"
"""On the model: how it was partitioned."""
GROUP_KEY = "eqfuse.group"
"""On nodes: the number of the group, groups numbered in an order in which they can run."""

_LOOSENESS: tuple[Precision, ...] = get_args(Precision)


@dataclass(frozen=True)
class Provenance:
    """A result of eqfuse: the precision it was made with, and how many rules matched in the making."""

    precision: Precision
    rules: int

    def __str__(self) -> str:
        return f"made with --precision {self.precision}, {self.rules} {'rule' if self.rules == 1 else 'rules'} matched"


def provenance(metadata: Mapping[str, str]) -> Provenance | None:
    """What the metadata of a model say; None where eqfuse did not write them."""
    precision = next((p for p in _LOOSENESS if p == metadata.get(PRECISION_KEY)), None)
    rules = metadata.get(RULES_KEY, "")
    return Provenance(precision, int(rules)) if precision is not None and rules.isdecimal() else None


def stamp(metadata: dict[str, str], precision: Precision, rules: int) -> None:
    """Record how a model was made. One made from a result of a looser precision stays of that precision."""
    earlier = provenance(metadata)
    loosest = max(precision, earlier.precision if earlier else precision, key=_LOOSENESS.index)
    metadata[PRECISION_KEY], metadata[RULES_KEY] = loosest, str(rules)


def forget_partition(model: Model) -> None:
    """Remove what says how a model was partitioned, as it must be where the nodes have changed since."""
    model.ir.metadata_props.pop(METHOD_KEY, None)
    for node in model.graph:
        node.metadata_props.pop(GROUP_KEY, None)
