"""ONNX's node tests, and variants of each: negative axes, long axes, no elements, no axes, numbers as lists of one.

A variant is of use if ONNX Runtime runs it; many are not, as their sizes do not fit together.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

_LONG = 40
"""Times that an axis is repeated: axes of two elements then have more than 64."""
_AXES = ("axis", "axes")
"""Names of attributes and inputs that are axes, which may be negative."""


@dataclass(frozen=True)
class Call:
    """A model with one node in most cases, and inputs for it; `label` says which variant it is."""

    name: str
    label: str
    model: onnx.ModelProto
    feeds: Mapping[str, Any]

    @property
    def operator(self) -> str:
        """The operator of its last node."""
        return str(self.model.graph.node[-1].op_type)


@cache
def node_calls() -> tuple[Call, ...]:
    """Every node test of the installed onnx. Takes some seconds: it computes what each one expects."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tuple(_call(test) for test in collect_testcases(None))


def _call(test: Any) -> Call:
    feeds = zip((value.name for value in test.model.graph.input), map(_plain, test.data_sets[0][0]), strict=True)
    return Call(test.name, "as written", test.model, dict(feeds))


def _plain(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def variants(call: Call) -> Iterator[Call]:
    """The call with other axes and other sizes."""
    if not call.feeds or not all(isinstance(value, np.ndarray) for value in call.feeds.values()):
        return
    yield from _negative_axes(call)
    for name in (name for name, value in call.feeds.items() if value.size == 1 and value.ndim < 2):
        shape = (1,) if call.feeds[name].ndim == 0 else ()
        yield _resized(call, [name], f"{name} with {len(shape)} axes", lambda a, to=shape: a.reshape(to))
    first = next(iter(call.feeds))
    lone, every = [first], [name for name in call.feeds if name not in _AXES]
    rank = call.feeds[first].ndim
    for names in [lone] if lone == every else [lone, every]:
        for axis in range(rank):
            yield _resized(call, names, f"long axis {axis} of {len(names)} inputs", lambda a, at=axis: _repeat(a, at))
            yield _resized(call, names, f"no elements on axis {axis} of {len(names)} inputs",
                           lambda a, at=axis: a.take([], at) if at < a.ndim else a)  # fmt: skip
        yield _resized(call, names, f"{len(names)} inputs without axes", lambda a: a.reshape(-1)[:1].reshape(()))


def _repeat(array: NDArray[Any], axis: int) -> NDArray[Any]:
    return np.repeat(array, _LONG, axis) if axis < array.ndim and array.shape[axis] > 1 else array


def _negative_axes(call: Call) -> Iterator[Call]:
    model = _copy(call.model)
    rank = next(iter(call.feeds.values())).ndim
    node, feeds, is_changed = model.graph.node[-1], dict(call.feeds), False
    for attribute in node.attribute:
        if attribute.name in _AXES:
            is_changed = True
            attribute.i -= rank if attribute.i >= 0 else 0
            attribute.ints[:] = [axis - rank if axis >= 0 else axis for axis in attribute.ints]
    for name in _AXES:
        if name in feeds:
            is_changed = True
            feeds[name] = np.where(feeds[name] >= 0, feeds[name] - rank, feeds[name]).astype(feeds[name].dtype)
    if is_changed:
        yield Call(call.name, "negative axes", model, feeds)


def _resized(call: Call, names: list[str], label: str, resize: Any) -> Call:
    feeds = {name: resize(value) if name in names and value.size else value for name, value in call.feeds.items()}
    model = _copy(call.model)
    for value in (*model.graph.input, *model.graph.output):
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    del model.graph.value_info[:]
    return Call(call.name, label, model, feeds)


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy
