"""Resize on a part of its operand.

Element i of a resized axis shows the place i * factor + offset of the axis that it comes from. With factor = p / q the
elements from a multiple of q on show what elements from 0 on show of the operand without a multiple of p elements, so
the same Resize of a part gives a part. Where that does not hold, the part is filled to the whole operand with zeros
that nothing reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from .local_builder import LocalPart
from .local_site import LocalSite, require_whole

_DENOMINATOR = 64
"""Larger ones would fill the part to nearly the whole operand."""
_EXACT = 1e-9
_SHIFTING = frozenset({"half_pixel", "asymmetric", "pytorch_half_pixel"})
"""How coordinates are found by the scale alone, on axes of more than one element."""


@dataclass(frozen=True)
class _Axis:
    """The zeros put around the part along one axis, and the interval that its Resize makes."""

    before: int
    after: int
    start: int
    stop: int


def resize(site: LocalSite) -> LocalPart:
    """Raises DsaError where an element may show places that operand boxes leave out."""
    config = _config(site)
    scales = _scales(site, config)
    if not _is_local(config, site, scales):
        require_whole(site)
    axes = [_cut_axis(site, axis, scale, config) for axis, scale in enumerate(scales)]
    if any(axis is None for axis in axes):
        return _fill_to_whole(site)
    cuts = [axis for axis in axes if axis is not None]
    data = site.builder.pad(site.data(), [a.before for a in cuts], [a.after for a in cuts])
    return site.emit([data, *site.rest()], tuple((a.start, a.stop) for a in cuts), config=_by_scales(site))


def _config(site: LocalSite) -> dict[str, Any]:
    text = site.attributes.get("config")
    config = json.loads(text) if isinstance(text, str) and text else {}
    return config if isinstance(config, dict) else {}


def _scales(site: LocalSite, config: Mapping[str, Any]) -> list[float]:
    """Per axis, how many elements each becomes."""
    before, after = site.shape(0), site.network.shapes[site.result]
    listed = config.get("axes", range(len(before)))
    if "scales" not in config:
        return [n / m for m, n in zip(before, after, strict=True)]
    scales = [1.0] * len(before)
    for axis, scale in zip(listed, config["scales"], strict=True):
        scales[axis] = scale
    return scales


def _is_local(config: Mapping[str, Any], site: LocalSite, scales: list[float]) -> bool:
    """Whether all that an element shows is near its place in proportion: what operand boxes go by."""
    crops = config.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    blurs = bool(config.get("antialias", 0)) and min(scales, default=1.0) < 1.0
    rows = zip(site.shape(0), site.network.shapes[site.result], scales, strict=True)
    return not crops and not blurs and not any(n == m and scale != 1.0 for n, m, scale in rows)


def _fill_to_whole(site: LocalSite) -> LocalPart:
    """Resize the whole operand along the axes whose size changes."""
    shape, result, box = site.shape(0), site.network.shapes[site.result], site.needs(0)
    resized = [n != m for n, m in zip(shape, result, strict=True)]
    before = [a if r else 0 for (a, _), r in zip(box, resized, strict=True)]
    after = [n - b if r else 0 for (_, b), n, r in zip(box, shape, resized, strict=True)]
    made = tuple((0, n) if r else i for i, n, r in zip(site.box, result, resized, strict=True))
    return site.emit([site.builder.pad(site.data(), before, after), *site.rest()], made, config=_by_scales(site))


def _by_scales(site: LocalSite) -> str:
    """The settings with a scale for each axis in place of sizes, which axes that are cut do not have."""
    config = _config(site)
    scales = [float(scale) for scale in _scales(site, config)]
    kept = {k: v for k, v in config.items() if k not in ("scales", "sizes", "axes", "keep_aspect_ratio_policy")}
    return json.dumps({**kept, "scales": scales}, sort_keys=True)


def _cut_axis(site: LocalSite, axis: int, scale: float, config: Mapping[str, Any]) -> _Axis | None:
    """How an axis of the part is resized by itself; None where it cannot be."""
    low, high = site.needs(0)[axis]
    extent, result = site.shape(0)[axis], site.network.shapes[site.result][axis]
    if extent == result and scale == 1.0:
        return _Axis(0, 0, *site.box[axis])
    factor = Fraction(1 / scale).limit_denominator(_DENOMINATOR)
    if config.get("coordinate_transformation_mode", "half_pixel") not in _SHIFTING or result == 1:
        return None
    if (low, high) == (0, extent):
        return _Axis(0, 0, 0, result)
    if abs(float(factor) * scale - 1.0) > _EXACT:
        return None
    number = low // factor.numerator
    first = number * factor.numerator
    start = number * factor.denominator
    stop = start + (high - first) * factor.denominator // factor.numerator
    after = 0
    while stop < site.box[axis][1] or stop - start < 2:
        if high == extent:  # nothing may be put behind the border
            return None
        after += 1
        stop = start + (high + after - first) * factor.denominator // factor.numerator
    return _Axis(low - first, after, start, stop)
