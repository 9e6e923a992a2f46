"""Shapes of the results of operators of a runtime's own domains.

ONNX Runtime infers most of them by itself, so it is asked; sizes that it cannot compute from dynamic ones follow from
the rules of similar operators of ONNX.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from ...ir.sizes import ZERO
from ...ir.types import TensorType
from ...support.custom_operators import list_libraries
from ..onnx.model import ONNX_DOMAINS
from ..onnx.runtime_values import session_options
from ..onnx.typing import NAMELESS, dtype_name, dtype_of
from .site import Shape, Site, Undecided, dimensions
from .windows import convolution, global_pool, pool

if TYPE_CHECKING:
    import onnxruntime

DOMAIN = "com.microsoft"
_MOST_ANSWERS = 4096
"""Answers that are kept: networks ask the same for many of their nodes."""
_CONCATENATED = 2, 3
"""Where the operands of a QLinearConcat begin, and how many inputs each has: itself, its scale and its zero point."""


def contributed_shapes(site: Site) -> list[Shape]:
    """The shapes of a node's outputs, if sizes are computed. Raises Undecided for operators that compute none."""
    rule = _RULES.get(site.node.op_type) if site.node.domain == DOMAIN else None
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
