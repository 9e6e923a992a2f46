"""Operators for the float64 oracle, with the semantics of ONNX's Operators.md.

They replace reference implementations that are wrong for some axes and sizes (GatherElements), loop in Python (pooling,
and Resize before onnx 1.22), need much memory (Conv), compute in float32 (Erf), know no narrower floats (BitCast) or
treat old operator versions as the current ones (BatchNormalization, Softmax).

Loop and Scan for float64 runs: onnx's evaluator joins rows that a Loop collects as matrices, lets outer names hide
those of a body, never runs a Loop without a condition, and knows no direction or axis of a Scan.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx.reference.op_run import OpRun
from onnx.reference.ops import op_mel_weight_matrix, op_one_hot, op_resize

from ....ir.operators.windows import WINDOWED_POOLS, reach_in_padding
from ..runs.structure import operands as names_read
from ..runs.values import Value
from .sampling_kernels import DeformConv, GridSample
from .widening import widen_value

if TYPE_CHECKING:
    from ....ir.operators import Attribute, OperatorSchema

Names = Mapping[str, Value]


class _Iterated(OpRun):
    """An operator with a body that runs again and again."""

    op_domain = ""
    body: Any

    def need_context(self) -> bool:
        """A body reads names of the graph around it."""
        return True

    def _run_once(self, values: Sequence[Value], context: Names | None, attributes: Names | None) -> list[Value]:
        """The outputs of the body: its own inputs hide outer values of the same name."""
        named = dict(zip(self.body.input_names, values, strict=False))
        outputs: list[Value] = self.body.run(None, {**(context or {}), **named}, attributes=attributes)
        return outputs


class Loop(_Iterated):
    """Loop: the rows that it collects are stacked along a new first axis."""

    def _run(
        self, trips: Any, condition: Any, *states: Value, context: Names | None = None, attributes: Names | None = None,
        **_: Any,
    ) -> tuple[Value, ...]:  # fmt: skip
        current = list(states)
        collected: list[list[Value]] = [[] for _ in self.body.output_names[1 + len(states) :]]
        goes_on = condition is None or bool(np.asarray(condition).all())
        turn = 0
        while goes_on and (trips is None or turn < int(np.asarray(trips).reshape(()))):
            outputs = self._run_once([np.asarray(turn, np.int64), np.asarray(True), *current], context, attributes)
            goes_on = bool(np.asarray(outputs[0]).all())
            current = outputs[1 : 1 + len(current)]
            for rows, row in zip(collected, outputs[1 + len(current) :], strict=True):
                rows.append(row)
            turn += 1
        types = self.body.output_types[1 + len(states) :]
        return (*current, *(self._stack(rows, type_) for rows, type_ in zip(collected, types, strict=True)))

    def _stack(self, rows: Sequence[Value], type_: onnx.TypeProto) -> Value:
        """The rows. If there are none, they have the shape that the body declares, as in ONNX Runtime: 0 stands for
        an unknown dimension, and without a declared shape there are no others."""
        if rows:
            return np.stack(rows)
        sizes = [size.dim_value for size in type_.tensor_type.shape.dim]
        return widen_value(np.empty([0, *sizes], onnx.helper.tensor_dtype_to_np_dtype(type_.tensor_type.elem_type)))


class Scan(_Iterated):
    """Scan since opset 9, in any direction along any axis."""

    num_scan_inputs: int

    def _run(
        self, *operands: Value, context: Names | None = None, attributes: Names | None = None, **settings: Any
    ) -> tuple[Value, ...]:
        if self.run_params["opsets"].get("", 9) < 9:
            raise NotImplementedError("Scan of opset 8 has no float64 kernel")
        count = self.num_scan_inputs
        current, scanned = list(operands[:-count]), operands[-count:]

        def setting(name: str, number: int) -> int:
            values = settings.get(name) or ()
            return int(values[number]) if number < len(values) else 0

        rows = [np.moveaxis(value, setting("scan_input_axes", n), 0) for n, value in enumerate(scanned)]
        rows = [row[::-1] if setting("scan_input_directions", n) else row for n, row in enumerate(rows)]
        collected: list[list[Value]] = [[] for _ in self.body.output_names[len(current) :]]
        for elements in zip(*rows, strict=True):
            outputs = self._run_once([*current, *elements], context, attributes)
            current = outputs[: len(current)]
            for parts, part in zip(collected, outputs[len(current) :], strict=True):
                parts.append(part)
        if collected and not collected[0]:
            raise NotImplementedError("ONNX Runtime runs no Scan over nothing")
        results = []
        for number, parts in enumerate(collected):
            ordered = parts[::-1] if setting("scan_output_directions", number) else parts
            results.append(np.stack(ordered, axis=setting("scan_output_axes", number)))
        return (*current, *results)


Array = NDArray[Any]

_CACHED_BYTES = 1 << 18
"""Bytes of an array that stay in a processor's second-level cache beside two others."""


