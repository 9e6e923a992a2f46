"""Sparse constants as dense ones, as ONNX Runtime takes them: ``message -> message``."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import onnx
from onnx import numpy_helper

from ...support.errors import ModelError

_MOST_ELEMENTS = 1 << 29
"""Elements of a dense tensor at most, 2 GiB of float32: a few bytes of a file must not fill the memory."""


def with_dense_constants(model: onnx.ModelProto, label: str) -> onnx.ModelProto:
    """The model with dense initializers and attributes for sparse ones; itself where it has none.

    Raises ModelError for a sparse tensor that is too large, or whose indices make no sense.
    """
    if not any(graph.sparse_initializer or any(_sparse_constants(graph)) for graph in _graphs(model.graph)):
        return model
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for graph in _graphs(result.graph):
        graph.initializer.extend(_dense(sparse, label) for sparse in graph.sparse_initializer)
        del graph.sparse_initializer[:]
        for attribute in _sparse_constants(graph):
            tensor = _dense(attribute.sparse_tensor, label)
            attribute.CopyFrom(onnx.helper.make_attribute("value", tensor))
    return result


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
                yield from _graphs(body)


def _sparse_constants(graph: onnx.GraphProto) -> Iterator[onnx.AttributeProto]:
    return (a for node in graph.node if node.op_type == "Constant" for a in node.attribute if a.name == "sparse_value")


def _dense(sparse: onnx.SparseTensorProto, label: str) -> onnx.TensorProto:
    name, shape = sparse.values.name, tuple(sparse.dims)
    where = f"{label}: sparse constant {name!r}"
    if math.prod(shape) > _MOST_ELEMENTS:
        size = "x".join(map(str, shape))
        raise ModelError(f"{where}: its shape {size} is too large for a dense tensor; store it in another way")
    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    dense = np.zeros(shape, values.dtype)
    if indices.shape == (len(values), len(shape)) and indices.ndim == 2:
        places = tuple(indices.T)
    elif indices.shape == values.shape:
        places = np.unravel_index(indices, shape) if _are_within(indices, dense.size) else ()
    else:
        places = ()
    if len(places) != len(shape) or not all(map(_are_within, places, shape)):
        raise ModelError(f"{where}: its indices do not fit its shape and values; mend the model or export it again")
    dense[places] = values
    return numpy_helper.from_array(dense, name)


def _are_within(indices: np.ndarray[tuple[int, ...], np.dtype[np.int64]], size: int) -> bool:
    return bool(((indices >= 0) & (indices < size)).all())
