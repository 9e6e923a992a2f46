"""Fourier transforms of known lengths as products of matrices and as convolutions with constant waves.

A discrete transform multiplies each pair of real and imaginary part with a matrix of cosines and sines:

    Y[k] = sum over n of X[n] * exp(-2 pi i n k / N)
 => Y: MatMul of X as [..., 2 N] and W[2 N, 2 K]

A long one, of N = P * Q elements, is P transforms of Q behind Q of P, in the order of Bailey's four steps; the factors
between them (twiddles) stand in the second matrices, one for each of the P results of the first:

    Y[r + P s] = sum over q of exp(-2 pi i q (r + P s) / N) * T[r, q]
       T[r, q] = sum over p of exp(-2 pi i p r / P) * X[Q p + q]
 => X as [Q, 2 P] times W[2 P, 2 P], and of that each of P rows [2 Q] times V[r][2 Q, 2 Q]

A short-time transform is a convolution with waves that are as long as a frame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from ...ir.types import TensorType
from ..onnx.nodes import attribute_of, stored_input

_LONGEST_FRAME = 2048
"""The most elements of a frame of an STFT whose waves are constants: 17 MB of them."""
_LONGEST_PRODUCT = 256
"""The most elements of a transform that is one product: 1 MB of waves."""
_MOST_WAVES = 1 << 22
"""The most numbers of the matrices of a long transform: 17 MB of them."""
_AXES_INPUT = 13
"""The opset since which Constant takes lists of integers, and all operators have the forms used here."""
_AXIS_INPUT = 20
"""The opset since which the axis of a DFT is an input, by default the last one of the signal."""
_COMPLEX = 2
"""Parts of a complex number, which the last axis has."""

Array = np.ndarray[Any, Any]


def stft_function(
    node: ir.Node, opset: int, types: Mapping[str, TensorType], domain: str
) -> onnx.FunctionProto | None:
    """A short-time Fourier transform of real numbers as a convolution: ``Y[f, k] = sum of X[f*s + t] * W[k, t]``.

    None if step, window or the length of a frame is computed, and for signals of complex numbers. A signal without its
    last axis is not ONNX, but PyTorch writes it and ONNX Runtime takes it.
    """
    signal = types.get(node.inputs[0].name or "") if node.inputs[0] is not None else None
    step, window, length = (stored_input(node, place) for place in (1, 2, 3))
    given = (len(node.inputs) > place and node.inputs[place] is not None for place in (2, 3))
    is_known = all((array is not None) == there for array, there in zip((window, length), given, strict=True))
    if step is None or not is_known or (window is None and length is None):
        return None
    count = int(length.item()) if length is not None else window.size if window is not None else 0
    if signal is None or signal.shape is None or opset < _AXES_INPUT:
        return None
    has_parts = len(signal.shape) == 3
    if signal.shape[2:] != (1,) if has_parts else len(signal.shape) != 2:
        return None
    if not 0 < count <= _LONGEST_FRAME or step.item() < 1:
        return None
    bins = count // 2 + 1 if attribute_of(node, "onesided", 1) else count
    weighting = np.ones(count) if window is None else np.pad(window.ravel(), (0, count))[:count].astype(np.float64)
    roots = _roots(np.outer(np.arange(bins), np.arange(count)), count)
    waves = (np.stack([roots.real, roots.imag]) * weighting).reshape(2 * bins, 1, count)
    steps = [
        _stored("waves", waves.astype(signal.dtype)),
        _integers("parts", [0, 2, bins, -1]),
        *_one_channel(has_parts),
        helper.make_node("Conv", ["row", "waves"], ["sums"], strides=[int(step.item())]),
        helper.make_node("Reshape", ["sums", "parts"], ["split"]),
        helper.make_node("Transpose", ["split"], ["y"], perm=[0, 3, 2, 1]),
    ]
    names = ["signal", "step", "window", "length"][: len(node.inputs)]
    return helper.make_function(domain, "STFT", names, ["y"], steps, [helper.make_opsetid("", opset)])


def _one_channel(has_parts: bool) -> list[onnx.NodeProto]:
    """From ``signal`` [batch, length] or [batch, length, 1] to ``row`` [batch, 1, length]."""
    if has_parts:
        return [helper.make_node("Transpose", ["signal"], ["row"], perm=[0, 2, 1])]
    return [_integers("middle", [1]), helper.make_node("Unsqueeze", ["signal", "middle"], ["row"])]


def dft_function(
    node: ir.Node, opset: int, types: Mapping[str, TensorType], domain: str
) -> onnx.FunctionProto | None:
    """A discrete Fourier transform of a known length as products with constant waves.

    None if the length or the axis is computed, for lengths that have no two factors of a fitting size, and for the
    inverse of one half of a spectrum.
    """
    type_ = types.get(node.inputs[0].name or "") if node.inputs[0] is not None else None
    if type_ is None or type_.shape is None or len(type_.shape) < 3:
        return None
    axis = _axis_of(node, opset, len(type_.shape))
    inverse, onesided = attribute_of(node, "inverse", 0), attribute_of(node, "onesided", 0)
    if axis is None or (inverse and onesided):
        return None
    has_length = len(node.inputs) > 1 and node.inputs[1] is not None
    length, elements, parts = stored_input(node, 1), type_.shape[axis], type_.shape[-1]
    if (has_length and length is None) or not isinstance(elements, int) or parts not in (1, _COMPLEX):
        return None
    count = int(length.item()) if length is not None else elements
    if elements < 1 or count < elements:
        return None
    sign, scale = (1, 1 / count) if inverse else (-1, 1.0)
    rank, last = len(type_.shape), len(type_.shape) - 2
    order = [*(i for i in range(rank) if i not in (axis, rank - 1)), axis, rank - 1]
    bins = count // 2 + 1 if onesided else count
    if count <= _LONGEST_PRODUCT:
        waves = _waves(_roots(np.outer(np.arange(elements), np.arange(bins)), count, sign), parts) * scale
        transform = _product(last, waves.astype(type_.dtype), bins)
    elif count == elements and (first := _factor(count)) is not None:
        transform = _four_steps(last, first, count // first, parts, sign, scale, bins, type_.dtype)
    else:
        return None
    steps = [
        helper.make_node("Transpose", ["x"], ["behind"], perm=order), *transform,
        helper.make_node("Transpose", ["transformed"], ["y"], perm=[order.index(i) for i in range(rank)]),
    ]  # fmt: skip
    names = ["x", "length", "axis"][: len(node.inputs)]
    return helper.make_function(domain, "DFT", names, ["y"], steps, [helper.make_opsetid("", opset)])


def _axis_of(node: ir.Node, opset: int, rank: int) -> int | None:
    """The axis of the signal; None if it is computed, or is not one of the signal's."""
    axis: int | None = attribute_of(node, "axis", 1)
    if opset >= _AXIS_INPUT:
        stored, is_given = stored_input(node, 2), len(node.inputs) > 2 and node.inputs[2] is not None
        axis = (None if stored is None else int(stored.item())) if is_given else -2
    axis = axis + rank if axis is not None and axis < 0 else axis
    return axis if axis is not None and 0 < axis < rank - 1 else None


