"""Which kernel computes something else than its operators do: each by itself beside ONNX Runtime, on random inputs.

Kernels run in a process of their own, and one that crashes or hangs is found as one that is wrong is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ...engine.onnx.runtime_values import open_session, run_on_arrays
from ...engine.verification.runs.compare import Tolerance, compare
from ...ir.graph import OperatorGraph
from ...ir.sizes import dimension_size
from ...ir.types import Dimension, TensorType
from ..base.errors import CrashError, LoweringError
from ..base.interface import known_type
from ..base.ports import Port
from ..kernels.channels_last import from_last, to_last
from ..kernels.compilation import CompiledKernels
from ..kernels.fallback import fallback, is_constant
from ..kernels.prim_funcs import Array, KernelCall
from .isolated_model import IsolatedKernels

_KERNEL_TOLERANCE = Tolerance()
_ROUNDING = {"winograd": "right by itself, but minimal filters round more than products"}
"""Schedule rules whose kernels add larger numbers than their operators do, with the remark about such a kernel."""
_STRICT_TOLERANCE = Tolerance(share=1 / 8)
"""That of such a kernel in the place of another: filters of 2x2 round a tenth of what those of 4x4 do."""
KERNEL_SECONDS = 60.0
"""Seconds that a call of a kernel may take; the largest ones take a few."""


@dataclass(frozen=True)
class Suspect:
    """A kernel that is wrong: the rule that scheduled it, and how far its results are off, or that there are none."""

    symbol: str
    rule: str
    difference: str

    def __str__(self) -> str:
        return f"{self.symbol} (schedule: {self.rule}): {self.difference}"


def suspects(
    prepared: CompiledKernels,
    library: Path,
    threads: int,
    crashed_in: str = "",
    among: Collection[str] | None = None,
    strict: Collection[str] = (),
    may_round: bool = False,
) -> Iterator[Suspect]:
    """The kernels of a library that are wrong, in running order, each distinct one once, only those `among` these if
    some are given. Slow: for explanations.

    The kernel in which the model crashed is one, whatever it does by itself. A kernel for certain sizes is tried at
    these, and blamed by the name of the one for all sizes in whose place it runs. If each kernel by itself is right,
    those that round more than their operators are to blame: several in a row add up. Those that are `strict` stand
    where such a kernel was wrong, and are wrong if they round, too, or with `may_round` if they do not round clearly
    less.
    """
    kernels = IsolatedKernels(library, threads, KERNEL_SECONDS)
    generator = np.random.default_rng(0)
    seen: set[str] = set()
    rounding: list[Suspect] = []
    is_explained = bool(crashed_in) or among is not None
    for place, step in enumerate(prepared.steps):
        if not isinstance(step, KernelCall) or (among is not None and step.symbol not in among):
            continue
        for version, at_sizes in _versions(prepared):
            call = version.steps[place]
            if not isinstance(call, KernelCall) or call.symbol in seen:
                continue
            seen.add(call.symbol)
            rule = version.answers[call.symbol].rule.partition(" ")[0]
            is_strict = rule in _ROUNDING and call.symbol in strict
            tolerance = _STRICT_TOLERANCE if is_strict else _KERNEL_TOLERANCE
            difference = _difference(version, call, kernels, generator, tolerance)
            if difference is None and call.symbol == crashed_in:
                difference = "crashed inside the model"
            if difference is None and is_strict and not may_round:
                difference = _ROUNDING[rule]
            if difference is not None:
                is_explained = True
                yield Suspect(step.symbol, rule, difference + at_sizes)
            elif rule in _ROUNDING:
                rounding.append(Suspect(step.symbol, rule, _ROUNDING[rule]))
    if not is_explained:
        yield from rounding


def _versions(prepared: CompiledKernels) -> Iterator[tuple[CompiledKernels, str]]:
    """The kernels for all sizes, and those for certain ones, with words that say which."""
    yield prepared, ""
    for special in prepared.special:
        sizes = ", ".join(f"{name}={size}" for name, size in special.sizes.items())
        yield special.kernels, f" (for {sizes})"


def _difference(
    prepared: CompiledKernels,
    call: KernelCall,
    kernels: IsolatedKernels,
    generator: np.random.Generator,
    tolerance: Tolerance,
) -> str | None:
    """How a kernel differs from its operators in ONNX Runtime; None if it does not."""
    graph, model = prepared.graph, prepared.weights.model
    try:
        original = fallback(graph, call.members, prepared.weights, "compared")
    except LoweringError:  # its operators are no model that ONNX Runtime runs: there is nothing to compare with
        return None
    read = [v for v in call.inputs if not is_constant(graph, v, model)]
    given = {v: _random(_typical_type(graph, v), generator) for v in dict.fromkeys((*read, *original.inputs))}
    stored = {v: _store(prepared, v, array) for v, array in given.items()}
    arguments = [stored[v] if v in stored else prepared.constant(call, n) for n, v in enumerate(call.inputs)]
    shapes = [_typical_shape(graph, prepared.whole_shape(v)) for v in call.outputs]
    pairs = zip(call.outputs, shapes, strict=True)
    ports = [Port(graph.values[v].name, known_type(graph, v).dtype, shape) for v, shape in pairs]
    try:
        results = kernels.run(call.symbol, arguments, ports)
    except (CrashError, LoweringError) as error:
        return str(error)
    session = open_session(original.model)
    names = (info.name for info in original.model.graph.input)
    try:
        expected = run_on_arrays(session, dict(zip(names, (given[value] for value in original.inputs), strict=True)))
    except Exception:  # whatever ONNX Runtime raises: of a branch not taken at the sizes that are optimised for
        return None
    for value, wanted in zip(original.outputs, expected, strict=True):
        result = results[call.outputs.index(value)][_find_part(prepared, value)]
        result = from_last(result) if value in prepared.channels_last else result
        difference = compare(wanted, result, tolerance)
        if not difference.equal:
            return f"value {graph.values[value].name!r} is off by {difference}"
    return None


def _store(prepared: CompiledKernels, value: int, array: Array) -> Array:
    """The elements as a kernel reads them: in the order of memory, those of a part among others."""
    array = to_last(array) if value in prepared.channels_last else array
    if value not in prepared.places:
        return array
    shape = _typical_shape(prepared.graph, prepared.whole_shape(value))
    whole = np.full(shape, np.nan if array.dtype.kind == "f" else 1, array.dtype)
    whole[_find_part(prepared, value)] = array
    return whole


def _find_part(prepared: CompiledKernels, value: int) -> tuple[slice, ...]:
    """Where a value is in the tensor that it is, or is a part of."""
    shape = _typical_shape(prepared.graph, prepared.stored_shape(value))
    place = prepared.places.get(value)
    firsts = [place.first if place is not None and place.axis == axis else 0 for axis in range(len(shape))]
    return tuple(slice(first, first + extent) for first, extent in zip(firsts, shape, strict=True))


def _typical_type(graph: OperatorGraph, value: int) -> TensorType:
    type_ = known_type(graph, value)
    return replace(type_, shape=_typical_shape(graph, type_.shape or ()))


def _typical_shape(graph: OperatorGraph, shape: Iterable[Dimension]) -> tuple[int, ...]:
    """The shape at the sizes that the graph is optimised for."""
    return tuple(dimension_size(extent, graph.sizes) for extent in shape)


def _random(type_: TensorType, generator: np.random.Generator) -> Array:
    """Standard normal floats; 0 and 1 otherwise, which suits indices of any table."""
    shape, dtype = [int(d) for d in type_.shape or ()], np.dtype(type_.dtype)
    drawn = generator.standard_normal(shape) if dtype.kind == "f" else generator.integers(0, 2, shape)
    return np.asarray(drawn).astype(dtype)