@dataclass(frozen=True)
class Windows:
    """The windows along one spatial axis of ``size`` elements: window i starts at ``i * stride - before``."""

    size: int
    kernel: int
    stride: int
    dilation: int
    before: int
    behind: int
    count: int

    def inside(self, index: int) -> slice:
        """The elements of a window that lie on the data."""
        start = index * self.stride - self.before
        stop = start + (self.kernel - 1) * self.dilation + 1
        if start < 0:
            start %= self.dilation
        return slice(start, max(start, min(stop, self.size)), self.dilation)

    def count_elements(self, with_padding: bool) -> Array:
        """The number of elements of each window that an average counts."""
        low, high = (-self.before, self.size + self.behind) if with_padding else (0, self.size)
        starts = np.arange(self.count) * self.stride - self.before
        places = starts[:, None] + np.arange(self.kernel) * self.dilation
        return np.asarray(((places >= low) & (places < high)).sum(axis=1))


def windows_of(
    op: str, spatial: Sequence[int], kernel: Sequence[int], attributes: dict[str, Any]
) -> list[Windows]:
    """The windows that the attributes of a convolution or pool give on an image, one per spatial axis."""
    rank = len(spatial)
    strides = attributes.get("strides") or [1] * rank
    dilations = attributes.get("dilations") or [1] * rank
    pads = attributes.get("pads") or [0] * (2 * rank)
    automatic = attributes.get("auto_pad") or "NOTSET"
    ceil = bool(attributes.get("ceil_mode"))
    axes = zip(spatial, kernel, strides, dilations, zip(pads[:rank], pads[rank:], strict=True), strict=True)
    return [_windows(op, *axis, automatic, ceil) for axis in axes]


