"""Schedules without search: rules from the device file, in the style of TVM's dlight. The first that matches wins."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from tvm import s_tir, tirx

from ...costmodels.device import Device
from .channels import channels
from .contraction import CONSTANTS, contraction
from .fallback import fallback
from .intensive.convolution_pair import convolution_pair
from .intensive.joins import joins
from .intensive.product_chain import product_chain
from .packing import Repack, Scheduled
from .pointwise import pointwise
from .rows import rows
from .transposition import transposition
from .window import window

Rule = Callable[[tirx.PrimFunc, Device, int], Scheduled | None]
"""Schedules a function for a device and a number of threads, or None if it is not of the rule's kind."""
INTENSIVE: tuple[Rule, ...] = (convolution_pair, product_chain)
"""Those for functions with several anchor ops."""
RULES: tuple[Rule, ...] = (joins, transposition, pointwise, *INTENSIVE, contraction, channels, window, rows)
"""In the order in which they are tried; `fallback` follows, and always matches."""

__all__ = [
    "CONSTANTS",
    "INTENSIVE",
    "RULES",
    "Repack",
    "Rule",
    "Scheduled",
    "constants",
    "fallback",
    "is_intensive",
    "schedule",
]


def constants(function: tirx.PrimFunc, parameters: tuple[int, ...]) -> tirx.PrimFunc:
    """The function with those parameters marked as constants, which a schedule may want repacked."""
    return function.with_attr(CONSTANTS, list(parameters))


def is_intensive(function: tirx.PrimFunc, device: Device, threads: int = 1) -> bool:
    """Whether one of the rules for several anchor ops matches."""
    for rule in INTENSIVE:
        with suppress(s_tir.ScheduleError, RuntimeError):
            if rule(function, device, threads) is not None:
                return True
    return False


def schedule(function: tirx.PrimFunc, device: Device, threads: int = 1) -> Scheduled:
    """The schedule of the first rule that matches; its module's only function is "main".

    The function comes from `te.create_prim_func` with static shapes. Its outputs must not share memory with its inputs.
    """
    for rule in RULES:
        try:
            found = rule(function, device, threads)
        except (s_tir.ScheduleError, RuntimeError):
            continue  # a primitive refused a block that looked right; the next rule asks less
        if found is not None:
            return found
    return fallback(function, device, threads)
