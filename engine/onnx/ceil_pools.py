"""Sizes of pools with ``ceil_mode``.

No window may begin in the pad at the end. ONNX says so since opset 22, and runtimes never had such windows, but shape
inference counts them in the older operators. So inference gets those pools without ``ceil_mode``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import onnx

from ...ir.types import TensorType
from .model import ONNX_DOMAINS

_POOLS = frozenset({"AveragePool", "MaxPool", "LpPool"})


def correct_ceil_pool(nodes: Iterable[onnx.NodeProto], types: Mapping[str, TensorType]) -> bool:
    """Rewrite, in place, the first pool whose inferred size counts a window too many; False if there is none."""
    for node in nodes:
        if node.op_type in _POOLS and node.domain in ONNX_DOMAINS:
            settings = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
            pads = _pads(settings, types.get(node.input[0]), types.get(node.output[0]))
            if pads is not None:
                others = [a for a in node.attribute if a.name not in ("ceil_mode", "pads")]
                del node.attribute[:]
                node.attribute.extend([*others, onnx.helper.make_attribute("pads", pads)])
                return True
    return False


def _pads(settings: Mapping[str, Any], data: TensorType | None, result: TensorType | None) -> list[int] | None:
    """The pads that give the right size without ``ceil_mode``; None if the inferred size is right or unknown."""
    sizes, counts = _spatial_sizes(data), _spatial_sizes(result)
    if not settings.get("ceil_mode") or settings.get("auto_pad", b"NOTSET") != b"NOTSET" or not sizes or not counts:
        return None
    rank = len(sizes)
    strides = settings.get("strides") or [1] * rank
    dilations = settings.get("dilations") or [1] * rank
    pads = list(settings.get("pads") or [0] * (2 * rank))
    outside = [(counts[i] - 1) * strides[i] >= sizes[i] + pads[i] for i in range(rank)]
    for i in range(rank):
        if not outside[i]:
            extent = (settings["kernel_shape"][i] - 1) * dilations[i] + 1
            pads[rank + i] = max(pads[rank + i], (counts[i] - 1) * strides[i] + extent - sizes[i] - pads[i])
    return pads if any(outside) else None


def _spatial_sizes(type_: TensorType | None) -> tuple[int, ...]:
    """The dimensions behind the first two; () if one of them is unknown."""
    shape = type_.shape[2:] if type_ is not None and type_.shape is not None else ()
    return tuple(d for d in shape if isinstance(d, int)) if all(isinstance(d, int) for d in shape) else ()
