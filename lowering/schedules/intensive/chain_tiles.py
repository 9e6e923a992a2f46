"""How many rows of a chain of products to compute at once, and by which register tiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tvm import s_tir

from ....costmodels.device import Device
from ..contraction import cheapest, plans
from ..decisions import decide, scope
from ..stages import FUNCTION
from ..tiling.register_tile import Plan
from ..tiling.tiles import FLOAT_BYTES
from .chain_stages import Chain, Link

SINGLE_ROWS, ROW_STEP = 64, 8
"""Numbers of rows that are tried: all up to the first, then only every so many."""
TILE_CYCLES = 300
"""Cycles that a tile takes besides its arithmetic: memory for what it keeps, a call, loops that start."""


@dataclass(frozen=True)
class ChainPlan:
    """Rows of a tile, the register tiles of each product in it, and estimates: `seconds` of the chain with all
    threads, `cycles` with one."""

    rows: int
    products: tuple[Plan, ...]
    seconds: float
    cycles: float

    @property
    def label(self) -> str:
        """``8 rows``."""
        return f"{self.rows} rows"

    @property
    def features(self) -> Mapping[str, float]:
        """For a learned model."""
        return {"rows": self.rows}


def choose_tile(schedule: s_tir.Schedule, chain: Chain, device: Device, threads: int) -> ChainPlan | None:
    """The plan of the least time among those that keep a tile in half of the second cache; None where none does."""
    few = range(1, min(chain.rows, SINGLE_ROWS) + 1)
    sizes = sorted({*few, *range(SINGLE_ROWS, chain.rows, ROW_STEP), chain.rows})
    plans = [p for rows in sizes if (p := _plan(schedule, chain, rows, device, threads)) is not None]
    if not plans:
        return None
    plan = decide("rows", plans, lambda p: p.seconds)
    return replace(plan, products=tuple(_product_tiles(schedule, chain, plan.rows, device)))


def _product_tiles(schedule: s_tir.Schedule, chain: Chain, rows: int, device: Device) -> Iterator[Plan]:
    """The register tile of each product: the best, if nothing else is decided."""
    for number, link in enumerate(chain.products):
        with scope(f"product {number + 1}"):
            best = cheapest(_product_plans(schedule, chain, link, rows, device))
        assert best is not None  # the plan for these rows found one
        yield best


def _plan(schedule: s_tir.Schedule, chain: Chain, rows: int, device: Device, threads: int) -> ChainPlan | None:
    kept = rows * chain.kept_elements * FLOAT_BYTES
    if kept > device.second_cache // 2:
        return None
    found = []
    for link in chain.products:
        best = min(_product_plans(schedule, chain, link, rows, device), key=lambda p: p.cycles, default=None)
        if best is None:
            return None
        found.append(best)
    seconds = _tile_seconds(sum(plan.cycles for plan in found), kept, chain.shared_elements * FLOAT_BYTES, device)
    tiles = chain.copies * -(-chain.rows // rows)
    return ChainPlan(rows, tuple(found), -(-tiles // threads) * seconds, tiles * seconds * device.clock)


def _tile_seconds(cycles: float, kept: int, shared: int, device: Device) -> float:
    """Seconds for a tile that keeps some bytes, and reads others that every tile reads.

    What the second cache holds is there when it is needed; what is further out is waited for.
    """
    computing, reading = (cycles + TILE_CYCLES) / device.clock, shared / device.bandwidth(shared)
    seconds = max(computing, reading) if shared <= device.second_cache else computing + reading
    return seconds + (2 * kept / device.bandwidth(kept) if kept > device.caches[0].size // 2 else 0.0)


def _product_plans(schedule: s_tir.Schedule, chain: Chain, link: Link, rows: int, device: Device) -> Iterator[Plan]:
    """The register tiles of a product on a tile of rows: they divide the tile, unless it is all rows."""
    extents = tuple(1 if i in link.axes else extent for i, extent in enumerate(link.stage.extents))
    anchor = replace(link.stage, extents=tuple(rows if i == link.row else e for i, e in enumerate(extents)))
    for plan in plans(schedule.mod[FUNCTION], anchor, chain.epilogue(link).stage, device):
        divides = rows % plan.tile.rows == 0 or rows == chain.rows
        if plan.row == link.row and plan.column not in link.axes and divides:
            yield plan
