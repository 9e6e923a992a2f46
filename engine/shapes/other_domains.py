"""Types of the results of operators of other domains than ONNX's: those of a runtime, and those of classical machine
learning, of which ONNX infers few.

    Scaler(X[N, C]) -> float32[N, C]; TreeEnsembleRegressor(X[N, C]) -> float32[N, targets]

ONNX Runtime infers most of its own by itself, so it is asked; sizes that it cannot compute from dynamic ones follow
from the rules of similar operators of ONNX.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from ...ir.sizes import ONE, ZERO, Size, number
from ...ir.types import TensorType
from ...support.custom_operators import list_libraries
from ..onnx.runtime_values import session_options
from ..onnx.typing import NAMELESS, dtype_name, dtype_of
from ..onnx.wellformed import ONNX_DOMAINS
from .site import Shape, Site, Undecided, dimensions
from .windows import convolution, global_pool, pool

if TYPE_CHECKING:
    import onnxruntime

_MICROSOFT = "com.microsoft"
_MOST_ANSWERS = 4096
"""Answers that are kept: networks ask the same for many of their nodes."""
_CONCATENATED = 2, 3
"""Where the operands of a QLinearConcat begin, and how many inputs each has: itself, its scale and its zero point."""
CLASSICAL = "ai.onnx.ml"
_ELEMENTWISE = frozenset({"Scaler", "Normalizer", "Imputer", "Binarizer", "LabelEncoder"})
"""Operators whose result has the shape of the operand."""
_FLOATS = frozenset(
    {"Scaler", "Normalizer", "LinearRegressor", "SVMRegressor", "TreeEnsembleRegressor", "OneHotEncoder"}
)
"""Operators that return float32 for every type of operand."""
_TABLES = {"LabelEncoder": "values_", "Imputer": "imputed_value_"}
"""The beginning of the attribute whose entries become elements."""
_TARGETS = {"LinearRegressor": "targets", "TreeEnsembleRegressor": "n_targets", "TreeEnsemble": "n_targets"}
"""The attribute of regressors with the number of columns."""
_CLASSIFIERS = frozenset({"LinearClassifier", "TreeEnsembleClassifier", "SVMClassifier"})
_TWO = 2
"""Classes of which the scores are those of the classes, not of their only pair."""
_ENTRIES = {"strings": "string", "int64s": "int64", "ints": "int64", "floats": "float32"}
"""The element type of entries by the end of the attribute that lists them."""


def contributed_shapes(site: Site) -> list[Shape]:
    """The shapes of a node's outputs, if sizes are computed. Raises Undecided for operators that compute none."""
    rule = _RULES.get(site.node.op_type) if site.node.domain == _MICROSOFT else None
    if rule is None or site.attribute("channels_last", 0):
        raise Undecided
    result = rule(site)
    return result if isinstance(result, list) else [result]


def _concatenate(site: Site) -> Shape:
    first, step = _CONCATENATED
    shapes = [site.shape(place) for place in range(first, len(site.node.inputs), step)]
    axis = site.axis(site.attribute("axis", 0), len(shapes[0]))
    columns = list(zip(*shapes, strict=True))
    joined = dimensions(lambda *sizes: sum(sizes, ZERO), *((size,) for size in columns[axis]))
    return tuple(joined[0] if i == axis else site.equations.equate(column) for i, column in enumerate(columns))


_RULES: dict[str, Callable[[Site], Shape | list[Shape]]] = {
    "FusedConv": convolution,
    "QLinearAveragePool": pool,
    "QLinearGlobalAveragePool": global_pool,
    "QLinearConcat": _concatenate,
}


def infer_by_runtime(
    node: onnx.NodeProto,
    types: Mapping[str, TensorType],
    constants: Mapping[str, np.ndarray[Any, Any]],
    opsets: Mapping[str, int],
) -> dict[str, TensorType]:
    """The types of the tensors that a node returns, as ONNX Runtime infers them; {} if it infers none.

    `types` and `constants` are those of the operands, by name. Names of sizes are those of the operands' types.
    """
    names = dict.fromkeys(name for name in node.input if name)
    if any(name not in types for name in names):
        return {}
    given = [name for name in names if name not in constants]
    infos = [onnx.helper.make_tensor_value_info(n, int(dtype_of(types[n].dtype)), _named(types[n])) for n in given]
    stored = [numpy_helper.from_array(constants[name], name) for name in names if name in constants]
    results = [name for name in node.output if name]
    ranks = [onnx.helper.make_node("Shape", [name], [f"{name}.shape"]) for name in results]
    outputs = [onnx.ValueInfoProto(name=name) for result in results for name in (result, f"{result}.shape")]
    graph = onnx.helper.make_graph([node, *ranks], "one", infos, outputs, stored)
    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in {"": 1, **opsets}.items()]
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=10)
    symbols = {d for name in names for d in types[name].shape or () if isinstance(d, str)} - {NAMELESS}
    return {
        name: type_ if type_.shape is None else TensorType(
            type_.dtype, tuple(d if isinstance(d, int) or d in symbols else NAMELESS for d in type_.shape)
        )
        for name, type_ in _ask(model.SerializeToString(deterministic=True), list_libraries())
    }  # fmt: skip


