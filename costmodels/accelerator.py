"""Seconds of one operator on the cores of one cluster of an accelerator.

A core is charged its part of the work on each of its units as the tiles of programs are (docs/dsa.md): matrix products
by the cycles of a systolic array, all other work by elements per cycle. Units work as a pipeline, so the
slowest counts.
"""

from __future__ import annotations

from functools import lru_cache

from ..ir.operation import Operation
from ..ir.operators import RECURRENT
from .dsa_device import ComputeUnit, DsaDevice, UnitKind
from .dsa_work import product_of, vector_operations
from .systolic import Product, best_dataflow


def unit_seconds(operation: Operation, cluster: DsaDevice) -> float:
    """Time of the busiest units for one run of an operator that all cores share evenly; 0 for one that only moves
    elements."""
    product, elements = product_of(operation), vector_operations(operation)
    cycles = _vector_cycles(elements, cluster)
    if product is not None:
        waits = operation.op in RECURRENT  # each step for the one before it
        cycles = max(cycles, _shared_cycles(product, cluster, 1 if waits else product.count))
    return cycles / cluster.clock


@lru_cache(maxsize=1 << 14)
def _shared_cycles(product: Product, cluster: DsaDevice, apart: int) -> float:
    """Cycles of a product whose rows, columns and `apart` copies the cores share, by the unit that takes the fewest."""
    others = [unit for unit in cluster.units if unit.kind != "matrix"]
    rate = max((unit.operations * cluster.count(unit) for unit in others), default=0)
    cycles = [product.macs / rate] if rate else []
    for unit in cluster.units:
        if unit.kind == "matrix":
            cycles.append(min(best_dataflow(unit, part)[0] for part in _parts(product, cluster.count(unit), apart)))
    return min(cycles)


def _parts(product: Product, count: int, apart: int) -> list[Product]:
    """The largest part of a product that is divided into `count` parts, in each way that there is."""
    copies = min(count, apart)
    ways = [(rows, count // copies // rows) for rows in range(1, count // copies + 1)]
    return [
        Product(-(-product.m // rows), -(-product.n // columns), product.k, -(-product.count // copies))
        for rows, columns in ways
    ]


def _vector_cycles(elements: int, cluster: DsaDevice) -> float:
    order: tuple[UnitKind, ...] = ("vector", "vector_mac", "matrix")
    unit: ComputeUnit = next(unit for kind in order for unit in cluster.units if unit.kind == kind)
    return elements / (unit.operations * cluster.count(unit))
