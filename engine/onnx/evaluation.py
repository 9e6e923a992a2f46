"""Evaluation of constant nodes, by ONNX Runtime or, if it has no kernel, by onnx.reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from ...support.deadlines import seconds_left
from ...support.processes.worker_process import WorkerDiedError, WorkerPool, WorkerProcess
from .inference_faults import without_delicate_nodes
from .runtime_values import open_session

Arrays = Mapping[str, "np.ndarray[Any, Any]"]
_FLOATS = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16})


def submodel(
    nodes: Sequence[onnx.NodeProto], constants: Arrays, outputs: Sequence[str], opsets: Mapping[str, int]
) -> onnx.ModelProto:
    """A model without inputs that computes `outputs` from `constants`."""
    model = onnx.ModelProto(ir_version=10)
    model.opset_import.extend(onnx.helper.make_opsetid(d, v) for d, v in opsets.items())
    model.graph.name = "constants"
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in constants.items())
    model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in outputs)
    return model


def evaluate(
    nodes: Sequence[onnx.NodeProto],
    constants: Arrays,
    outputs: Sequence[str],
    opsets: Mapping[str, int],
    deadline: float = inf,
) -> dict[str, np.ndarray[Any, Any]]:
    """Values of `outputs` in the nodes' own element types.

    Nodes are in topological order. Outputs that neither evaluator can compute are left out, and so are those of bodies
    that take longer than ten seconds, or than the time until the `deadline` (time.monotonic).
    """
    if not outputs:
        return {}
    divided = _integer_quotients(nodes, constants, opsets)
    if divided:
        return _evaluate_around(divided, nodes, constants, outputs, opsets, deadline)
    model = submodel(nodes, constants, outputs, opsets)
    may_go_on = any(a.HasField("g") for node in nodes for a in node.attribute)
    try:
        results = _run_with_limit(model, deadline) if may_go_on else _run_in_runtime(model)
    except WorkerDiedError:
        return {}
    except Exception:  # ONNX Runtime raises its own kinds for every missing kernel or type
        return {} if may_go_on else evaluate_by_reference(nodes, constants, outputs, opsets)
    return dict(zip(outputs, results, strict=True))


_LIMIT = 10.0
"""Seconds that bodies may run to compute constants: a Loop may go on for days, and only the end of its process ends
native code."""
_LEAST_SECONDS = 1.0
"""Seconds that they may run even after the deadline: most bodies end at once."""
_POOL = WorkerPool(lambda: WorkerProcess(f"{__name__}:_run_serialized", forks=True))


def _run_with_limit(model: onnx.ModelProto, deadline: float) -> list[np.ndarray[Any, Any]]:
    """The outputs of a model that may go on for long. Raises WorkerDiedError if it takes too long or crashes."""
    seconds = min(_LIMIT, max(_LEAST_SECONDS, seconds_left(deadline)))
    results: list[np.ndarray[Any, Any]] = _POOL.ask(model.SerializeToString(), seconds)
    return results


def _run_serialized(model: bytes) -> list[np.ndarray[Any, Any]]:
    """In the other process."""
    return _run_in_runtime(onnx.load_from_string(model))


def _integer_quotients(
    nodes: Sequence[onnx.NodeProto], constants: Arrays, opsets: Mapping[str, int]
) -> frozenset[str]:
    """Outputs of nodes that divide integers. ONNX Runtime crashes if it divides the least integer by -1."""
    divisions = [node for node in nodes if node.op_type in ("Div", "Mod")]
    if not divisions:
        return frozenset()
    try:
        model = without_delicate_nodes(submodel(nodes, constants, [], opsets), {})
        graph = onnx.shape_inference.infer_shapes(model).graph
    except Exception:  # inference raises several kinds; no division is known to be safe then
        return frozenset(name for node in divisions for name in node.output)
    floats = {value.name for value in graph.value_info if value.type.tensor_type.elem_type in _FLOATS}
    return frozenset(name for node in divisions for name in node.output if name not in floats)


def _evaluate_around(
    divided: frozenset[str],
    nodes: Sequence[onnx.NodeProto],
    constants: Arrays,
    outputs: Sequence[str],
    opsets: Mapping[str, int],
    deadline: float,
) -> dict[str, np.ndarray[Any, Any]]:
    """`evaluate`, but onnx.reference computes the `divided` values and everything that they depend on."""
    needed, first = set(divided), []
    for node in reversed(nodes):
        if not needed.isdisjoint(node.output):
            needed.update(name for name in node.input if name)
            first.append(node)
    names = [name for node in first for name in node.output if name]
    values = {**constants, **evaluate_by_reference(first[::-1], constants, names, opsets)}
    available, rest = {*values, ""}, []
    for node in nodes:
        if needed.isdisjoint(node.output) and available.issuperset(node.input):
            available.update(node.output)
            rest.append(node)
    wanted = [name for name in outputs if name in available and name not in values]
    return {n: values[n] for n in outputs if n in values} | evaluate(rest, values, wanted, opsets, deadline)


def _run_in_runtime(model: onnx.ModelProto) -> list[np.ndarray[Any, Any]]:
    results = open_session(model).run(None, {})
    if not all(isinstance(r, np.ndarray) for r in results):
        raise TypeError("a constant is not a tensor")
    return list(results)


def evaluate_by_reference(
    nodes: Sequence[onnx.NodeProto], constants: Arrays, outputs: Sequence[str], opsets: Mapping[str, int]
) -> dict[str, np.ndarray[Any, Any]]:
    """Like `evaluate`, but node by node in onnx.reference, whose kernels follow their operands' element types.

    With float64 operands it computes in float64, whichever type the model has.
    """
    from onnx.reference import ReferenceEvaluator

    values: dict[str, Any] = {**constants, "": None}
    for node in nodes:
        if any(i not in values for i in node.input):
            continue
        single = submodel([node], {}, list(node.output), opsets)
        single.graph.input.extend(onnx.ValueInfoProto(name=i) for i in dict.fromkeys(node.input) if i)
        try:
            with np.errstate(all="ignore"):
                results = ReferenceEvaluator(single).run(None, {i: values[i] for i in node.input if i})
        except Exception:  # a kernel that the reference lacks or that refuses these operands
            continue
        values.update({n: r for n, r in zip(node.output, results, strict=True) if isinstance(r, np.ndarray)})
    return {n: values[n] for n in outputs if n in values}
