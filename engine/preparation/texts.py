"""Texts as numbers, for code that holds numbers alone: ``Model -> Model``.

    Y = Gather(["low", "high"], I)  =>  Y = Gather([0, 1], I)

Classifiers of scikit-learn name their classes. Each text that a model stores gets a number, the same one everywhere,
and an output that was text gives numbers of texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from ...ir.operators import VIEWS
from ..onnx.map_outputs import ML_DOMAIN
from ..onnx.model import Model, elements
from ..onnx.wellformed import ONNX_DOMAINS
from ..shapes.inference import infer

Array = np.ndarray[Any, Any]
_TEXT = ir.DataType.STRING
_MOVERS = VIEWS | {"Concat", "Constant", "Equal", "Expand", "Gather", "Slice", "Tile", "Transpose", "Where"}
"""ONNX's operators that do with numbers what they do with texts."""
_LABELS: Mapping[str, Mapping[str, str]] = {
    "ArrayFeatureExtractor": {},
    "LabelEncoder": {
        "keys_strings": "keys_int64s", "values_strings": "values_int64s", "default_string": "default_int64",
    },
    "LinearClassifier": {"classlabels_strings": "classlabels_ints"},
    "SVMClassifier": {"classlabels_strings": "classlabels_ints"},
    "TreeEnsembleClassifier": {"classlabels_strings": "classlabels_int64s"},
}  # fmt: skip
"""The operators of `ML_DOMAIN` that take texts, and the attributes that hold numbers in the place of texts."""
_CONSTANTS = {"value_string": "value_int", "value_strings": "value_ints"}
_UNKNOWN = "_Unused"
"""What a LabelEncoder makes of what it does not know, if nothing says it."""
_KEY = "eqfuse.texts"
"""In the notes on a graph in memory: the texts of an output, by its name."""


def number_texts(model: Model) -> Model:
    """The model with numbers in the place of texts; itself if it has none, or takes, makes or changes any."""
    types = infer(model).types
    texts = {name for name, type_ in types.items() if type_.dtype == "string"}
    given = {value.name for value in model.graph.inputs} - set(model.graph.initializers)
    touched = [node for node in model.graph if _names(node) & texts or _list_texts(node)]
    if not touched or texts & given or not all(map(_takes_numbers, touched)):
        return model
    clone = model.ir.clone()
    numbers: dict[str, int] = {}

    def number(words: Sequence[str]) -> list[int]:
        return [numbers.setdefault(word, len(numbers)) for word in words]

    names = {node.outputs[0].name for node in touched}
    for node in clone.graph:
        if node.outputs[0].name in names:
            _number_attributes(node, number)
    for value in clone.graph.initializers.values():
        if value.name in texts and value.const_value is not None:
            value.const_value = ir.tensor(_number_tensor(value.const_value, number), name=value.name)
    for value in _values(clone.graph):
        if value.name in texts:
            value.type = ir.TensorType(ir.DataType.INT64)
    outputs = [value.name for value in clone.graph.outputs if value.name in texts]
    clone.graph.meta[_KEY] = {name: tuple(numbers) for name in outputs}
    return replace(model, ir=clone, is_changed=True)


def text_outputs(graph: ir.Graph) -> tuple[str, ...]:
    """What stands for text in the outputs of a graph whose texts were numbered, in words."""
    noted: Mapping[str, tuple[str, ...]] = graph.meta.get(_KEY, {})
    return tuple(
        f"{name!r} is text; its numbers stand for {', '.join(f'{n} {word!r}' for n, word in enumerate(words))}"
        for name, words in noted.items()
        if name in {value.name for value in graph.outputs}
    )


def _names(node: ir.Node) -> set[str]:
    return {value.name for value in (*node.inputs, *node.outputs) if value is not None and value.name}


def _takes_numbers(node: ir.Node) -> bool:
    if node.domain in ONNX_DOMAINS:
        return node.op_type in _MOVERS
    return node.domain == ML_DOMAIN and node.op_type in _LABELS


def _list_texts(node: ir.Node) -> list[str]:
    """The attributes of a node that hold texts which are data."""
    named = {**_CONSTANTS, **_LABELS.get(node.op_type, {})}
    return [
        name
        for name, attribute in node.attributes.items()
        if (name in named and attribute.value)
        or (attribute.type == ir.AttributeType.TENSOR and attribute.value.dtype == _TEXT)
    ]


def _number_attributes(node: ir.Node, number: Callable[[Sequence[str]], list[int]]) -> None:
    texts = _list_texts(node)
    if node.op_type == "LabelEncoder" and "values_strings" in texts and "default_string" not in texts:
        node.attributes["default_int64"] = ir.AttrInt64("default_int64", number([_UNKNOWN])[0])
    if node.op_type == "LabelEncoder" and "values_tensor" in texts and "default_tensor" not in texts:
        tensor = ir.tensor(np.array(number([_UNKNOWN]), np.int64))
        node.attributes["default_tensor"] = ir.AttrTensor("default_tensor", tensor)
    for name in texts:
        attribute = node.attributes.pop(name)
        renamed = {**_CONSTANTS, **_LABELS.get(node.op_type, {})}.get(name, name)
        if attribute.type == ir.AttributeType.TENSOR:
            node.attributes[name] = ir.AttrTensor(name, ir.tensor(_number_tensor(attribute.value, number)))
        elif attribute.type == ir.AttributeType.STRINGS:
            node.attributes[renamed] = ir.AttrInt64s(renamed, number(attribute.value))
        else:
            node.attributes[renamed] = ir.AttrInt64(renamed, number([attribute.value])[0])


def _number_tensor(tensor: ir.TensorProtocol, number: Callable[[Sequence[str]], list[int]]) -> Array:
    texts = elements(tensor)
    words = [text.decode() if isinstance(text, bytes) else text for text in texts.ravel()]
    return np.array(number(words), np.int64).reshape(texts.shape)


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs
