"""The setting of Vela that gives the best program by Vela's own estimate.

Vela's defaults miss cascades that it finds with less room: it is asked again with other limits and without some
features of its scheduler. Where the arena lies in SRAM that the processor shares, SRAM is what is scarce: the least
is wanted at hardly more cycles. Elsewhere cycles are.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from ...costmodels.ethos_device import EthosDevice
from ..base.errors import LoweringError
from .vela import Program, Setting, compile_by_vela

_SLACK = 1.02
"""The factor of cycles that less SRAM may cost, where SRAM is shared."""
_FEATURES: tuple[tuple[str, ...], ...] = ((), ("WeightBuffering",), ("Grouping",), ("Grouping", "WeightBuffering"))
_SHARED_PARTS = (0.5, 0.25, 0.35, 0.7, 0.85, 0.18)
_DEDICATED_PARTS = (0.75, 0.67, 0.85, 0.58, 0.5, 0.92, 0.42, 0.33)
"""Parts of the SRAM in use, or of that which there is, that Vela is given; those that helped most networks first."""
_ALIGNMENT = 1024


@dataclass(frozen=True)
class Outcome:
    """The best program and its setting, the program of Vela's defaults, and how many programs were made."""

    setting: Setting
    program: Program
    plain: Program
    candidates: int


def search(content: bytes, device: EthosDevice, seconds: float) -> Outcome:
    """The best program that is found within `seconds`. Raises LoweringError if Vela refuses the graph."""
    end = time.monotonic() + seconds
    plain = compile_by_vela(content, device, Setting())
    best, chosen, count = plain, Setting(), 1
    for setting in _settings(device, plain):
        if time.monotonic() > end:
            break
        try:
            program = compile_by_vela(content, device, setting)
        except LoweringError:
            continue  # a limit that it cannot keep
        count += 1
        if _rank(program, plain, device) < _rank(best, plain, device):
            best, chosen = program, setting
    return Outcome(chosen, best, plain, count)


def _rank(program: Program, plain: Program, device: EthosDevice) -> tuple[float, ...]:
    estimate = program.estimate
    if device.arena is not None:
        return (estimate.cycles, estimate.sram)
    return (estimate.cycles > _SLACK * plain.estimate.cycles, estimate.sram, estimate.cycles)


def _settings(device: EthosDevice, plain: Program) -> Iterator[Setting]:
    if device.arena is None:
        yield Setting("Size")
    room = device.arena or plain.estimate.sram
    parts = (1.0, *(_DEDICATED_PARTS if device.arena else _SHARED_PARTS))
    for disabled, part in product(_FEATURES, parts):
        if (disabled, part) != ((), 1.0):
            yield Setting("Performance", max(1, int(room * part) // _ALIGNMENT) * _ALIGNMENT, disabled)
