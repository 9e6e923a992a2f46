"""Which schedules to try for a kernel: those of the rules, then ever plainer ones.

The plainest, loop by loop::

    for i, j, k: C[i, j, k] = ...      =>  parallel(i * j * k): C[i, j, k] = ...
    for i, j, r: C[i, j] += ...        =>  parallel(i * j): C[i, j] = 0; for r: C[i, j] += ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tvm import s_tir, tirx

from ...costmodels.device import Device
from ..schedules import RULES, Scheduled
from ..schedules.fallback import fallback

Candidate = Callable[[], Scheduled | None]
"""Makes a schedule; None where its rule does not match. May raise what TVM raises."""


def candidates(prim_func: Any, device: Device, threads: int, *, with_rules: bool) -> Iterator[Candidate]:
    """Schedules to try, the best first. The last is so plain that every function has it, and LLVM compiles it."""
    if with_rules:
        yield from (partial(rule, prim_func, device, threads) for rule in (*RULES, fallback))
    yield partial(plain, prim_func)


def plain(prim_func: Any) -> Scheduled:
    """Each block by itself, its spatial loops shared among threads; no vectors, which LLVM lacks for some types."""
    schedule = s_tir.Schedule(prim_func)
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        _plain_block(schedule, block)
    return Scheduled(schedule, rule="plain")


def _plain_block(schedule: Any, block: Any) -> None:
    loops = schedule.get_loops(block)
    kinds = [variable.iter_type for variable in schedule.get(block).iter_vars]
    if len(kinds) != len(loops):
        return
    spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == tirx.IterVar.DataPar]
    reduction = [loop for loop, kind in zip(loops, kinds, strict=True) if kind != tirx.IterVar.DataPar]
    if not spatial:
        return
    schedule.reorder(*spatial, *reduction)
    schedule.parallel(schedule.fuse(*spatial))
    if reduction:
        schedule.decompose_reduction(block, reduction[0])
