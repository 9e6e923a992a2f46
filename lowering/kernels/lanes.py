"""Factors of register tiles on Arm: four numbers of a row are loaded at once, and each is taken from its lane.

    C0 += broadcast(A[k]) * B[k..]; ...; C0 += broadcast(A[k + 3]) * B[k + 3..]
 => V = A[k..k + 3]; C0 += broadcast(V[0]) * B[k..]; ...; C0 += broadcast(V[3]) * B[k + 3..]

Arm multiplies by a lane of a register; x86 loads and broadcasts in one instruction. LLVM loads every number by
itself: 56 times in place of 14 in eight steps of a tile of 7 x 3 vectors.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import ceil
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from ..schedules.base.blocks import is_selection, walk

LANES = 4
"""Numbers of a vector."""
REGISTERS = 32
"""Vector registers, which hold accumulators, vectors of factors, and the vectors that these multiply."""


def load_lanes(sequence: Any) -> Any:
    """The statements with consecutive numbers that they broadcast as lanes of vectors, if the registers hold these.

    All numbers of a vector were loaded by statements of the sequence, so none is out of bounds.
    """
    stores = list(filter(_is_unconditional_store, sequence.seq))
    lanes = _number_lanes(_list_factors(stores))
    accumulators = len({_key(store.buffer, store.indices) for store in stores})
    rows = ceil(len(lanes) * accumulators / len(stores)) if stores else 0  # each step stores every accumulator
    if not rows or accumulators + rows + ceil(accumulators / rows) > REGISTERS:
        return sequence

    def take_lane(broadcast: Any) -> Any:
        factor = _Factor.of(broadcast)
        if factor is None or factor not in lanes:
            return broadcast
        load, lane = broadcast.value, lanes[factor]
        (index,) = load.indices
        ramp = tirx.Ramp(index - lane, tirx.const(1, str(index.ty.dtype)), LANES)
        vector = tirx.BufferLoad(load.source, [ramp])
        return tirx.Shuffle([vector], [tirx.const(lane, "int32")] * int(broadcast.lanes))  # of an element LLVM loads it

    def change(each: Any) -> Any:
        return tvm_ffi.structural_map(each, (tirx.Broadcast, take_lane)) if _is_unconditional_store(each) else each

    return tirx.SeqStmt(list(map(change, sequence.seq)))


def _is_unconditional_store(statement: Any) -> bool:
    return isinstance(statement, tirx.BufferStore) and not any(map(is_selection, walk(statement.value)))


@dataclass(frozen=True)
class _Factor:
    """A number in memory: what its index is besides a constant, and the constant."""

    row: tvm_ffi.StructuralKey
    constant: int

    @staticmethod
    def of(broadcast: Any) -> _Factor | None:
        """The factor of the number that is broadcast, if that is in memory and has 32 bits."""
        load = broadcast.value
        if not isinstance(load, ir.TensorLoad) or len(load.indices) != 1 or str(load.ty.dtype) != "float32":
            return None
        (index,) = load.indices
        is_sum = isinstance(index, tirx.Add) and isinstance(index.b, tirx.IntImm)
        base, constant = (index.a, int(index.b)) if is_sum else (index, 0)
        return _Factor(_key(load.source, [base]), constant)


def _key(source: Any, indices: Iterable[Any]) -> Any:
    """Equal for equal elements."""
    key: Any = tvm_ffi.StructuralKey  # whose second field it fills in itself, unlike its stub says
    return key(tirx.BufferLoad(source, list(indices)))


def _list_factors(stores: Iterable[Any]) -> Iterator[_Factor]:
    for store in stores:
        for part in walk(store.value):
            factor = _Factor.of(part) if isinstance(part, tirx.Broadcast) else None
            if factor is not None:
                yield factor


def _number_lanes(factors: Iterable[_Factor]) -> dict[_Factor, int]:
    """The lanes of those that are consecutive, by fours; the others have none."""
    rows: dict[tvm_ffi.StructuralKey, set[int]] = defaultdict(set)
    for factor in factors:
        rows[factor.row].add(factor.constant)
    lanes: dict[_Factor, int] = {}
    for row, constants in rows.items():
        for first in sorted(constants):
            four = [_Factor(row, first + lane) for lane in range(LANES)]
            if all(factor.constant in constants and factor not in lanes for factor in four):
                lanes |= {factor: lane for lane, factor in enumerate(four)}
    return lanes
