"""Convolutions and pooling on parts of their operands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...base.errors import DsaError
from ..network.boxes import Box, Interval
from .local_builder import LocalPart
from .local_site import LocalSite


@dataclass(frozen=True)
class _Axis:
    """The windows along one axis: the padding that is left before and after the part, and what they make."""

    before: int
    after: int
    made: Interval
    is_cut: bool = False
    """Whether the last window ends behind all padding that counts (see `ceil_mode`)."""


def pooling(site: LocalSite) -> LocalPart:
    """Windows over padding alone see what they see in the network."""
    counts_padding = bool(site.integer("count_include_pad", 0))
    axes = list(_axes(site, counts_padding))
    box = (*site.box[:2], *(axis.made for axis in axes))
    changed: dict[str, int] = {}
    if "ceil_mode" in site.attributes:
        changed["ceil_mode"] = int(any(axis.is_cut for axis in axes))
    return site.emit([site.data()], box, pads=_pads(axes), **changed)


def convolution(site: LocalSite) -> LocalPart:
    """One convolution for the whole groups of channels, one for each group of which a part is asked for."""
    axes = list(_axes(site, False))
    spatial = tuple(axis.made for axis in axes)
    outputs = site.shape(1)[0] // max(1, site.integer("group", 1))
    found = [_group(site, channels, spatial, _pads(axes)) for channels in _segments(site.box[1], outputs)]
    box = (*site.box[:2], *spatial)
    if len(found) == 1:
        return found[0]
    shape = tuple(stop - start for start, stop in box)
    return LocalPart(site.builder.add("Concat", [p.local for p in found], shape, attributes={"axis": 1}), box)


def _segments(channels: Interval, outputs: int) -> Iterator[Interval]:
    """Output channels in runs that are part of a group of `outputs`, or whole groups."""
    start, stop = channels
    while start < stop:
        ends = stop // outputs * outputs if start % outputs == 0 else (start // outputs + 1) * outputs
        end = min(stop, ends) if ends > start else stop
        yield start, end
        start = end


def _group(site: LocalSite, channels: Interval, spatial: Box, pads: tuple[int, ...]) -> LocalPart:
    start, stop = channels
    filters, of_group = site.shape(1)[:2]
    outputs = filters // max(1, site.integer("group", 1))
    first, last = start // outputs, (stop - 1) // outputs + 1
    seen = site.needs(0)
    data = site.take(0, (seen[0], (first * of_group, last * of_group), *seen[2:]))
    weight = site.take(1, (channels, *site.needs(1)[1:]))
    has_bias = len(site.operator.inputs) > 2 and site.operator.inputs[2] is not None
    inputs = [data, weight, *([site.take(2, (channels,))] if has_bias else [])]
    return site.emit(inputs, (site.box[0], channels, *spatial), group=last - first, pads=pads)


def _pads(axes: list[_Axis]) -> tuple[int, ...]:
    return (*(axis.before for axis in axes), *(axis.after for axis in axes))


def _axes(site: LocalSite, counts_padding: bool) -> Iterator[_Axis]:
    """The windows along each axis. Raises DsaError for windows behind the last element."""
    kernel = site.integers("kernel_shape")
    ones = (1,) * len(kernel)
    strides, dilations = site.integers("strides") or ones, site.integers("dilations") or ones
    pads = site.integers("pads") or (0,) * (2 * len(kernel))
    for axis, (start, stop) in enumerate(site.box[2:]):
        low, high = site.needs(0)[2 + axis]
        extent, reach = site.shape(0)[2 + axis], (kernel[axis] - 1) * dilations[axis] + 1
        first = start * strides[axis] - pads[axis]
        last = (stop - 1) * strides[axis] - pads[axis] + reach
        if first > low:
            operator = site.operator
            raise DsaError(f"{operator.op} {operator.name!r}: a part of its result sees nothing but padding")
        ends = min(last, extent + pads[axis + len(kernel)]) if counts_padding else last
        after = max(0, ends - high)
        is_cut = high + after < last
        count = stop - start if is_cut else (high + after - first - reach) // strides[axis] + 1
        yield _Axis(low - first, after, (start, start + count), is_cut)