def _named(type_: TensorType) -> tuple[int | str | None, ...] | None:
    return None if type_.shape is None else tuple(None if d == NAMELESS else d for d in type_.shape)


@lru_cache(_MOST_ANSWERS)
def _ask(model: bytes, libraries: tuple[str, ...]) -> tuple[tuple[str, TensorType], ...]:
    """The tensors among the outputs of a model, by name, as ONNX Runtime infers them; () if it refuses the model.

    Behind each is one for its rank: a vector of as many elements. The answer depends on the `libraries` that are
    registered.
    """
    import onnxruntime

    del libraries
    options = session_options()
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception:  # the runtime's exceptions share no base class of their own
        return ()
    outputs = session.get_outputs()
    pairs = zip(outputs[::2], outputs[1::2], strict=True)
    return tuple((value.name, _type_of(value, ranks.shape)) for value, ranks in pairs if value.type in _DTYPES)


def _type_of(value: onnxruntime.NodeArg, ranks: Sequence[int | str | None]) -> TensorType:
    shape = [NAMELESS if size is None or size == "" else size for size in value.shape]
    return TensorType(_DTYPES[value.type], tuple(shape) if list(ranks) == [len(shape)] else None)


_DTYPES = {f"tensor({dtype.name.lower()})": dtype_name(dtype) for dtype in ir.DataType if dtype.value}
"""Element types by ONNX Runtime's names of tensors of them."""


def is_of_another_domain(node: ir.Node) -> bool:
    """Whether an operator is neither ONNX's nor this package's own."""
    return node.domain not in ONNX_DOMAINS and not node.domain.startswith("eqfuse.")


def is_classical(node: ir.Node) -> bool:
    """Whether a node is of the operator set of classical machine learning."""
    return node.domain == CLASSICAL


def classical_dtypes(node: ir.Node) -> list[str | None]:
    """The element types of a node's outputs, as far as its attributes tell."""
    if node.op_type in _CLASSIFIERS:
        return [_entry_type(node, "classlabels_"), "float32"]
    if node.op_type in _FLOATS:
        return ["float32"]
    return [_entry_type(node, _TABLES[node.op_type])] if node.op_type in _TABLES else []


def classical_shapes(site: Site) -> list[Shape]:
    """The shapes of a node's outputs. Raises Undecided if nothing follows from those of its operands."""
    node, shape = site.node, site.shape()
    if node.op_type in _ELEMENTWISE:
        return [shape]
    rows: Size | None = shape[0] if len(shape) > 1 else ONE
    if node.op_type in _TARGETS:
        return [(rows, number(site.attribute(_TARGETS[node.op_type], 1)))]
    if node.op_type == "SVMRegressor":
        return [(rows, ONE)]
    if node.op_type == "TreeEnsembleClassifier":
        return [(rows,), (rows, number(_count(node, "classlabels_")))]
    if node.op_type == "LinearClassifier":
        scores = len(site.attribute("intercepts", ()) or [0] * _count(node, "classlabels_"))
        return [(rows,), (rows, number(2 if scores == 1 else scores))]
    if node.op_type == "SVMClassifier":
        return [(rows,), (rows, number(_machine_scores(site)))]
    if node.op_type == "OneHotEncoder":
        return [(*shape, number(_count(node, "cats_")))]
    raise Undecided


def _machine_scores(site: Site) -> int:
    """The scores of a row: one for each class, or for each pair of more than two if no probabilities are estimated."""
    classes = _count(site.node, "classlabels_")
    has_pairs = site.attribute("vectors_per_class", ()) and not site.attribute("prob_a", ()) and classes > _TWO
    return classes * (classes - 1) // 2 if has_pairs else classes


def _tables(node: ir.Node, prefix: str) -> dict[str, int]:
    """The lengths of the attributes that begin so, by their element types."""
    named = ((name.removeprefix(prefix), a) for name, a in node.attributes.items() if name.startswith(prefix))
    return {_ENTRIES[ending]: len(attribute.value) for ending, attribute in named if ending in _ENTRIES}


def _entry_type(node: ir.Node, prefix: str) -> str | None:
    return next(iter(_tables(node, prefix)), None)


def _count(node: ir.Node, prefix: str) -> int:
    return max(_tables(node, prefix).values(), default=0)
