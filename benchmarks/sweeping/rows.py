"""A row for each network, kept in a file of its own, so that a run which was ended goes on and a stage is done anew."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

from eqfuse.support.errors import BUDGET_HIT

Stage = Literal["optimize", "peers", "compile", "speed"]
STAGES: tuple[Stage, ...] = ("optimize", "peers", "compile", "speed")
"""In order: results of the first and the third are what the second and the last are compared with."""


@dataclass(frozen=True)
class Ratio:
    """A median over interleaved pairs, and the limits between which it lies with 99 % confidence."""

    median: float
    lower: float
    upper: float


@dataclass(frozen=True)
class Optimized:
    """What `eqfuse optimize` made of a network.

    `layers` and `flops` are those before and after; `peak` is in MiB. `latency` is the result's time in ONNX Runtime
    over the original's, and `predicted` what the prices of the runtime say of it.
    """

    code: int
    message: str
    wall: float
    cpu: float
    peak: float
    layers: tuple[int, int] = (0, 0)
    flops: tuple[float, float] = (0.0, 0.0)
    latency: Ratio | None = None
    predicted: float | None = None


@dataclass(frozen=True)
class Peer:
    """What another optimiser made of it. `problem` says why its result is not compared, if so."""

    cpu: float
    problem: str = ""
    layers: int = 0
    latency: Ratio | None = None


@dataclass(frozen=True)
class Compiled:
    """How `eqfuse compile --threads 1` ended.

    `seconds` are those of each phase, by its name, `left` the operators that ONNX Runtime runs and the reasons, `loops`
    the plain loops, `replaced` what was said of schedules that gave way to others.
    """

    code: int
    message: str
    wall: float
    cpu: float
    peak: float
    operators: int = 0
    kernels: int = 0
    left: tuple[str, ...] = ()
    loops: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Timed:
    """CPU seconds of a call on one thread, by tool. `ratio` is the best peer's time over that of eqfuse.

    `roofline` are the seconds that the kernels need at least (None for free sizes), `others` the cores that other
    processes kept busy meanwhile.
    """

    seconds: Mapping[str, float]
    best_peer: str = ""
    ratio: Ratio | None = None
    roofline: float | None = None
    others: float = 0.0
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """A network in one form. `digests` tell by which sources each stage was done; a stage that is missing is None."""

    network: str
    family: str
    optimized: Optimized | None = None
    peers: Mapping[str, Peer] | None = None
    compiled: Compiled | None = None
    timed: Timed | None = None
    digests: Mapping[str, str] = field(default_factory=dict)
    date: str = ""

    def with_stage(self, stage: Stage, digest: str, date: str, **results: Any) -> Self:
        """With the results of a stage."""
        return replace(self, **results, digests={**self.digests, stage: digest}, date=date)

    @property
    def is_refused(self) -> bool:
        """Whether a command ended otherwise than with a valid result."""
        return any(each is not None and each.code not in (0, BUDGET_HIT) for each in (self.optimized, self.compiled))

    @property
    def is_slowed(self) -> bool:
        """Whether the optimised model is slower than the original in ONNX Runtime, beyond chance."""
        latency = self.optimized.latency if self.optimized else None
        return latency is not None and latency.lower > SLOWER

    @property
    def is_behind(self) -> bool:
        """Whether a peer is faster than the compiled model, beyond chance."""
        return self.timed is not None and self.timed.ratio is not None and self.timed.ratio.upper < 1


SLOWER = 1.01
"""A result that takes more of the original's time than this is slower."""


def read_row(path: Path) -> Row | None:
    """The row of a file; None if there is none."""
    if not path.exists():
        return None
    content = json.loads(path.read_text(encoding="utf-8"))
    if content["optimized"]:
        content["optimized"] = _with_ratio(Optimized, content["optimized"], "latency")
    if content["peers"] is not None:
        content["peers"] = {name: _with_ratio(Peer, each, "latency") for name, each in content["peers"].items()}
    if content["compiled"]:
        content["compiled"] = Compiled(**content["compiled"])
    if content["timed"]:
        content["timed"] = _with_ratio(Timed, content["timed"], "ratio")
    return Row(**content)


def _with_ratio(kind: Any, content: Mapping[str, Any], name: str) -> Any:
    ratio = content[name]
    return kind(**{**content, name: Ratio(**ratio) if ratio else None})


def write_row(row: Row, path: Path) -> None:
    """Write it so that a reader sees the old row or this one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(asdict(row), indent=1) + "\n", encoding="utf-8")
    part.replace(path)
