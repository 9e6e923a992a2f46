"""The evaluator that runs a float64 model: onnx's, with other kernels for operators that it lacks or gets wrong.

Which kernel computes an operator follows from three rules, in this order:

1. The kernels of `float64_kernels.py`, for operators whose kernel in onnx is wrong, too slow, or
   rounds to float32. `tests/engine/verification/test_evaluators.py` shows the fault or the reason for each.
2. onnx's own kernel. The bodies of operators that ONNX defines as functions are widened like the model.
3. If that fails, the operator table (`ir/operators`), and then ONNX Runtime's kernel for the same
   types, which are float64 here.

It can also round as float32 would (Monte Carlo arithmetic, D. S. Parker 1997; Verificarlo, C. Denis et al. 2016): see
`Rounding`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun, RuntimeContextError

from ...onnx.runtime_values import open_session
from ..runs.values import Value
from .float64_kernels import literal_of
from .rounding import Rounding
from .widening import widen_nodes, widen_value

Run = Callable[..., tuple[Value, ...]]


def evaluator_class(rounding: Rounding) -> type[ReferenceEvaluator]:
    """An evaluator, also of bodies and functions, that rounds as the `rounding` says at the time of a run."""
    return type("RoundingEvaluator", (_Evaluator,), {"rounding": rounding})


class _Evaluator(ReferenceEvaluator):
    """onnx's reference evaluator with a second try for each node, and with rounding."""

    rounding: Rounding

    def __init__(self, proto: Any, *arguments: Any, **named: Any) -> None:
        if isinstance(proto, onnx.FunctionProto):
            function = onnx.FunctionProto()
            function.CopyFrom(proto)
            widen_nodes(function.node)
            proto = function
        super().__init__(proto, *arguments, **named)
        for node in self.rt_nodes_:
            node.run = self._run_of(node)

    def _load_impl(self, node: onnx.NodeProto, input_types: Any = None) -> Any:
        """onnx's kernel of a node, or one that always fails: another evaluator may have it."""
        try:
            return super()._load_impl(node, input_types)
        except RuntimeContextError:
            raise  # the caller asks again, with types
        except Exception:  # the evaluator raises any kind
            return _Missing

    def _run_of(self, node: OpRun) -> Run:
        """The function that runs a node. It is named `node` there, since messages look for that."""
        plain: Run = node.run
        rounding, others = self.rounding, (_RowOfTable(node), _LoneNode(node.onnx_node, self.opsets))

        def run(*inputs: Value, **named: Any) -> tuple[Value, ...]:
            try:
                outputs = plain(*inputs, **named)
            except Exception:  # the evaluator raises any kind
                attempts = (other.try_to_run(inputs) for other in others)
                found = next((each for each in attempts if each is not None), None)
                if found is None:
                    raise
                outputs = found
            return rounding.round_outputs(node.onnx_node, inputs, tuple(map(widen_value, outputs)))

        return run


class _Missing(OpRun):
    """An operator that onnx's evaluator does not have."""

    op_domain = ""

    def _run(self, *_: Value, **__: Any) -> tuple[Value, ...]:
        raise NotImplementedError(f"onnx's evaluator has no {self.onnx_node.op_type}")


@dataclass(frozen=True)
class _RowOfTable:
    """A node by its row in the operator table."""

    node: OpRun

    def try_to_run(self, inputs: Sequence[Value]) -> tuple[Value, ...] | None:
        """The outputs; None if there is no row, or it has no meaning for these inputs and attributes."""
        from ....ir.operators import STANDARD, Attribute, Unsupported, evaluate  # few nodes need it

        node = self.node.onnx_node
        row = STANDARD.get(node.op_type)
        if row is None or node.domain or any(a.input_since is not None for a in row.attributes):
            return None
        if not {item.name for item in node.attribute} <= {a.name for a in row.attributes}:
            return None  # such as that of training
        tensors = iter((*inputs, *[None] * len(row.operands)))
        try:
            value = evaluate(row.name, [
                literal_of(a, getattr(self.node, a.name, None)) if isinstance(a, Attribute) else next(tensors)
                for a in row.arguments
            ])  # fmt: skip
        except Unsupported:
            return None
        outputs = value if isinstance(value, tuple) else (value,)
        return outputs if len(outputs) >= len(node.output) else None


@dataclass(frozen=True)
class _LoneNode:
    """A node as a model of its own in ONNX Runtime."""

    node: onnx.NodeProto
    opsets: Mapping[str, int]

    def try_to_run(self, inputs: Sequence[Value]) -> tuple[Value, ...] | None:
        """The outputs; None if ONNX Runtime does not run it either, or it has a body or inputs that are no tensors."""
        bodies = any(item.HasField("g") or item.graphs or item.ref_attr_name for item in self.node.attribute)
        if bodies or not all(value is None or isinstance(value, np.ndarray) for value in inputs):
            return None
        try:
            return self._run(inputs)
        except Exception:  # exceptions of the runtime share no base class of their own
            return None

    def _run(self, inputs: Sequence[Value]) -> tuple[Value, ...]:
        fed = {name: value for name, value in zip(self.node.input, inputs, strict=False) if name}
        declared = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in fed.items()
        ]
        results = [helper.make_empty_tensor_value_info(name) for name in self.node.output if name]
        graph = helper.make_graph([self.node], "node", declared, results)
        imports = [helper.make_opsetid(domain, version) for domain, version in self.opsets.items()]
        session = open_session(helper.make_model(graph, opset_imports=imports, ir_version=10))
        values = iter(session.run(None, fed))
        return tuple(next(values) if name else None for name in self.node.output)
