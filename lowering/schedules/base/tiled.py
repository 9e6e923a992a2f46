"""What a rule makes of a draft: tiled loops, which the passes behind the rules finish."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from .draft import Draft
from .nodes import Buffer, Expression, Variable
from .packing import Packing


@dataclass(frozen=True)
class PaddedMap:
    """How the sum reads a feature map: `value` at its `variables`, if the conditions on row and column hold.

    It is 0 elsewhere. The variables are image, row, column and channel; a depth stands behind the image, and has
    conditions, too. `name` is that of the map with its zeros, `shape` its shape; `buffers` are those of the value.
    """

    name: str
    variables: tuple[Variable, ...]
    value: Any
    rows: tuple[Any, ...]
    columns: tuple[Any, ...]
    buffers: tuple[Buffer, ...]
    shape: tuple[int, ...]
    depth: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Tiled:
    """Loops that a rule has tiled, the constants to repack for them, and what the passes have to know of them.

    Blocks and loops of the draft that the rule worked on need not be valid in this one.
    """

    draft: Draft
    rule: str
    repack: tuple[Packing, ...] = ()
    tails: Literal["overlap", "guard", "none"] = "overlap"
    """Guarded tiles move back, or keep their guards if a dynamic extent needs them, or there are none."""
    conditions: tuple[Expression, ...] = ()
    """Further conditions for these tiles: if a condition or a dynamic extent does not, `smaller` runs."""
    smaller: Tiled | None = None
    """The same function by smaller tiles, with the same parameters in the same layouts."""
    outside: PaddedMap | None = None
    """The map around which the products of a window are left out."""
    has_gaps: bool = False
    """Whether a sum asks which elements of a window have weights, all of which loops around the others run over."""
    has_border: bool = False
    """Whether a sum asks in its innermost loop whether it reads inside of a map."""
    fetches_ahead: bool = False
    """Whether the packed weights of the next tile may be fetched while one is computed."""