def _factor(count: int) -> int | None:
    """The larger of the two factors of a length that are nearest to each other; None if matrices get too large."""
    first = next(f for f in range(int(np.ceil(np.sqrt(count))), count + 1) if count % f == 0)
    waves = 4 * first * first + 4 * count * (count // first)
    return first if waves <= _MOST_WAVES else None


def _roots(turns: Array, count: int, sign: int = -1) -> Array:
    """``exp(sign * 2 pi i turns / count)``."""
    return np.asarray(np.exp(sign * 2j * np.pi * (turns % count) / count))


def _waves(roots: Array, parts: int) -> Array:
    """The real matrix [..., parts N, 2 K] that multiplies rows of N numbers, of one part or two, with complex roots
    [..., N, K]."""
    real, imaginary = np.stack([roots.real, roots.imag], -1), np.stack([-roots.imag, roots.real], -1)
    rows = np.stack([real, imaginary][:parts], -3)
    *batch, elements, _, bins, _ = rows.shape
    return rows.reshape(*batch, elements * parts, bins * _COMPLEX)


def _product(last: int, waves: Array, bins: int) -> list[onnx.NodeProto]:
    """From ``behind`` [..., N, parts] to ``transformed`` [..., K, 2]; ``last`` is the number of axes in front of N."""
    return [
        *_reshaped("behind", "joined", [0] * last + [waves.shape[0]], "row"),
        _stored("waves", waves),
        helper.make_node("MatMul", ["row", "waves"], ["sums"]),
        *_reshaped("sums", "apart", [0] * last + [bins, _COMPLEX], "transformed"),
    ]


def _four_steps(
    last: int, first: int, second: int, parts: int, sign: int, scale: float, bins: int, dtype: str
) -> list[onnx.NodeProto]:
    """The same for a length of two factors."""
    same, outer = [0] * last, list(range(last))
    waves = _waves(_roots(np.outer(np.arange(first), np.arange(first)), first, sign), parts)
    r, q, s = np.ogrid[:first, :second, :second]
    others = _waves(_roots(q * (r + first * s), first * second, sign), _COMPLEX) * scale
    others = others.reshape(first, *[1] * (last - 1), second * _COMPLEX, second * _COMPLEX)
    make = helper.make_node
    return [
        *_reshaped("behind", "grid", [*same, first, second, parts], "rows"),
        make("Transpose", ["rows"], ["columns"], perm=[*outer, last + 1, last, last + 2]),
        *_reshaped("columns", "joined", [*same, second, first * parts], "row"),
        _stored("waves", waves.astype(dtype)),
        make("MatMul", ["row", "waves"], ["sums"]),
        *_reshaped("sums", "apart", [*same, second, first, _COMPLEX], "partly"),
        make("Transpose", ["partly"], ["in_front"], perm=[last + 1, *outer, last, last + 2]),
        *_reshaped("in_front", "pairs", [0, *same, second * _COMPLEX], "others"),
        _stored("twiddles", others.astype(dtype)),
        make("MatMul", ["others", "twiddles"], ["turned"]),
        *_reshaped("turned", "again", [0, *same, second, _COMPLEX], "spectra"),
        make("Transpose", ["spectra"], ["ordered"], perm=[*(i + 1 for i in outer), last + 1, 0, last + 2]),
        *_reshaped("ordered", "whole", [*same, first * second, _COMPLEX], "full"),
        *_keep_bins(last, first * second, bins),
    ]


def _keep_bins(axis: int, count: int, bins: int) -> Sequence[onnx.NodeProto]:
    if bins == count:
        return [helper.make_node("Identity", ["full"], ["transformed"])]
    bounds = [_integers(name, [value]) for name, value in (("start", 0), ("end", bins), ("at", axis))]
    return [*bounds, helper.make_node("Slice", ["full", "start", "end", "at"], ["transformed"])]


def _reshaped(source: str, sizes_name: str, sizes: Sequence[int], result: str) -> Sequence[onnx.NodeProto]:
    return [_integers(sizes_name, sizes), helper.make_node("Reshape", [source, sizes_name], [result])]


def _stored(name: str, array: Array) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array, name))


def _integers(name: str, values: Sequence[int]) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value_ints=list(values))
