"""Products of integers, several at a time: one instruction in each lane of 32 bits.

    C += broadcast(A[k]) * W[4 n]; ...; C += broadcast(A[k + 3]) * W[4 n + 3]    (n in the lanes)
 => C = vpdpbusd(C, broadcast(A[k..k + 3]), W[..])

On x86-64 with VNNI A has bytes without a sign, W bytes with one. On any x86-64 A may have numbers of 16 bits, and W
such numbers, or bytes that are widened as they are loaded: vpmaddwd adds up two products in each lane. No sum saturates
in either. vpmaddubsw adds up two products of bytes in 16 bits, for weights with which no such sum saturates. On Arm
both have bytes with a sign (sdot).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, tirx

from ...costmodels.device import WIDE
from ...ir.types import BYTES
from ...support.processor import ARM, X86

Expression = Any
Combine = Callable[[Expression, Expression, Expression], Expression]
"""The sum of accumulators and of the products of broadcast words, of 32 bits, and of neighbours in lanes."""


@dataclass(frozen=True)
class WordProduct:
    """How a processor multiplies a word of elements of the type `data`, which is broadcast, by elements in lanes."""

    data: str
    weights: frozenset[str]
    combine: Combine

    @property
    def length(self) -> int:
        """The elements of a word."""
        return 32 // tvm_ffi.dtype(self.data).bits


_PAIRS = {16: "llvm.x86.avx512.pmaddw.d.512", 8: "llvm.x86.avx2.pmadd.wd", 4: "llvm.x86.sse2.pmadd.wd"}
"""LLVM's functions for vpmaddwd, by the lanes of their results."""
_BYTE_PAIRS = {
    16: "llvm.x86.avx512.pmaddubs.w.512", 8: "llvm.x86.avx2.pmadd.ub.sw", 4: "llvm.x86.ssse3.pmadd.ub.sw.128",
}  # fmt: skip
"""Those for vpmaddubsw, by the lanes of 32 bits that are made of their results."""


def dot_products_of(target: tvm.target.Target) -> str:
    """The name among WORD_PRODUCTS of those that a target has; empty if schedules do not ask it for any."""
    return _find_dot_products(str(target.attrs.get("mtriple", "")), str(target))


@cache
def _find_dot_products(triple: str, target: str) -> str:
    if not triple.startswith((X86, ARM)):
        return ""
    features = set(map(str, tvm.target.codegen.llvm_get_cpu_features(tvm.target.Target(target))))
    if triple.startswith(ARM):
        return "dotprod" if "dotprod" in features else ""
    return "vnni" if {"avx512vnni", "avx512vl"} <= features or "avxvnni" in features else "pairs"


def combine_products(sequence: Any, dot_products: Sequence[WordProduct]) -> Any:
    """The statements with dot products in the place of as many stores each as a word has elements."""
    combined, pending = [], list(sequence.seq)
    while pending:
        found = next(filter(None, (_combine_first(pending, each) for each in dot_products)), None)
        combined.append(pending[0] if found is None else found.statement)
        pending = pending[1 if found is None else found.length :]
    return tirx.SeqStmt(combined) if len(combined) > 1 else combined[0]


@dataclass(frozen=True)
class _Combined:
    """A statement in the place of the first `length` of others."""

    statement: Any
    length: int


def _combine_first(statements: Sequence[Any], dot_product: WordProduct) -> _Combined | None:
    """The dot product that the first of the statements are; None if they are others."""
    length = dot_product.length
    first = _Step.of(statements[0], dot_product)
    if first is None or len(statements) < length:
        return None
    others = (_Step.of(statement, dot_product) for statement in statements[1:length])
    if not all(map(first.is_followed_by, others, range(1, length))):
        return None
    return _Combined(first.combine(dot_product), length)


