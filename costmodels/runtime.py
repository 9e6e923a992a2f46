"""A runtime as data: the operators that it runs as one kernel, and the form in which it must find them.

A file of `runtimes/` describes one version of a runtime; README.md has the tables.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ..support.options import OptionError

DIRECTORY = Path(__file__).parent / "runtimes"
NONE = "none"
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Factor = Annotated[float, msgspec.Meta(ge=0, le=1000)]


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of a runtime's file."""


class Fused(_Table, frozen=True):
    """Operators that run in the kernel of the operator of `into` before them, for `share` of their own cost."""

    into: tuple[str, ...]
    operators: tuple[str, ...]
    share: Share


class Spelling(_Table, frozen=True):
    """The nodes for an operator whose attributes are those of `when`, from opset `since` on and below `before`."""

    operator: str
    since: int
    before: int
    lines: tuple[str, ...]
    when: Mapping[str, str | float] = {}


class Apart(_Table, frozen=True):
    """An operator of two operands of one shape that the runtime would fuse with an operator of `before` behind it, into
    a kernel that takes longer than both. It is written as `write`, which computes the same and is not recognised.
    """

    operator: str
    before: frozenset[str]
    write: str


class Blocked(_Table, frozen=True):
    """The layout in blocks of `block` channels in which operators of `starting` run, on a `family` of processors.

    They need a multiple of `multiple` channels. Operators of `keeping` stay in it. `reorder` is the cost of a change
    of layout, relative to that of a copy; `sum` the share that remains of the cost of an Add to a convolution,
    `shares` of those that operators have on plain tensors.
    """

    family: str
    block: Annotated[int, msgspec.Meta(ge=1)]
    multiple: Annotated[int, msgspec.Meta(ge=1)]
    starting: frozenset[str]
    keeping: frozenset[str]
    reorder: Factor
    sum: Share
    shares: Mapping[str, Share] = {}


class Parted(_Table, frozen=True):
    """An operator whose kernel on integers takes longer than numbers and conversions, if the integers stand for numbers
    that are at most `widest` apart: it is written in a form that is not recognised."""

    operator: str
    widest: Annotated[float, msgspec.Meta(ge=0)] = math.inf


class Quantised(_Table, frozen=True):
    """Operators that run on integers as one kernel with the DequantizeLinear before them and the QuantizeLinear behind.

    Such a unit takes the share in `units` of the operator's own cost. Those of `weighted` are products whose second
    operand may have another type. Activations have no sign unless they may be `signed`. Those of `floating` need no
    QuantizeLinear. Conversions pass operators of `moving`.

    The runtime makes `products` of integers of those between conversions by itself, with kernels that are faster than
    these, which therefore stay only if the model has them. Its kernels for products of bytes, one of them with a sign,
    may `saturate`: they add up two such products in 16 bits. Operators of `whole` on integers would part conversions
    from operators with which they are one kernel.
    """

    units: Mapping[str, Factor] = {}
    weighted: frozenset[str] = frozenset()
    signed: bool = True
    floating: frozenset[str] = frozenset()
    moving: frozenset[str] = frozenset()
    apart: tuple[Parted, ...] = ()
    products: frozenset[str] = frozenset()
    whole: frozenset[str] = frozenset()
    saturate: bool = False


class Runtime(_Table, frozen=True):
    """A runtime. One that fuses nothing has no tables."""

    description: str = ""
    fused: tuple[Fused, ...] = ()
    spelling: tuple[Spelling, ...] = ()
    apart: tuple[Apart, ...] = ()
    blocked: Blocked | None = None
    quantised: Quantised = Quantised()

    @property
    def forms(self) -> Runtime:
        """The runtime with its spellings alone."""
        return Runtime(spelling=self.spelling)

    @property
    def timeless(self) -> Runtime:
        """The runtime with its spellings, and what it cannot run as well as it makes it by itself."""
        return Runtime(spelling=self.spelling, quantised=msgspec.structs.replace(self.quantised, units={}))

    def spell(self, operator: str, literals: Mapping[str, object], opset: int) -> tuple[str, ...]:
        """The lines in which an operator has to be written at an opset, () if it is a node like any other."""
        for spelling in self.spelling:
            is_meant = spelling.operator == operator and spelling.since <= opset < spelling.before
            if is_meant and all(literals.get(name) == value for name, value in spelling.when.items()):
                return spelling.lines
        return ()

    def on(self, family: str) -> Runtime:
        """The runtime on processors of a family, without a layout in blocks of another family."""
        is_meant = self.blocked is not None and family == self.blocked.family
        return self if is_meant else msgspec.structs.replace(self, blocked=None)

    def operators_fused_into(self, operator: str) -> Mapping[str, float]:
        """The operators that run in the kernel of this one before them, and the shares of their costs that remain."""
        return {name: fused.share for fused in self.fused if operator in fused.into for name in fused.operators}


def _put_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Tables with the entries of others in place of their own."""
    both = below.keys() & above.keys()
    nested = {k: _put_over(below[k], above[k]) for k in both if isinstance(below[k], dict)}
    return {**below, **above, **nested}


NO_RUNTIME = Runtime()


def runtime_names() -> list[str]:
    """The runtimes that come with the project, sorted, and `NONE`."""
    return [*sorted(path.stem for path in DIRECTORY.glob("*.toml")), NONE]


@cache
def load_runtime(name: str) -> Runtime:
    """The runtime of that name, or of that file if the text ends in ``.toml``. Raises OptionError."""
    if name == NONE:
        return NO_RUNTIME
    path = Path(name) if name.endswith(".toml") else DIRECTORY / f"{name}.toml"
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        if isinstance(other := tables.pop("like", None), str):
            tables = _put_over(msgspec.to_builtins(load_runtime(other)), tables)
        return msgspec.convert(tables, Runtime)
    except OSError:
        names = ", ".join(runtime_names())
        raise OptionError("runtime", f"{name!r} is not one of {names}, nor the path of a .toml file") from None
    except (msgspec.ValidationError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionError("runtime", f"{path}: {error}") from None
