"""Products of bytes, four at a time: one instruction in each lane of 32 bits.

    C += broadcast(A[k]) * W[4 n]; ...; C += broadcast(A[k + 3]) * W[4 n + 3]    (n in the lanes)
 => C = vpdpbusd(C, broadcast(A[k..k + 3]), W[..])

On x86-64 A has bytes without a sign, W bytes with one. Without that instruction (VNNI), bytes become 16 bits, of which
vpmaddwd adds up two products in each lane: those of the even bytes, then those of the odd ones. No sum saturates in
either. On Arm both have a sign (sdot).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, tirx

from ...costmodels.device import WORD
from ...support.processor import ARM, X86

Expression = Any
Combine = Callable[[Expression, Expression, Expression], Expression]
"""The sum of accumulators and of the products of broadcast words and of words in lanes, as vectors."""


@dataclass(frozen=True)
class DotProduct:
    """How a processor multiplies words: bytes of the type `data` that are broadcast, and bytes with a sign in lanes."""

    name: str
    data: str
    combine: Combine


_EVEN = 0x00FF00FF
"""The even bytes of a word."""
_PAIRS = {16: "llvm.x86.avx512.pmaddw.d.512", 8: "llvm.x86.avx2.pmadd.wd", 4: "llvm.x86.sse2.pmadd.wd"}
"""LLVM's functions for vpmaddwd, by the lanes of their results."""


def dot_product_of(target: tvm.target.Target) -> DotProduct | None:
    """How a target multiplies words of bytes; None if schedules do not ask it to."""
    return _find_dot_product(str(target.attrs.get("mtriple", "")), str(target))


@cache
def _find_dot_product(triple: str, target: str) -> DotProduct | None:
    if not triple.startswith((X86, ARM)):
        return None
    features = set(map(str, tvm.target.codegen.llvm_get_cpu_features(tvm.target.Target(target))))
    if triple.startswith(ARM):
        return SIGNED_WORDS if "dotprod" in features else None
    return WORDS if {"avx512vnni", "avx512vl"} <= features or "avxvnni" in features else PAIRS


def combine_products(sequence: Any, dot_product: DotProduct) -> Any:
    """The statements with dot products in the place of four stores each."""
    combined, pending = [], list(sequence.seq)
    while pending:
        steps = [_Step.of(statement, dot_product.data) for statement in pending[:WORD]]
        first = steps[0]
        if first is not None and len(steps) == WORD and all(map(first.is_followed_by, steps, range(WORD))):
            combined.append(first.combine(dot_product))
            pending = pending[WORD:]
        else:
            combined.append(pending.pop(0))
    return tirx.SeqStmt(combined) if len(combined) > 1 else combined[0]


@dataclass(frozen=True)
class _Step:
    """A store that adds a product of a byte, which is broadcast, and of every fourth byte of a vector."""

    store: Any
    data: Any
    weights: Any

    @staticmethod
    def of(statement: Any, dtype: str) -> _Step | None:
        """The step that a statement is, whose data have this type; None if it is another."""
        value = statement.value if isinstance(statement, tirx.BufferStore) else None
        if not isinstance(value, tirx.Add) or not isinstance(value.b, tirx.Mul):
            return None
        accumulator = tirx.BufferLoad(statement.buffer, list(statement.indices))
        if not tvm_ffi.structural_equal(value.a, accumulator):
            return None
        data, weights = (value.b.a, value.b.b) if isinstance(value.b.a, tirx.Broadcast) else (value.b.b, value.b.a)
        if not isinstance(data, tirx.Broadcast) or int(data.lanes) not in _PAIRS:
            return None
        loads = _loaded(data.value, dtype), _loaded(weights, "int8")
        if None in loads or not isinstance(loads[1].indices[0], tirx.Ramp) or int(loads[1].indices[0].stride) != WORD:
            return None
        return _Step(statement, *loads)

    def is_followed_by(self, other: _Step | None, steps: int) -> bool:
        """Whether another step takes the bytes that are `steps` further, for the same sum."""
        if other is None or not _are_equal(self.store, other.store):
            return False
        ends = ((s.data.indices[0], s.weights.indices[0].base) for s in (self, other))
        return self._sources() == other._sources() and all(
            _distance(first, second) == steps for first, second in zip(*ends, strict=True)
        )

    def _sources(self) -> tuple[Any, Any]:
        return self.data.source, self.weights.source

    def combine(self, dot_product: DotProduct) -> Any:
        """The statement for this step and the three that follow."""
        ramp = self.weights.indices[0]
        lanes, one = int(ramp.lanes), tirx.const(1, str(ramp.base.ty.dtype))
        word = tirx.BufferLoad(self.data.source, [tirx.Ramp(self.data.indices[0], one, WORD)])
        data = tirx.Broadcast(_reinterpret("int32", word), lanes)
        weights = tirx.BufferLoad(self.weights.source, [tirx.Ramp(ramp.base, one, WORD * lanes)])
        return tirx.BufferStore(
            self.store.buffer, dot_product.combine(self.store.value.a, data, weights), list(self.store.indices)
        )


