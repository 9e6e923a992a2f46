"""Whether a program has the bits of Arm's reference model, and ONNX Runtime's values within one step an operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import onnx

from ...engine.verification.effect import StepCount
from ...support.errors import VerificationError
from ..base.ports import Port, random_inputs
from ..bundle.isolation import call_isolated
from .emission.emit import Emitted, Wire
from .model import integers_for, numbers_of
from .reference import run_reference
from .tosa.evaluation import evaluate_graph

Array = np.ndarray[Any, Any]
SAMPLES = 20
"""Inputs on which the bits are compared with the reference model."""
_OPERATOR_SAMPLES = 2
"""Inputs on which each operator is compared with ONNX Runtime."""
_GIVEN = ".given"
"""The end of the name of an input that takes the place of a rounded value."""


def verify_bits(content: bytes, emitted: Emitted, ports: Sequence[Port], seed: int) -> str:
    """Compare with Arm's reference model; the verdict in words. Raises VerificationError for any other bit."""
    feeds = [integers_for(emitted.inputs, random_inputs(ports, seed + number)) for number in range(SAMPLES)]
    expected = run_reference(content, emitted.graph, feeds)
    for number, (feed, wanted) in enumerate(zip(feeds, expected, strict=True)):
        made = evaluate_graph(emitted.graph, feed)
        for name, array in wanted.items():
            if not np.array_equal(made[name], array):
                count = int((made[name] != array).sum())
                raise VerificationError(
                    f"output {name!r}: {count} of {array.size} integers differ from Arm's reference model on sample "
                    f"{number}; nothing was written; please report this"
                )
    return f"bits equal to Arm's reference model on {SAMPLES} inputs"


def verify_operators(model: onnx.ModelProto, emitted: Emitted, ports: Sequence[Port], seed: int, seconds: float) -> str:
    """Compare each operator with ONNX Runtime, both given the same integers; the verdict in words.

    Raises VerificationError if one is off by more than a step.
    """
    cut, names = _cut_at_conversions(model, emitted.rounded)
    worst: dict[str, StepCount] = {}
    for number in range(_OPERATOR_SAMPLES):
        feeds = random_inputs(ports, seed + number)
        values = evaluate_graph(emitted.graph, integers_for(emitted.inputs, feeds), keeps_all=True)
        given = {f"{name}{_GIVEN}": _as_onnx(emitted.rounded[name], values) for name in names}
        results = call_isolated(seconds, run_onnx, cut.SerializeToString(), {**feeds, **given}, [*names])
        for name, expected in results.items():
            made = _as_onnx(emitted.rounded[name], values)
            steps = StepCount.of(np.abs(made.astype(np.int64) - expected.astype(np.int64)))
            if name not in worst or steps.most > worst[name].most:
                worst[name] = steps
    total = reduce(StepCount.plus, worst.values(), StepCount())
    if total.most > 1:
        name = max(worst, key=lambda each: worst[each].most)
        raise VerificationError(
            f"value {name!r}: differs from ONNX Runtime by {worst[name].most:g} steps on the same integers, and one is "
            "the most that rounding explains; nothing was written; please report this"
        )
    return f"{len(worst)} operators within a step of ONNX Runtime on the same integers ({total})"


def compare_whole(
    model: onnx.ModelProto, emitted: Emitted, ports: Sequence[Port], outputs: Sequence[Port], seed: int, seconds: float
) -> str:
    """The whole model beside ONNX Runtime's, in words; rounding may add up over the layers."""
    feeds = random_inputs(ports, seed)
    results = evaluate_graph(emitted.graph, integers_for(emitted.inputs, feeds))
    expected = call_isolated(seconds, run_onnx, model.SerializeToString(), feeds, [port.name for port in outputs])
    wires = {wire.port: wire for wire in emitted.outputs}
    total = StepCount()
    for name, array in expected.items():
        wire = wires[name]
        unit = wire.scale if wire.is_number else 1.0
        apart = np.abs(numbers_of(wire, results[wire.tensor]) - array.astype(np.float64)) / unit
        total = total.plus(StepCount.of(np.rint(apart)))
    return f"whole model: {total}"


def run_onnx(content: bytes, feeds: Mapping[str, Array], names: Sequence[str]) -> dict[str, Array]:
    """In another process: results of ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    wanted = {each.name for each in session.get_inputs()}
    results = session.run([*names], {name: array for name, array in feeds.items() if name in wanted})
    return dict(zip(names, results, strict=True))


def _as_onnx(wire: Wire, values: Mapping[str, Array]) -> Array:
    dtype = np.uint8 if wire.offset else np.int8
    return numbers_of(wire, values[wire.tensor]).astype(dtype)


def _cut_at_conversions(model: onnx.ModelProto, rounded: Mapping[str, Wire]) -> tuple[onnx.ModelProto, list[str]]:
    """The model with an input in place of each rounded value, which is an output; and the names of these values."""
    cut = onnx.ModelProto()
    cut.CopyFrom(model)
    del cut.graph.value_info[:]
    names = [node.output[0] for node in cut.graph.node if node.output[0] in rounded]
    for node in cut.graph.node:
        node.input[:] = [f"{name}{_GIVEN}" if name in rounded else name for name in node.input]
    own = {output.name for output in cut.graph.output}
    for name in names:
        wire = rounded[name]
        kind = onnx.TensorProto.UINT8 if wire.offset else onnx.TensorProto.INT8
        cut.graph.input.append(onnx.helper.make_tensor_value_info(f"{name}{_GIVEN}", kind, None))
        if name not in own:
            cut.graph.output.append(onnx.helper.make_tensor_value_info(name, kind, None))
    return cut, names
