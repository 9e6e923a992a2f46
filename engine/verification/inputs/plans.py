"""Plans for drawing the inputs of a model: one consistent size per symbolic dimension, and the kind of values."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any

import numpy as np
import onnx

from ....ir.sizes import declared_sizes, parse_size
from ....support.errors import UsageError
from ..runs.structure import Structure
from .roles import FREE, Purpose, Role, purpose_of, steering_values

_SIZES = ((2, 8), (1, 8), (2, 32), (1, 32), (1, 64), (1, 224), (1, 1), (2, 2), (1, 128), (4, 4), (1, 256), (1, 512))
"""Sizes tried for symbolic dimensions: (leading axis, every other axis). Leading 2 first: size 1 hides broadcasting."""

_TYPICAL_SIZES = ((1, 128), (1, 224), (1, 256), (1, 64), (1, 32), *_SIZES)
"""Sizes tried if the time of a run matters: the first are those that costs assume."""

_WIDE_SIZES = (50, 64)
"""Sizes of feature maps that are halved four or five times and still have several elements, so that a window reads more
than its middle; the second for models that ask for multiples of 32."""

_MOST_SUMS = 32
"""The most sums of two dimensions that are tried: all of those of up to five dimensions."""
_SUM_SIZES = 2
"""Pairs of sizes that are tried with each of the sums."""

_MOST_MODES = 8
"""The most numbers that are tried as the value of an integer because the model compares it with them (sampling
rates)."""

_DRAWN_SIZES = (*range(1, 17), *range(18, 65, 2), *range(21, 64, 7), 77, 96, 100, 112, 160, 192, 196, 197, 384)
"""Sizes drawn for each dimension by itself if the model runs on none of the others: multiples of small numbers,
and lengths and images that networks are made for."""
_MOST_DRAWS = 128
"""The most plans of such sizes."""

_INTEGER_BOUNDS = (10, 2, 1)
_UNKNOWN_RANKS = (2, 1, 0, 3, 4)


class Temper(Enum):
    """The kind of values to draw."""

    ORDINARY = auto()
    """Values in the domain of the operators that read an input: positive for Sqrt, else standard normal."""
    EDGES = auto()
    """Zeros of both signs, whole and half numbers, equal neighbours, and the numbers that the model compares with."""
    LARGE = auto()
    """Numbers of either sign, from about one to thousands."""
    NEGATIVE = auto()
    POSITIVE = auto()
    SPECIAL = auto()
    """Values of EDGES, and NaN, infinities, subnormal and the largest numbers."""


@dataclass(frozen=True)
class InputSpec:
    """An input to be fed. ``dims`` holds sizes, symbols (or expressions of symbols); None if the rank is unknown.

    ``container`` is "tensor", "sequence" (of such tensors), "optional" or "other" (nothing that can be generated).
    ``steers``: shapes, loops or integer divisors follow from its values, so only ordinary ones are drawn.
    """

    name: str
    container: str
    element_type: int
    dims: tuple[int | str, ...] | None
    purpose: Purpose = FREE
    steers: bool = False

    @property
    def is_integer(self) -> bool:
        """Whether its elements are whole numbers."""
        return numpy_kind(self.element_type) in "iu"


@dataclass(frozen=True)
class Plan:
    """The free choices behind a set of inputs. With a `mode`, integers that the model compares are the number at this
    place of those that it compares them with."""

    sizes: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    integer_bound: int = _INTEGER_BOUNDS[0]
    unknown_rank: int = _UNKNOWN_RANKS[0]
    scale: float = 1.0
    temper: Temper = Temper.ORDINARY
    mode: int | None = None


def input_specs(structure: Structure) -> tuple[InputSpec, ...]:
    """Every input that must be fed, with the purpose that its uses show."""
    steering = {integer: steering_values(structure, divisors=integer) for integer in (False, True)}
    dependent = structure.input_dependent
    casts = [node for node in structure.graph.node if node.op_type == "Cast" and node.input[0] in dependent]
    to_integers = any(numpy_kind(item.i) in "iu" for node in casts for item in node.attribute if item.name == "to")
    specs = []
    for value in structure.inputs:
        container, tensor = _container(value.type)
        if tensor is None:
            specs.append(InputSpec(value.name, "other", onnx.TensorProto.UNDEFINED, None))
            continue
        dims = tuple(map(_dimension, itertools.count(), tensor.shape.dim)) if tensor.HasField("shape") else None
        steers = value.name in steering[to_integers or numpy_kind(tensor.elem_type) in "iu"]
        purpose = purpose_of(structure, value.name, tensor.elem_type)
        specs.append(InputSpec(value.name, container, tensor.elem_type, dims, purpose, steers))
    return tuple(specs)


def _container(kind: onnx.TypeProto) -> tuple[str, onnx.TypeProto.Tensor | None]:
    if kind.HasField("tensor_type"):
        return "tensor", kind.tensor_type
    if kind.HasField("sequence_type"):
        inner, tensor = _container(kind.sequence_type.elem_type)
        return ("sequence", tensor) if inner == "tensor" else ("other", None)
    if kind.HasField("optional_type"):
        inner, tensor = _container(kind.optional_type.elem_type)
        return ("optional", tensor) if inner == "tensor" else (inner, tensor)
    return "other", None


def _dimension(axis: int, dim: onnx.TensorShapeProto.Dimension) -> int | str:
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return dim.dim_value
    return dim.dim_param or f"?{axis}"


def plans(
    specs: Iterable[InputSpec], shapes: Mapping[str, tuple[int, ...]], *, typical: bool = False
) -> Iterator[Plan]:
    """Plans in the order to try them, first those of the ``typical`` sizes or small ones; ``shapes`` are binding.

    Raises UsageError if a shape does not fit the rank of its input.
    """
    specs = tuple(specs)
    fixed = dict(_bindings(specs, shapes))
    leading = _symbols(specs, fixed)
    # Integers without a known bound may be indices: then smaller ones are tried, too.
    unbounded = any(
        spec.is_integer
        and (spec.purpose.role is Role.FREE or (spec.purpose.role is Role.INDEX and spec.purpose.bound is None))
        for spec in specs
    )
    ranked = any(spec.dims is None and spec.name not in shapes and spec.container != "other" for spec in specs)
    unnamed = _with_inner_batches(specs, shapes)
    tried = (_TYPICAL_SIZES if typical else _SIZES) if leading else _SIZES[:1]
    bounds = _INTEGER_BOUNDS if unbounded else _INTEGER_BOUNDS[:1]
    ranks = _UNKNOWN_RANKS if ranked else _UNKNOWN_RANKS[:1]

    def sizes_at(first: int, other: int) -> dict[str, int]:
        return {symbol: first if leads else other for symbol, leads in leading.items()}

    for by_order, (first, other), bound, rank in itertools.product(
        (False, True)[: 1 + bool(unnamed)], tried, bounds, ranks
    ):
        sizes = sizes_at(first, other)
        own = {spec.name: _shape_by_order(spec, first, other) for spec in unnamed} if by_order else {}
        yield Plan({**sizes, **fixed}, {**own, **shapes}, bound, rank)
    inner = [symbol for symbol, leads in leading.items() if not leads]
    for (first, other), (whole, *parts), bound in itertools.product(tried[:_SUM_SIZES], _sums(inner), bounds):
        sizes = sizes_at(first, other)
        yield Plan({**sizes, **fixed, whole: sum(sizes[part] for part in parts)}, dict(shapes), bound)
    modes = max((len(spec.purpose.compared) for spec in specs if spec.is_integer), default=0)
    for (first, other), mode in itertools.product(tried, range(min(modes, _MOST_MODES))):
        sizes = sizes_at(first, other)
        yield Plan({**sizes, **fixed}, dict(shapes), mode=mode)
    for draw in range(_MOST_DRAWS if leading else 0):
        generator = np.random.default_rng(draw)
        drawn = {symbol: int(generator.choice(_DRAWN_SIZES)) for symbol in leading}
        yield Plan({**drawn, **fixed}, dict(shapes), bounds[draw % len(bounds)])


def _sums(symbols: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """A dimension and two others of which it may be the sum, like that of an attention mask over cached and new
    positions."""
    return itertools.islice((sum_ for sum_ in itertools.permutations(symbols, 3) if sum_[1] < sum_[2]), _MOST_SUMS)


def _with_inner_batches(specs: Iterable[InputSpec], shapes: Mapping[str, tuple[int, ...]]) -> list[InputSpec]:
    """The inputs with dynamic dims, if no dynamic dim has a name and some input has its first one, which may be the
    batch, at another axis than the first, like states of recurrent layers; else none."""
    free = {spec: axes for spec in specs if spec.name not in shapes and (axes := _free_axes(spec))}
    names = {str((spec.dims or ())[axis]) for spec, axes in free.items() for axis in axes}
    is_unnamed = all(name.startswith("?") for name in names)
    return list(free) if is_unnamed and any(axes[0] > 0 for axes in free.values()) else []


def _free_axes(spec: InputSpec) -> list[int]:
    return [axis for axis, dim in enumerate(spec.dims or ()) if isinstance(dim, str)]


def _shape_by_order(spec: InputSpec, first: int, other: int) -> tuple[int, ...]:
    """The shape with its first dynamic dim as the batch, at any axis."""
    batch = _free_axes(spec)[0]
    return tuple(
        dim if isinstance(dim, int) else first if axis == batch else other for axis, dim in enumerate(spec.dims or ())
    )


def enlarge(plan: Plan, specs: Iterable[InputSpec], has_windows: bool) -> Iterator[Plan]:
    """The plan with larger dynamic sizes, in the order to try them: for a model with windows, sizes at which these have
    neighbours to read; then all larger by about a half. Nothing if no size is dynamic."""
    fixed = dict(_bindings(specs, plan.shapes))
    free = {symbol: size for symbol, size in plan.sizes.items() if symbol not in fixed}
    if not free:
        return
    leading = _symbols(specs, fixed)
    larger = {symbol: size + max(1, size // 2) for symbol, size in free.items()}
    for wide in _WIDE_SIZES if has_windows else ():
        wider = {symbol: size if leading.get(symbol, True) else max(size, wide) for symbol, size in larger.items()}
        if wider != larger:
            yield replace(plan, sizes={**plan.sizes, **wider})
    yield replace(plan, sizes={**plan.sizes, **larger})


def _bindings(specs: Iterable[InputSpec], shapes: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[str, int]]:
    for spec in specs:
        if spec.name not in shapes or spec.dims is None:
            continue
        shape = shapes[spec.name]
        if len(shape) != len(spec.dims):
            expected = "x".join(map(str, spec.dims))
            raise UsageError(
                f"input {spec.name!r} has {len(spec.dims)} dims ({expected}), not {len(shape)}; fix its shape"
            )
        yield from ((dim, size) for dim, size in zip(spec.dims, shape, strict=True) if isinstance(dim, str))


def _symbols(specs: Iterable[InputSpec], fixed: Mapping[str, int]) -> dict[str, bool]:
    """Dynamic symbols, and whether one of their axes is the first. Expressions of other symbols are not symbols."""
    leading: dict[str, bool] = {}
    for spec in specs:
        for axis, dim in enumerate(spec.dims or ()):
            if isinstance(dim, str) and dim not in fixed:
                leading[dim] = leading.get(dim, False) or axis == 0
    sizes = declared_sizes({*leading, *fixed})
    free: dict[str, bool] = {}
    for name, leads in leading.items():
        for base in sizes[name].names():
            if base not in fixed:
                free[base] = free.get(base, False) or leads
    return free


def _evaluate(expression: str, sizes: Mapping[str, int]) -> int:
    """A dimension such as ``past + 1`` under the given sizes; 1 for anything but integer arithmetic."""
    size = parse_size(expression)
    try:
        return 1 if size is None else size.value(sizes.__getitem__)
    except (KeyError, ZeroDivisionError):
        return 1


def shape_of(spec: InputSpec, plan: Plan) -> tuple[int, ...]:
    """The shape that an input gets by a plan."""
    if spec.name in plan.shapes:
        return tuple(plan.shapes[spec.name])
    if spec.dims is None:
        return tuple(_SIZES[0][min(axis, 1)] for axis in range(plan.unknown_rank))
    return tuple(
        dim if isinstance(dim, int) else plan.sizes[dim] if dim in plan.sizes else _evaluate(dim, plan.sizes)
        for dim in spec.dims
    )


def numpy_type(element_type: int) -> np.dtype[Any] | None:
    """The element type in numpy; None if numpy has none."""
    try:
        return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(element_type))
    except (KeyError, TypeError):
        return None


def numpy_kind(element_type: int) -> str:
    """The letter of numpy's kind, such as ``f`` or ``i``; ``?`` for types that numpy lacks."""
    dtype = numpy_type(element_type)
    return "?" if dtype is None else dtype.kind
