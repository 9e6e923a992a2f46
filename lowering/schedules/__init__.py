"""Schedules without search: rules from the device file, in the style of TVM's dlight. The first that matches wins."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import partial

from tvm import s_tir, tirx

from ...costmodels.device import Device
from .channels import channels
from .contraction import contraction
from .decisions import Trace
from .draft import CONSTANTS, Draft, Scheduled
from .fallback import fallback, plain
from .intensive.convolution_pair import convolution_pair
from .intensive.product_chain import product_chain
from .joins import joins
from .packing import Repack
from .pointwise import pointwise
from .rows import rows
from .transposition import transposition
from .window import window

Rule = Callable[[Draft], Scheduled | None]
"""Schedules a draft, or returns None if its function is not of the rule's kind: the draft may be changed all the same.

It may raise what TVM raises, where a primitive refuses a block that looked right.
"""
INTENSIVE: tuple[Rule, ...] = (convolution_pair, product_chain)
"""Those for functions with several anchor ops."""
RULES: tuple[Rule, ...] = (joins, transposition, pointwise, *INTENSIVE, contraction, channels, window, rows)
"""In the order in which they are tried; `fallback` follows, and always matches."""

__all__ = [
    "CONSTANTS", "INTENSIVE", "RULES", "Draft", "Repack", "Rule", "Scheduled", "Trace", "fallback", "is_intensive",
    "list_candidates", "mark_constants", "schedule",
]  # fmt: skip


def mark_constants(function: tirx.PrimFunc, parameters: tuple[int, ...]) -> tirx.PrimFunc:
    """The function with those parameters marked as constants, which a schedule may want repacked."""
    return function.with_attr(CONSTANTS, list(parameters))


def is_intensive(function: tirx.PrimFunc, device: Device, threads: int = 1) -> bool:
    """Whether one of the rules for several anchor ops matches."""
    for rule in INTENSIVE:
        with suppress(s_tir.ScheduleError, RuntimeError):
            if rule(Draft.of(function, device, threads)) is not None:
                return True
    return False


def schedule(function: tirx.PrimFunc, device: Device, threads: int = 1, trace: Trace | None = None) -> Scheduled:
    """The schedule of the first rule that matches; its module's only function is "main".

    The function comes from `te.create_prim_func` with static shapes. Its outputs must not share memory with its inputs.
    """
    trace = trace or Trace()
    for rule in RULES:
        try:
            scheduled = rule(Draft.of(function, device, threads, trace))
        except (s_tir.ScheduleError, RuntimeError):
            continue  # a primitive refused a block that looked right; the next rule asks less
        if scheduled is not None:
            return scheduled
    return fallback(Draft.of(function, device, threads, trace))


def list_candidates(
    function: tirx.PrimFunc, device: Device, threads: int, *, with_rules: bool, without: Collection[str] = ()
) -> Iterator[Callable[[Trace], Scheduled | None]]:
    """Schedules to try, the best first, each made for a trace; None where a rule does not match.

    Those by the rules `without` are left out. The last is so plain that every function has it, and LLVM compiles it.
    """

    def apply(rule: Rule, trace: Trace) -> Scheduled | None:
        return rule(Draft.of(function, device, threads, trace))

    for rule in (*RULES, fallback) if with_rules else ():
        if rule.__name__ in without:
            continue
        yield partial(apply, rule)
    yield partial(apply, plain)
