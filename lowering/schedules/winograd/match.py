"""Which functions Winograd's minimal filters compute: 3x3 convolutions over feature maps with their channels last, by
themselves or with a pooling behind them whose windows touch but do not overlap.

A convolution in three dimensions is one in two: each slice of its result is an image, whose input has the channels of
the slices that the window sees along the depth, one behind the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tvm import sym, tirx

from ..base.blocks import BlockInfo, BufferAccess, parameter_index
from ..base.draft import Draft
from ..base.extents import SymbolicExtent, is_symbolic
from ..base.nodes import Variable
from ..base.preparation import find_epilogue, inline_around
from ..base.rewriting import substitute
from ..base.tiled import PaddedMap
from ..base.winograd_filters import TAPS
from ..tiling.padding import find_padding

_WINDOW = (TAPS, TAPS)
"""The last sizes of weights that filters are made of; in front of them may be one along the depth."""


class PlaneAxes(NamedTuple):
    """Iterators of a block for image, row, column and output channel."""

    image: int
    row: int
    column: int
    channel: int


class SliceAxes(NamedTuple):
    """The same of a result with a depth."""

    image: int
    depth: int
    row: int
    column: int
    channel: int


@dataclass(frozen=True)
class DepthWindow:
    """The window along the depth: `count` taps, which `tap` numbers, for each of the `slices` of an image's result.

    `image` numbers the slices of all images. A tap reads zeros unless the conditions `inside` on the two hold.
    """

    image: Variable
    tap: Variable
    count: int
    slices: int
    inside: tuple[Any, ...]


@dataclass(frozen=True)
class Pooling:
    """A block that reduces windows of a convolution's sum, with what is computed of each element inlined.

    A window has `rows` and `columns`, and the next one begins behind it. `variables` are the block's iterators for the
    image, row, column and channel of the result, `taps` those for the place in a window (None: one place).
    `start` is the value that a window without elements has.
    """

    block: BlockInfo
    rows: int
    columns: int
    variables: tuple[Variable, ...]
    taps: tuple[Variable | None, Variable | None]
    start: Any


@dataclass(frozen=True)
class FilteredConvolution:
    """A 3x3 convolution of a function: its sum, the block after it, and the map that the sum reads.

    `padding` is the name of the output of a block that only pads for the sum, `weights` the parameter with the weights.
    `outputs` are the images, rows, columns and channels that it computes, and `variables` the iterators of the block
    after it in that order; those that take one step besides are `single`. Between the two may stand a `pooling`, which
    reads no rows and columns beyond its windows. With a `depth` images are slices, `source` is read by the number of
    the slice and by the tap, and `variables` have the slice within an image behind the image.
    """

    anchor: BlockInfo
    epilogue: BlockInfo
    source: PaddedMap
    padding: str | None
    weights: int
    variables: tuple[Variable, ...]
    outputs: tuple[Any, ...]
    pooling: Pooling | None = None
    single: tuple[Variable, ...] = ()
    depth: DepthWindow | None = None

    @property
    def channels(self) -> int:
        """Channels of the input, once for each tap along the depth."""
        return self.source.shape[3] * (1 if self.depth is None else self.depth.count)

    def place_of(self, image: Any, row: Any, column: Any, channel: Any) -> tuple[Any, ...]:
        """The values of `variables` and of `single` for an element of the result."""
        of_image = (image,) if self.depth is None else (image // self.depth.slices, image % self.depth.slices)
        return (*of_image, row, column, channel, *(tirx.const(0, "int32") for _ in self.single))

    @property
    def is_free(self) -> bool:
        """Whether the number of images, rows or columns is dynamic."""
        return any(map(is_symbolic, self.outputs))

    @property
    def may_be_small(self) -> bool:
        """Whether there may be so few tiles that direct products are faster. With a depth the filter is taken always if
        it is for the size that is optimised for."""
        return self.is_free and self.depth is None


def find_convolution(
    draft: Draft, anchor: BlockInfo, epilogue: BlockInfo, pool: BlockInfo | None = None
) -> FilteredConvolution | None:
    """The convolution, if the sum is one of floats with weights [O, C, 3, 3] or [O, C, K, 3, 3], one group, and stride
    and dilation 1 in rows and columns; with `pool` between the two, if that reduces windows of rows and columns that
    touch. With a depth all sizes but the batch are fixed, and nothing is pooled. The block after them may read and
    write any types: QuantizeLinear makes integers of the sum."""
    weights = next((r for r in anchor.reads if r.shape[2:][-2:] == _WINDOW and draft.is_constant(r)), None)
    data = next((r for r in anchor.reads if r is not weights), None)
    accesses = (*anchor.reads, anchor.write, *(pool.reads if pool is not None else ()))
    if weights is None or data is None or any(str(access.buffer.dtype) != "float32" for access in accesses):
        return None
    axes = _find_axes(anchor, data, weights)
    index = parameter_index(draft.function, weights.buffer)
    if axes is None or index is None:
        return None
    outputs, pooling, last = tuple(anchor.extents[axis] for axis in axes), None, anchor
    read: PlaneAxes | SliceAxes = axes
    if isinstance(axes, SliceAxes) and (pool is not None or any(map(is_symbolic, outputs[1:]))):
        return None
    if pool is not None:
        assert isinstance(axes, PlaneAxes)
        pooling = _find_pooling(draft, anchor, pool, axes)
        if pooling is None or any(map(is_symbolic, outputs)):
            return None
        last, read = pool, PlaneAxes(*map(pool.variables.index, pooling.variables))
        windows = (pool.extents[read.row] * pooling.rows, pool.extents[read.column] * pooling.columns)
        outputs = (outputs[0], *windows, outputs[3])
    after = _find_epilogue_axes(last, epilogue, read)
    if after is None:
        return None
    source = find_padding(draft, data)
    padding = data.name if source is not None else None
    if source is None:
        names = ("n", *(["d"] if isinstance(axes, SliceAxes) else []), "h", "w", "c")
        places = tuple(tirx.Var(name, "int32") for name in names)
        value = tirx.BufferLoad(data.buffer, places)
        source = PaddedMap(data.name, places, value, (), (), (data.buffer,), data.shape)
    variables = tuple(epilogue.variables[i] for i in after)
    single = tuple(v for i, v in enumerate(epilogue.variables) if i not in after)
    depth = None
    if isinstance(axes, SliceAxes):
        source, depth = _number_slices(anchor, axes.depth, data, weights, source)
        outputs = (_times(outputs[0], outputs[1]), *outputs[2:])
    return FilteredConvolution(anchor, epilogue, source, padding, index, variables, outputs, pooling, single, depth)


def _number_slices(
    anchor: BlockInfo, depth: int, data: BufferAccess, weights: BufferAccess, source: PaddedMap
) -> tuple[PaddedMap, DepthWindow]:
    """The map by the number of a slice of the result, and the window along the depth."""
    image, tap = (tirx.Var(name, "int32") for name in ("image", "tap"))
    taps = {anchor.variables[i]: tap for i in weights.iterators[2]}
    slices = int(anchor.extents[depth])
    own, depth_of_map, *plane = source.variables
    place = substitute(data.indices[1], {anchor.variables[depth]: image % slices, **taps})
    value = substitute(source.value, {own: image // slices, depth_of_map: place})
    inside = tuple(substitute(bound, {depth_of_map: place}) for bound in source.depth)
    shape = (_times(source.shape[0], slices), *source.shape[2:])
    flat = replace(source, variables=(image, *plane), value=value, shape=shape, depth=())
    return flat, DepthWindow(image, tap, weights.shape[2], slices, inside)


def _times(extent: Any, count: int) -> Any:
    """So many times an extent, dynamic if that is."""
    return SymbolicExtent(extent.expression * count, extent.typical * count) if is_symbolic(extent) else extent * count


def find_pooled_convolution(draft: Draft) -> FilteredConvolution | None:
    """The convolution of a function with two reductions, of which the second pools the first. What is computed between
    them is inlined into the pooling."""
    reductions = [block for block in draft.blocks() if block.reduced]
    if len(reductions) != 2 or not reductions[0].is_product_sum() or reductions[1].is_product_sum():
        return None
    inline_around(draft, reductions[0], BlockInfo.is_product_sum)
    anchor, pool = (draft.inspect(block.block) for block in reductions)
    if not anchor.is_product_sum() or [block.name for block in draft.consumers(anchor)] != [pool.name]:
        return None
    pair = find_epilogue(draft, pool)
    if pair is None:
        return None
    pool, epilogue = pair
    return find_convolution(draft, draft.inspect(anchor.block), epilogue, pool)


def _find_pooling(draft: Draft, anchor: BlockInfo, pool: BlockInfo, axes: PlaneAxes) -> Pooling | None:
    """The windows, if the block reads S[n, h * rows + i, w * columns + j, c] of the sum, and reduces i and j alone.

    A result of one row or column has no such index, and is left to other rules."""
    read, start = pool.read_of(anchor), draft.schedule.get(pool.block).init
    indices = [read.indices[anchor.write.dimension_of(axis)] for axis in axes]
    used = [read.iterators[anchor.write.dimension_of(axis)] for axis in axes]
    if read.is_computed or start is None or len(pool.writes) != 1 or len(pool.spatial) != len(axes):
        return None
    own, taps = zip(*((each - pool.reduced, each & pool.reduced) for each in used), strict=True)
    if any(len(each) != 1 for each in own) or any(len(each) > 1 for each in taps) or taps[0] or taps[3]:
        return None
    if set().union(*own) != set(pool.spatial) or any(pool.extents[i] > 1 for i in pool.reduced.difference(*taps)):
        return None
    variables = [pool.variables[next(iter(each))] for each in own]
    places = [next((pool.variables[i] for i in each), None) for each in taps]
    sizes = [next((int(pool.extents[i]) for i in each), 1) for each in taps]
    analyzer = sym.Analyzer()
    for index, variable, place, size in zip(indices, variables, places, sizes, strict=True):
        expected = variable * size + place if place is not None else variable * size
        if not analyzer.can_prove_equal(index, expected):
            return None
    return Pooling(pool, sizes[1], sizes[2], tuple(variables), (places[1], places[2]), start.value)


def _find_axes(anchor: BlockInfo, data: BufferAccess, weights: BufferAccess) -> PlaneAxes | SliceAxes | None:
    """The axes of the output, if Y[n, h, w, o] += X[n, h + i, w + j, c] * W[o, c, i, j], or if
    Y[n, d, h, w, o] += X[n, a * d + b * k, h + i, w + j, c] * W[o, c, k, i, j]."""
    rank = len(data.shape)
    if not 4 <= len(anchor.spatial) == rank <= len(weights.shape) <= 5:
        return None
    along = weights.iterators[2] if rank > 4 else frozenset[int]()  # no iterator has one step, such as of a window of 1
    taps = (*weights.indices[-2:], *(weights.indices[2:3] if along else ()))
    plain = (*weights.indices[:2], *taps, *anchor.write.indices, data.indices[0], data.indices[-1])
    if not all(isinstance(index, tirx.Var) for index in plain):
        return None
    o, c, i, j = (next(iter(used)) for used in (*weights.iterators[:2], *weights.iterators[-2:]))
    summed = {c, *along, i, j}
    if not summed <= anchor.reduced or o in anchor.reduced or data.shape[-1] != anchor.extents[c]:
        return None
    if len(summed) != 3 + len(along) or any(anchor.extents[other] > 1 for other in anchor.reduced - summed):
        return None
    image, *slices, row, column, channel = data.iterators
    if channel != {c} or not (_is_window(data, rank - 3, i) and _is_window(data, rank - 2, j)):
        return None
    (n,), (h,), (w,) = image, row - {i}, column - {j}
    axes: PlaneAxes | SliceAxes = PlaneAxes(n, h, w, o)
    if slices:
        own = slices[0] - along or anchor.write.iterators[1]  # a single slice has no place in the index
        if len(own) != 1 or len(along) > 1 or not along <= slices[0]:
            return None
        axes = SliceAxes(n, next(iter(own)), h, w, o)
    return axes if set(axes) == set(anchor.spatial) else None


def _find_epilogue_axes(anchor: BlockInfo, epilogue: BlockInfo, axes: PlaneAxes | SliceAxes) -> list[int] | None:
    """The iterators of the block after the sum in that order, if it writes vectors of channels."""
    read = epilogue.read_of(anchor)
    if len(read.indices) != len(axes) or not all(isinstance(index, tirx.Var) for index in read.indices):
        return None
    if any(extent != 1 for i, extent in enumerate(epilogue.extents) if i not in read.used):
        return None
    after = [next(iter(read.iterators[anchor.write.dimension_of(axis)])) for axis in axes]
    return after if epilogue.write.is_unit_stride(after[-1]) else None


def _is_window(data: BufferAccess, dimension: int, tap: int) -> bool:
    """Whether the index is the sum of two iterators, one of them that of the filter."""
    index, used = data.indices[dimension], data.iterators[dimension]
    plain = isinstance(index, tirx.Add) and isinstance(index.a, tirx.Var) and isinstance(index.b, tirx.Var)
    return plain and tap in used and len(used) == 2