def _loaded(value: Any, dtype: str) -> Any:
    """The load of a byte, or of a vector of bytes, of a type that `value` widens to 32 bits; None if it is another."""
    load = value.value if isinstance(value, tirx.Cast) and str(value.ty.dtype).startswith("int32") else None
    is_meant = isinstance(load, ir.TensorLoad) and len(load.indices) == 1 and str(load.source.dtype) == dtype
    return load if is_meant else None


def _are_equal(first: Any, second: Any) -> bool:
    """Whether two stores write the same elements."""
    return first.buffer.same_as(second.buffer) and all(
        map(tvm_ffi.structural_equal, first.indices, second.indices)
    )


def _distance(first: Expression, second: Expression) -> int | None:
    """The difference of indices that are equal but for a constant at their end; None of others."""
    (base, start), (other, end) = map(_split, (first, second))
    if base is None or other is None:
        return end - start if base is other else None
    return end - start if tvm_ffi.structural_equal(base, other) else None


def _split(index: Expression) -> tuple[Expression | None, int]:
    if isinstance(index, tirx.IntImm):
        return None, int(index)
    is_sum = isinstance(index, tirx.Add) and isinstance(index.b, tirx.IntImm)
    return (index.a, int(index.b)) if is_sum else (index, 0)


def _by_words(dtype: str, instruction: Callable[[int], str]) -> Combine:
    """One instruction, LLVM's function for a number of lanes, on words of bytes of a type."""

    def combine(accumulators: Expression, data: Expression, weights: Expression) -> Expression:
        lanes = int(data.lanes)
        operands = accumulators, _reinterpret(f"{dtype}x{WORD * lanes}", data), weights
        return tirx.call_llvm_pure_intrin(f"int32x{lanes}", instruction(lanes), *operands)

    return combine


def _by_pairs(accumulators: Expression, data: Expression, weights: Expression) -> Expression:
    lanes = int(data.lanes)
    halves = f"int16x{2 * lanes}"
    eight = tirx.Broadcast(tirx.const(8, "int16"), 2 * lanes)
    even = _reinterpret(halves, data & tirx.Broadcast(tirx.const(_EVEN, "int32"), lanes))
    unsigned = _reinterpret(f"uint16x{2 * lanes}", data)
    odd = _reinterpret(halves, unsigned >> tirx.Broadcast(tirx.const(8, "uint16"), 2 * lanes))
    both = _reinterpret(halves, weights)
    total = accumulators
    for part, factors in ((even, (both << eight) >> eight), (odd, both >> eight)):
        total = total + tirx.call_llvm_pure_intrin(f"int32x{lanes}", _PAIRS[lanes], part, factors)
    return total


def _reinterpret(dtype: str, value: Expression) -> Expression:
    return tirx.call_intrin(dtype, "tirx.reinterpret", value)


WORDS = DotProduct("words", "uint8", _by_words("uint8", lambda lanes: f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"))
"""Of vpdpbusd, the forms of 256 bits and less need no AVX-512."""
PAIRS = DotProduct("pairs", "uint8", _by_pairs)
SIGNED_WORDS = DotProduct("signed_words", "int8", _by_words("int8", lambda lanes: "llvm.aarch64.neon.sdot"))
DOT_PRODUCTS: Sequence[DotProduct] = (WORDS, PAIRS, SIGNED_WORDS)
