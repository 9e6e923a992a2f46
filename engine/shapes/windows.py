"""The shapes behind windows that slide: convolutions and pools, in any number of dimensions."""

from __future__ import annotations

from ...ir.operators import FILTERS
from ...ir.operators.windows import reach_in_padding
from ...ir.sizes import ONE, Size, floor_divide, number
from .site import Shape, Site, dimensions, require_number


def _window(site: Site) -> tuple[list[int], list[int], list[int], list[int]]:
    """Extents, strides, and the pads before and behind, of the dimensions after the first two."""
    spatial = len(site.shape()) - 2
    kernel = site.attribute("kernel_shape")
    if kernel is None:
        kernel = [require_number(size) for size in site.shape(FILTERS.get(site.node.op_type, 1))[2:]]
    dilations = site.attribute("dilations", [1] * spatial)
    strides = site.attribute("strides", [1] * spatial)
    pads = site.attribute("pads", [0] * (2 * spatial))
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    return extents, list(strides), list(pads[:spatial]), list(pads[spatial:])


def _slid(site: Site, is_pool: bool) -> Shape:
    """The dimensions after the first two, behind a window that slides over them."""
    extents, strides, before, behind = _window(site)
    dilations = site.attribute("dilations", [1] * len(extents))
    # what SAME padding lacks so that the last windows fit
    op, axes = site.node.op_type, zip(extents, dilations, strict=True)
    missing = [extent - reach_in_padding(op, (extent - 1) // dilation + 1, dilation) for extent, dilation in axes]
    padding, is_ceil = site.attribute("auto_pad", "NOTSET"), site.attribute("ceil_mode", 0)

    def slide(size: Size, extent: int, stride: int, begin: int, end: int, missing: int) -> Size:
        if padding in ("SAME_UPPER", "SAME_LOWER"):
            count = floor_divide(size + number(stride - 1), number(stride))
            if not missing:
                return count
            site.require(size, missing // stride * stride + 1)
            fewer = missing // stride if is_ceil else -(-missing // stride)
            return site.bounds.maximum(count - number(fewer), ONE)
        begin, end = (0, 0) if padding == "VALID" else (begin, end)
        # the only window of a pool may reach beyond its operand, by less than a stride
        site.require(size, max(1, extent - begin - end - (stride - 1 if is_pool else 0)))
        room = size + number(begin + end - extent + stride)
        if is_ceil:  # one window more if something is left, but none that begins in the pad at the end
            room = size + number(begin + min(end - extent + stride, 0) + stride - 1)
        count = floor_divide(room, number(stride))
        is_demanded = stride == 1 and count.number is None  # that it is 1 at least, as the size must be
        return site.bounds.maximum(count, ONE) if is_pool and not is_demanded else count

    return dimensions(slide, site.shape()[2:], extents, strides, before, behind, missing)


def convolution(site: Site) -> Shape:
    """The shape behind a convolution that is not transposed."""
    filters = site.shape(FILTERS.get(site.node.op_type, 1))
    return (site.shape()[0], filters[0], *_slid(site, is_pool=False))


def pool(site: Site) -> list[Shape]:
    """The shapes of a pool's outputs."""
    shape = (*site.shape()[:2], *_slid(site, is_pool=True))
    return [shape] * len(site.node.outputs)


def global_pool(site: Site) -> Shape:
    """The shape behind a pool over all positions."""
    shape = site.shape()
    return (*shape[:2], *(ONE,) * (len(shape) - 2))


def transposed_convolution(site: Site) -> Shape:
    """The shape behind a ConvTranspose."""
    shape, weight = site.shape(), site.shape(1)
    extents, strides, before, behind = _window(site)
    channels = dimensions(lambda size: size.scale(site.attribute("group", 1)), weight[1:2])
    if (given := site.attribute("output_shape")) is not None:
        return (shape[0], *channels, *map(number, given[-(len(shape) - 2) :]))
    more = site.attribute("output_padding", [0] * len(strides))
    padding = site.attribute("auto_pad", "NOTSET")

    def spread(size: Size, extent: int, stride: int, pads: int, extra: int) -> Size:
        if padding in ("SAME_UPPER", "SAME_LOWER"):  # elements beyond size * stride are dropped, and none is added
            return size.scale(stride) + number(min(0, extent + extra - stride))
        return (size - ONE).scale(stride) + number(extent + extra - (0 if padding == "VALID" else pads))

    pads = [a + b for a, b in zip(before, behind, strict=True)]
    return (shape[0], *channels, *dimensions(spread, shape[2:], extents, strides, pads, more))
