"""Random networks of feature maps, for properties."""

from __future__ import annotations

from typing import get_args

from hypothesis import strategies as st

from eqfuse.costmodels.dsa_device import DsaDevice
from eqfuse.ir.graph import OperatorGraph
from eqfuse.lowering.base.choices import UpSampling

from .graphs import Builder, accelerator

Case = tuple[OperatorGraph, list[tuple[int, ...]], DsaDevice, UpSampling]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A network, its layers, an accelerator, and where rule (i) is turned around."""
    builder = Builder()
    batch, channels, side = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([2, 4])), 8
    maps = [builder.value((batch, channels, side, side))]
    for _ in range(draw(st.integers(1, 6))):
        maps += _step(draw, builder, maps)
    used = {v for operator in builder.operators for v in operator.inputs if v is not None}
    ends = [v for v in maps if v not in used]
    inner = draw(st.lists(st.sampled_from(maps[1:]), max_size=1))
    device = accelerator(
        draw(st.sampled_from([256, 1024, 4096, 1 << 16])),
        draw(st.sampled_from([1, 4, 8, 9])),
        global_buffer=draw(st.sampled_from([1024, 1 << 20])),
    )
    return builder.graph(*ends, *inner), builder.layers, device, draw(st.sampled_from(get_args(UpSampling)))


def _step(draw: st.DrawFn, builder: Builder, maps: list[int]) -> list[int]:
    x = draw(st.sampled_from(maps[-3:]))
    batch, channels, rows, columns = builder.shape(x)
    kind = draw(st.sampled_from(["relu", "conv", "pool", "sum", "concat", "split", "resize", "turn", "softmax"]))
    if kind == "conv":
        return [builder.conv(x, draw(st.sampled_from([2, 4, 6])), draw(st.sampled_from([1, 3])), min(rows, columns, 2))]
    if kind == "pool" and min(rows, columns) > 1:
        return [builder.pool(x, 2, 2)]
    if kind == "resize" and rows * columns < 200:
        return [builder.resize(x, 2)]
    if kind == "turn":
        return [builder.add("Transpose", [x], (batch, channels, columns, rows), perm=(0, 1, 3, 2))]
    if kind == "softmax":
        return [builder.add("Softmax", [x], builder.shape(x), axis=3)]
    if kind == "split" and channels % 2 == 0:
        half = (batch, channels // 2, rows, columns)
        first = builder.add("Split", [x], half, half, axis=1, split=(channels // 2,) * 2)
        return [first, first + 1]
    fitting = [m for m in maps if builder.shape(m)[2:] == (rows, columns)]
    other = draw(st.sampled_from(fitting))
    if kind == "concat":
        both = (batch, channels + builder.shape(other)[1], rows, columns)
        return [builder.add("Concat", [x, other], both, axis=1)]
    if kind == "sum" and builder.shape(other) == builder.shape(x):
        return [builder.sum(x, other)]
    return [builder.relu(x)]
