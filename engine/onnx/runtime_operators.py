"""Operators that ONNX Runtime runs and ONNX does not have, as those of ONNX that they stand for.

    SimplifiedLayerNormalization(x, scale) = x / sqrt(mean(x * x) + epsilon) * scale
    GroupNormalization of opset 18 to 20: an InstanceNormalization whose channels are groups, with a scale for each

Tools that prepare models for ONNX Runtime write the first. ONNX withdrew the second in opset 21, for the versions
before it as well, after tools had written it.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx
import onnx_ir as ir
from onnx_ir import serde

from .wellformed import ONNX_DOMAINS

MEAN_AXES_INPUT = 18
"""The opset since which the axes of ReduceMean are an input."""
_ROOT_MEAN_SQUARE_SINCE = 23
"""The opset since which there is an RMSNormalization."""
_GROUPS_WITH_ONE_SCALE = range(18, 21)
"""The opsets in which a GroupNormalization has a scale for each group."""
_OWN_DOMAIN = "eqfuse.runtime"


def define_runtime_operators(model: ir.Model) -> None:
    """Give nodes of these operators a local function, or make them nodes of ONNX.

    Nodes of other forms stay, and the ONNX checker refuses them.
    """
    opset = next((model.opset_imports[d] for d in ONNX_DOMAINS if d in model.opset_imports), 1)
    for node in [n for n in model.graph.all_nodes() if n.domain in ONNX_DOMAINS and n.op_type in _FUNCTIONS]:
        text = _FUNCTIONS[node.op_type](node, opset)
        if text:
            function = serde.deserialize_function(onnx.parser.parse_function(text))
            model.functions[function.identifier()] = function
            model.opset_imports.setdefault(_OWN_DOMAIN, 1)
            node.domain, node.op_type = function.domain, function.name
            node.attributes.clear()


def _root_mean_square(node: ir.Node, opset: int) -> str:
    scale = node.inputs[1].const_value if len(node.inputs) > 1 and node.inputs[1] is not None else None
    if scale is None or len(node.outputs) != 1 or node.attributes.get_int("axis", -1) != -1:
        return ""
    if opset >= _ROOT_MEAN_SQUARE_SINCE:
        node.op_type = "RMSNormalization"
        return ""
    mean = "ReduceMean (square, last)" if opset >= MEAN_AXES_INPUT else "ReduceMean <axes = [-1]> (square)"
    epsilon = node.attributes.get_float("epsilon", 1e-5)
    return f"""<opset_import: ["" : {opset}], domain: "{_OWN_DOMAIN}">
        {_name(node.op_type, int(scale.dtype), epsilon)} (x, scale) => (y) {{
            square = Mul (x, x)
            last = Constant <value = int64[1] {{-1}}> ()
            mean = {mean}
            wide = Constant <value = float {{{epsilon:.9e}}}> ()
            epsilon = Cast <to = {int(scale.dtype)}> (wide)
            sum = Add (mean, epsilon)
            root = Sqrt (sum)
            share = Div (x, root)
            y = Mul (share, scale)
        }}"""


def _group_normalization(node: ir.Node, opset: int) -> str:
    groups, epsilon = node.attributes.get_int("num_groups", 0), node.attributes.get_float("epsilon", 1e-5)
    if opset not in _GROUPS_WITH_ONE_SCALE or groups is None or groups < 1:
        return ""
    return f"""<opset_import: ["" : {opset}], domain: "{_OWN_DOMAIN}">
        {_name(node.op_type, groups, epsilon)} (x, scale, bias) => (y) {{
            by_groups = Constant <value = int64[3] {{0, {groups}, -1}}> ()
            rows = Reshape (x, by_groups)
            normal = InstanceNormalization <epsilon = {epsilon:.9e}> (rows, scale, bias)
            shape = Shape (x)
            y = Reshape (normal, shape)
        }}"""


_FUNCTIONS: dict[str, Callable[[ir.Node, int], str]] = {
    "SimplifiedLayerNormalization": _root_mean_square,
    "GroupNormalization": _group_normalization,
}
"""The text of the function for a node; "" if it needs none."""


def _name(op_type: str, setting: int, epsilon: float | None) -> str:
    """The name of a function: nodes that compute the same share it."""
    return f"{op_type}_{setting}_{epsilon}".replace(".", "_").replace("-", "_").replace("+", "_")