@dataclass(frozen=True)
class _Step:
    """A store that adds a product of an element, which is broadcast, and of every second or fourth byte of a vector."""

    store: Any
    data: Any
    weights: Any

    @staticmethod
    def of(statement: Any, dot_product: WordProduct) -> _Step | None:
        """The step of a dot product that a statement is; None if it is another."""
        value = statement.value if isinstance(statement, tirx.BufferStore) else None
        if not isinstance(value, tirx.Add) or not isinstance(value.b, tirx.Mul):
            return None
        accumulator = tirx.BufferLoad(statement.buffer, list(statement.indices))
        if not tvm_ffi.structural_equal(value.a, accumulator):
            return None
        data, weights = (value.b.a, value.b.b) if isinstance(value.b.a, tirx.Broadcast) else (value.b.b, value.b.a)
        if not isinstance(data, tirx.Broadcast) or int(data.lanes) not in _PAIRS:
            return None
        loads = _loaded(data.value, {dot_product.data}), _loaded(weights, dot_product.weights)
        if None in loads or not isinstance(loads[1].indices[0], tirx.Ramp):
            return None
        return _Step(statement, *loads) if int(loads[1].indices[0].stride) == dot_product.length else None

    def is_followed_by(self, other: _Step | None, steps: int) -> bool:
        """Whether another step takes the elements that are `steps` further, for the same sum."""
        if other is None or not _are_equal(self.store, other.store):
            return False
        ends = ((s.data.indices[0], s.weights.indices[0].base) for s in (self, other))
        return self._sources() == other._sources() and all(
            distance(first, second) == steps for first, second in zip(*ends, strict=True)
        )

    def _sources(self) -> tuple[Any, Any]:
        return self.data.source, self.weights.source

    def combine(self, dot_product: WordProduct) -> Any:
        """The statement for this step and those that follow."""
        ramp, length = self.weights.indices[0], dot_product.length
        lanes, one = int(ramp.lanes), tirx.const(1, str(ramp.base.ty.dtype))
        word = tirx.BufferLoad(self.data.source, [tirx.Ramp(self.data.indices[0], one, length)])
        data = tirx.Broadcast(_reinterpret("int32", word), lanes)
        weights = tirx.BufferLoad(self.weights.source, [tirx.Ramp(ramp.base, one, length * lanes)])
        return tirx.BufferStore(
            self.store.buffer, dot_product.combine(self.store.value.a, data, weights), list(self.store.indices)
        )


def _loaded(value: Any, dtypes: Collection[str]) -> Any:
    """The load of an element, or of a vector, of one of the types, that `value` widens to 32 bits; None if it is
    another."""
    load = value.value if isinstance(value, tirx.Cast) and str(value.ty.dtype).startswith("int32") else None
    is_meant = isinstance(load, ir.TensorLoad) and len(load.indices) == 1 and str(load.source.dtype) in dtypes
    return load if is_meant else None


def _are_equal(first: Any, second: Any) -> bool:
    """Whether two stores write the same elements."""
    return first.buffer.same_as(second.buffer) and all(
        map(tvm_ffi.structural_equal, first.indices, second.indices)
    )


def distance(first: Expression, second: Expression) -> int | None:
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
    """One instruction, LLVM's function for a number of lanes, on words of four bytes of a type."""

    def combine(accumulators: Expression, data: Expression, weights: Expression) -> Expression:
        lanes = int(data.lanes)
        operands = accumulators, _reinterpret(f"{dtype}x{4 * lanes}", data), weights
        return tirx.call_llvm_pure_intrin(f"int32x{lanes}", instruction(lanes), *operands)

    return combine


def _by_pairs(accumulators: Expression, data: Expression, weights: Expression) -> Expression:
    lanes = int(data.lanes)
    wide = f"{WIDE}x{2 * lanes}"
    operands = _reinterpret(wide, data), weights.astype(wide)
    return accumulators + tirx.call_llvm_pure_intrin(f"int32x{lanes}", _PAIRS[lanes], *operands)


def _by_byte_pairs(accumulators: Expression, data: Expression, weights: Expression) -> Expression:
    lanes = int(data.lanes)
    wide, ones = f"{WIDE}x{2 * lanes}", tirx.Broadcast(tirx.const(1, WIDE), 2 * lanes)
    bytes_ = _reinterpret(f"uint8x{4 * lanes}", data)
    sums = tirx.call_llvm_pure_intrin(wide, _BYTE_PAIRS[lanes], bytes_, weights)
    return accumulators + tirx.call_llvm_pure_intrin(f"int32x{lanes}", _PAIRS[lanes], sums, ones)


def _reinterpret(dtype: str, value: Expression) -> Expression:
    return tirx.call_intrin(dtype, "tirx.reinterpret", value)


_SIGNED = frozenset({"int8"})
_WORDS = WordProduct(
    "uint8", _SIGNED, _by_words("uint8", lambda lanes: f"llvm.x86.avx512.vpdpbusd.{32 * lanes}")
)
"""Of vpdpbusd, the forms of 256 bits and less need no AVX-512."""
_WIDENED = WordProduct(WIDE, frozenset({*BYTES, WIDE}), _by_pairs)
_EXACT_PAIRS = WordProduct("uint8", _SIGNED, _by_byte_pairs)
_SIGNED_WORDS = WordProduct("int8", _SIGNED, _by_words("int8", lambda lanes: "llvm.aarch64.neon.sdot"))
WORD_PRODUCTS: Mapping[str, Sequence[WordProduct]] = {
    "vnni": (_WORDS, _WIDENED), "pairs": (_WIDENED,), "exact_pairs": (_EXACT_PAIRS, _WIDENED),
    "dotprod": (_SIGNED_WORDS,),
}  # fmt: skip
"""Those of processors, by a name for each kind of them; exact_pairs are pairs in functions marked EXACT_PAIRS."""
OPTIONS: Mapping[str, Sequence[str]] = {"pairs": ("-x86-machine-combiner:bool=0",)}
"""Options of LLVM for them. Its combiner adds up the products of several steps before the accumulator, so that they
take registers: tiles spill."""
