"""A schedule for every kernel, and a plain one for those that no rule knows.

The plain schedule, loop by loop::

    for i, j, k: C[i, j, k] = ...      =>  parallel(i * j) vectorised(k): C[i, j, k] = ...
    for i, j, r: C[i, j] += ...        =>  parallel(i * j): C[i, j] = 0; for r: C[i, j] += ...
"""

from __future__ import annotations

from typing import Any

from tvm import s_tir, tirx

from ..costmodels.device import Device


def plain(prim_func: Any, device: Device) -> Any:
    """Each block by itself: spatial loops fused and shared among threads, the innermost in vectors."""
    schedule = s_tir.Schedule(prim_func)
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        _plain_block(schedule, block, device)
    return schedule


def _plain_block(schedule: Any, block: Any, device: Device) -> None:
    loops = schedule.get_loops(block)
    kinds = [variable.iter_type for variable in schedule.get(block).iter_vars]
    if len(kinds) != len(loops) or not loops:
        return
    spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == tirx.IterVar.DataPar]
    reduction = [loop for loop, kind in zip(loops, kinds, strict=True) if kind != tirx.IterVar.DataPar]
    if not spatial:
        return
    schedule.reorder(*spatial, *reduction)
    fused = schedule.fuse(*spatial)
    if reduction:
        schedule.parallel(fused)
        schedule.decompose_reduction(block, reduction[0])
        return
    outer, inner = schedule.split(fused, [None, device.lanes])
    schedule.parallel(outer)
    schedule.vectorize(inner)