def _windows(
    op: str, size: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int], automatic: str, ceil: bool
) -> Windows:
    extent = (kernel - 1) * dilation + 1
    before, behind = (0, 0) if automatic == "VALID" else pads
    if automatic in ("SAME_UPPER", "SAME_LOWER"):
        total = (-(-size // stride) - 1) * stride + reach_in_padding(op, kernel, dilation) - size
        total = total if op in WINDOWED_POOLS else max(0, total)
        before = int(total / 2) if automatic == "SAME_UPPER" else int((total + 1) / 2)
        behind = total - before
    room = size + before + behind - extent
    count = max(0, (-(-room // stride) if ceil else int(room / stride)) + 1)  # a window larger than the data is clipped
    if ceil and (count - 1) * stride >= size + before:
        count -= 1
    return Windows(size, kernel, stride, dilation, before, behind, count)


def _pool(data: Array, windows: Sequence[Windows], reduce: Callable[[Array, int], Array]) -> Array:
    """Maximum and sum over a box are those over its first axis, then its second, and so on."""
    for axis, along in enumerate(windows, start=2):
        before = (slice(None),) * axis
        parts = [reduce(data[(*before, along.inside(index))], axis) for index in range(along.count)]
        data = np.stack(parts, axis=axis) if parts else data[(*before, slice(0))]
    return data


class MaxPool(OpRun):
    """MaxPool without its optional second output."""

    op_domain = ""

    def _run(self, x: Array, **attributes: Any) -> tuple[Array]:
        if len(self.onnx_node.output) > 1:
            raise NotImplementedError("MaxPool with indices has no kernel in numpy")
        windows = windows_of(self.onnx_node.op_type, x.shape[2:], attributes["kernel_shape"], attributes)
        least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
        return (_pool(x, windows, lambda part, axis: np.asarray(part.max(axis=axis, initial=least))),)


class AveragePool(OpRun):
    """AveragePool: elements behind the declared padding (``ceil_mode``) never count."""

    op_domain = ""

    def _run(self, x: Array, **attributes: Any) -> tuple[Array]:
        windows = windows_of(self.onnx_node.op_type, x.shape[2:], attributes["kernel_shape"], attributes)
        total = _pool(x, windows, lambda part, axis: np.asarray(part.sum(axis=axis)))
        for axis, along in enumerate(windows, start=2):
            counts = along.count_elements(bool(attributes.get("count_include_pad")))
            total = total / counts.reshape((-1,) + (1,) * (x.ndim - axis - 1))
        return (total.astype(x.dtype),)


class LpPool(OpRun):
    """LpPool: the p-norm of the elements of each window."""

    op_domain = ""

    def _run(self, x: Array, **attributes: Any) -> tuple[Array]:
        windows = windows_of(self.onnx_node.op_type, x.shape[2:], attributes["kernel_shape"], attributes)
        power = attributes.get("p") or 2
        total = _pool(np.abs(x) ** power, windows, lambda part, axis: np.asarray(part.sum(axis=axis)))
        return (total ** (1 / power),)


class GlobalLpPool(OpRun):
    """GlobalLpPool: the p-norm of all pixels of a channel."""

    op_domain = ""

    def _run(self, x: Array, p: int = 2) -> tuple[Array]:
        total = (np.abs(x) ** p).sum(axis=tuple(range(2, x.ndim)), keepdims=True)
        return (np.asarray(total ** (1 / p)),)


class Conv(OpRun):
    """Convolution: one product per kernel element if depthwise, else one matrix product (im2col by slices)."""

    op_domain = ""

    def _run(self, x: Array, w: Array, b: Array | None = None, **attributes: Any) -> tuple[Array]:
        windows = windows_of(self.onnx_node.op_type, x.shape[2:], w.shape[2:], attributes)
        groups = int(attributes.get("group") or 1)
        extent = [along.count for along in windows]
        if any(along.before or along.behind for along in windows):
            x = np.pad(x, [(0, 0), (0, 0), *((along.before, along.behind) for along in windows)])
        taps = [_tap(x, windows, offset) for offset in np.ndindex(*w.shape[2:])]
        if w.shape[1] == 1 and w.shape[0] == groups:
            result = _sum_of_products(w.reshape(groups, -1).T.reshape(-1, groups, *(1 for _ in windows)), taps)
        else:
            columns = np.empty((x.shape[0], groups, len(taps), w.shape[1], *extent), x.dtype)
            for index, tap in enumerate(taps):
                columns[:, :, index] = tap.reshape(x.shape[0], groups, w.shape[1], *extent)
            weights = w.reshape(groups, w.shape[0] // groups, w.shape[1], len(taps)).swapaxes(2, 3)
            depth = len(taps) * w.shape[1]
            matrix = columns.reshape(x.shape[0], groups, depth, math.prod(extent))
            result = (weights.reshape(*weights.shape[:2], depth) @ matrix).reshape(x.shape[0], w.shape[0], *extent)
        if b is not None:
            result += b.reshape(-1, *(1 for _ in windows))
        return (result,)


def _sum_of_products(factors: Array, parts: Sequence[Array]) -> Array:
    """The sum over all parts, each times its factor for every channel; a few channels at a time stay in the cache."""
    total: Array = np.zeros(parts[0].shape, parts[0].dtype)
    step = max(1, _CACHED_BYTES * total.shape[1] // max(1, total.nbytes))
    for first in range(0, total.shape[1], step):
        channels = (slice(None), slice(first, first + step))
        block = total[channels]
        product = np.empty_like(block)
        for factor, part in zip(factors, parts, strict=True):
            block += np.multiply(factor[first : first + step], part[channels], out=product)
    return total


def _tap(padded: Array, windows: Sequence[Windows], offset: Sequence[int]) -> Array:
    """The data under one kernel element of every window."""
    starts = [at * along.dilation for at, along in zip(offset, windows, strict=True)]
    spans = [along.stride * (along.count - 1) + 1 for along in windows]
    steps = zip(starts, spans, windows, strict=True)
    places: list[Any] = [slice(start, start + span, along.stride) for start, span, along in steps]
    return np.asarray(padded[(Ellipsis, *places)])


class BatchNormalization(OpRun):
    """BatchNormalization for inference, in every operator version."""

    op_domain = ""

    def _run(self, x: Array, scale: Array, b: Array, mean: Array, var: Array, **attributes: Any) -> tuple[Array]:
        if attributes.get("training_mode") or len(self.onnx_node.output) > 1:
            raise NotImplementedError("BatchNormalization for training has no float64 kernel")
        epsilon = attributes.get("epsilon")
        factor = scale / np.sqrt(var + (1e-5 if epsilon is None else epsilon))
        shape = (-1, *(1 for _ in x.shape[2:]))
        result = (x - mean.reshape(shape)) * factor.reshape(shape)
        result += b.reshape(shape)
        return (result,)


class Softmax(OpRun):
    """Softmax; before opset 13 over all the axes from the given one on."""

    op_domain = ""

    def _run(self, x: Array, **attributes: Any) -> tuple[Array]:
        flattens = self.run_params["opsets"].get("", 13) < 13
        # The evaluator fills in the default of the current version.
        given = any(attribute.name == "axis" for attribute in self.onnx_node.attribute)
        axis = attributes["axis"] if given else (1 if flattens else -1)
        axes = tuple(range(axis % x.ndim, x.ndim)) if flattens else (axis,)
        powers = np.exp(x - x.max(axis=axes, keepdims=True))
        return ((powers / powers.sum(axis=axes, keepdims=True)).astype(x.dtype),)


class Erf(OpRun):
    """The error function in double."""

    op_domain = ""

    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        from scipy.special import erf  # here, since the import takes longer than most verifications

        return (np.asarray(erf(x)),)


class Resize(op_resize.Resize):
    """Resize by its meaning for rules, or by onnx if rules do not cover it (cubic, regions, antialiasing)."""

    def _run(self, *inputs: Any, **attributes: Any) -> tuple[Array]:
        from ....ir.operators import Unsupported, evaluate  # it takes a while, and most models have no Resize

        x, _, *extents = inputs
        named = zip(("scales", "sizes"), extents, strict=False)
        settings = attributes | {name: each.tolist() for name, each in named if each is not None and each.size}
        mode = settings.pop("mode") or "nearest"
        given = {name: value for name, value in settings.items() if value is not None}
        try:
            # Some attributes are floats of numpy.
            return (np.asarray(evaluate("Resize", (x, mode, json.dumps(given, default=float)))),)
        except Unsupported:
            resized: tuple[Array] = super()._run(*inputs, **attributes)
            return resized


class Upsample(OpRun):
    """Upsample: a Resize whose places are multiples of the scales."""

    op_domain = ""

    def _run(self, x: Array, scales: Any = None, mode: str | None = None, **attributes: Any) -> tuple[Array]:
        from ....ir.operators import evaluate  # it takes a while, and most models have no Upsample

        factors = np.asarray(attributes["scales"] if scales is None else scales, np.float64).tolist()
        if not x.size:
            return (np.zeros([int(size * factor) for size, factor in zip(x.shape, factors, strict=True)]),)
        settings = {"scales": factors, "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return (np.asarray(evaluate("Resize", (x, mode or "nearest", json.dumps(settings)))),)


class OneHot(op_one_hot.OneHot):
    """OneHot, also of a depth that is a list of one number."""

    def _run(self, indices: Array, depth: Any, values: Array, axis: int = -1) -> tuple[Array]:
        run: Callable[..., tuple[Array]] = super()._run
        return run(indices, np.asarray(depth).reshape(()), values, axis=axis)


class MelWeightMatrix(op_mel_weight_matrix.MelWeightMatrix):
    """MelWeightMatrix, also of operands that are lists of one number."""

    def _run(self, *numbers: Any, **attributes: Any) -> tuple[Array]:
        run: Callable[..., tuple[Array]] = super()._run
        return run(*(np.asarray(number).reshape(()) for number in numbers), **attributes)


class GatherElements(OpRun):
    """GatherElements, also from axes of more than 64 elements and by indices of fewer rows than the data have."""

    op_domain = ""

    def _run(self, x: Array, indices: Array, axis: int = 0) -> tuple[Array]:
        axis %= x.ndim
        read = tuple(slice(None) if at == axis else slice(size) for at, size in enumerate(indices.shape))
        return (np.take_along_axis(x[read], indices.astype(np.int64), axis),)


class GatherND(OpRun):
    """GatherND without a loop over its indices in Python."""

    op_domain = ""

    def _run(self, x: Array, indices: Array, batch_dims: int = 0) -> tuple[Array]:
        batches = x.shape[:batch_dims]
        rank = indices.ndim - 1 - batch_dims
        grids: Sequence[Array] = np.indices(batches, sparse=True)
        before = (grid[(..., *(None,) * rank)] for grid in grids)
        return (np.asarray(x[(*before, *np.moveaxis(indices, -1, 0))]),)


class LRN(OpRun):
    """LRN: onnx's own takes the number of samples for that of channels."""

    op_domain = ""

    def _run(self, x: Array, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> tuple[Array]:
        before, channels = (size - 1) // 2, x.shape[1]
        padded = np.pad(np.square(x), [(0, 0), (before, size - 1 - before), *[(0, 0)] * (x.ndim - 2)])
        total = sum(padded[:, at : at + channels] for at in range(size))
        return (x / (bias + alpha / size * total) ** beta,)


class Mean(OpRun):
    """Mean of operands that are broadcast against each other: onnx's own adds all to the first one."""

    op_domain = ""

    def _run(self, *operands: Array) -> tuple[Array]:
        total: Array = sum(operands[1:], start=operands[0])
        return (np.asarray(total / len(operands)),)


class BitCast(OpRun):
    """BitCast of floats that stand in for narrower ones, to and from integers of their own width."""

    op_domain = ""

    def _run(self, x: Array, to: int) -> tuple[Array]:
        target = onnx.helper.tensor_dtype_to_np_dtype(to)
        is_widened = x.dtype == np.float64 and target.itemsize in (2, 4)
        cast = (x.astype(f"f{target.itemsize}") if is_widened else x).view(target)
        return (cast.astype(np.float64) if target.kind == "f" else cast,)


class Forget(OpRun):
    """No ONNX operator: it drops values that no later node of the main graph uses."""

    op_domain = "eqfuse.oracle"
    names: list[str]

    def need_context(self) -> bool:
        """The evaluator gives it the dictionary of all values."""
        return True

    def run(self, *_: Any, context: Any = None, **__: Any) -> tuple[()]:
        for name in self.names:
            context.pop(name, None)
        return ()

    def _run(self, *_: Any, **__: Any) -> tuple[()]:
        return ()


def forget_dead_values(graph: onnx.GraphProto, kept: Iterable[str] = ()) -> None:
    """Put a Forget behind each node after which some values, other than `kept`, are no longer used."""
    living = {"", *kept, *(output.name for output in graph.output)}
    nodes: list[onnx.NodeProto] = []
    for node in reversed([node for node in graph.node if node.domain != Forget.op_domain]):
        dead = {*names_read(node), *node.output} - living
        if dead:
            nodes.append(onnx.helper.make_node("Forget", (), (), domain=Forget.op_domain, names=sorted(dead)))
            living |= dead
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(reversed(nodes))


def contributed_kernels(model: onnx.ModelProto) -> list[type[OpRun]]:
    """The operators of the other domains that the model imports, by their rows in the operator table."""
    if all(imported.domain in ("", "ai.onnx") for imported in model.opset_import):
        return []
    from ....ir.operators import OPERATORS  # it takes a while, and most models import none

    domains = {imported.domain for imported in model.opset_import}
    return [_contributed_kernel(row) for row in OPERATORS.values() if row.domain and row.domain in domains]


def _contributed_kernel(row: OperatorSchema) -> type[OpRun]:
    from ....ir.operators import Attribute, evaluate

    def run(_: OpRun, *operands: Array, **attributes: Any) -> tuple[Array, ...]:
        tensors = iter((*operands, *[None] * len(row.operands)))
        arguments = [
            literal_of(a, attributes.get(a.name)) if isinstance(a, Attribute) else next(tensors) for a in row.arguments
        ]
        value = evaluate(row.name, arguments)
        return value if isinstance(value, tuple) else (value,)

    return type(row.op_type, (OpRun,), {"op_domain": row.domain, "_run": run})


def literal_of(attribute: Attribute, value: Any) -> Any:
    """An attribute as the operator table takes it, its default if the node has none."""
    if value is None:
        return attribute.default
    return tuple(value) if isinstance(value, list) else value


ORACLE_OPERATORS: tuple[type[OpRun], ...] = (
    AveragePool, BatchNormalization, BitCast, Conv, DeformConv, Erf, GatherElements, GatherND, GlobalLpPool, GridSample,
    LRN, Loop, LpPool, MaxPool, Mean, MelWeightMatrix, OneHot, Resize, Scan, Softmax, Upsample,
)  # fmt: skip
