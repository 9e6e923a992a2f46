"""Whether a program has the bits of Arm's reference model, and ONNX Runtime's values within one step an operator."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path

import numpy as np
import onnx

from ...engine.verification.effect import StepCount
from ...support.errors import UsageError, VerificationError
from ...support.files import cache_folder, write_text
from ...support.processes.program import ToolError, run_program
from ...support.scratch import scratch_folder
from ..base.errors import CrashError, LoweringError
from ..base.ports import Port, random_inputs
from ..bundle.isolation import call_isolated
from .emission.emit import Emitted, Wire
from .model import integers_for, numbers_of, run_onnx
from .tosa.evaluation import evaluate_graph
from .tosa.graph import Array, Graph

SAMPLES = 20
"""Inputs on which the bits are compared with the reference model."""
_OPERATOR_SAMPLES = 2
"""Inputs on which each operator is compared with ONNX Runtime."""
_GIVEN = ".given"
"""The end of the name of an input that takes the place of a rounded value."""


def verify_bits(
    content: bytes, emitted: Emitted, plain: Graph, ports: Sequence[Port], seed: int, seconds: float
) -> str:
    """Compare a graph and the `plain` one that it was made from with Arm's reference model; the verdict in words.

    Raises VerificationError for any other bit, CrashError if the reference model takes longer than `seconds`.
    """
    graphs = {"": emitted.graph} if emitted.graph is plain else {"": emitted.graph, "the plain graph: ": plain}
    feeds = [integers_for(emitted.inputs, random_inputs(ports, seed + number)) for number in range(SAMPLES)]
    expected = run_reference(content, emitted.graph, feeds, seconds)
    for number, (feed, wanted) in enumerate(zip(feeds, expected, strict=True)):
        for label, graph in graphs.items():
            made = evaluate_graph(graph, feed)
            for name, array in wanted.items():
                if not np.array_equal(made[name], array):
                    count = int((made[name] != array).sum())
                    raise VerificationError(
                        f"{label}output {name!r}: {count} of {array.size} integers differ from Arm's reference model "
                        f"on sample {number}; nothing was written; please report this"
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


# Arm's reference model of TOSA, in an environment of its own: it needs a numpy that is older than that of eqfuse.
#
# The environment is made once, below the cache of eqfuse (220 MB, about ten seconds).

PACKAGE = "tosa-tools==2026.8.0"
_INSTALL_SECONDS = 600.0
_PROGRAM = """
import sys
import numpy as np
import tosa_reference_model as model

content = open(sys.argv[1], "rb").read()
samples = np.load(sys.argv[2])
results = {}
for sample in range(int(sys.argv[4])):
    count = sum(name.startswith(f"{sample}/") for name in samples.files)
    outputs, status = model.run(content, [samples[f"{sample}/{place}"] for place in range(count)], tosa_level="EIGHTK")
    if status != model.GraphStatus.TOSA_VALID:
        sys.exit(f"error: the reference model says {status}")
    results |= {f"{sample}/{place}": output for place, output in enumerate(outputs)}
np.savez(sys.argv[3], **results)
"""


def reference_python() -> Path:
    """The interpreter of the environment, which is made if it is missing. Raises UsageError if it cannot be made."""
    folder = cache_folder() / PACKAGE.replace("==", "-")
    python = folder / "bin" / "python"
    done = folder / "complete"
    if done.is_file():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    try:
        run_program([sys.executable, "-m", "venv", folder], _INSTALL_SECONDS)
        run_program([python, "-m", "pip", "install", "--quiet", PACKAGE], _INSTALL_SECONDS)
    except ToolError as error:
        raise UsageError(
            f"Arm's reference model, which verifies the program, cannot be installed ({error}); connect to a package "
            f"index for `pip install {PACKAGE}`, or write the program unverified with --no-verify"
        ) from None
    write_text(done, f"{PACKAGE}\n")
    return python


def run_reference(
    content: bytes, graph: Graph, samples: Sequence[Mapping[str, Array]], seconds: float
) -> list[dict[str, Array]]:
    """The outputs that the reference model computes of each sample. Raises LoweringError if it refuses the graph."""
    with scratch_folder("tosa") as name:
        folder = Path(name)
        program, network, inputs, outputs = (
            folder / each for each in ("run.py", "model.tosa", "inputs.npz", "outputs.npz")
        )
        program.write_text(_PROGRAM, encoding="utf-8")
        network.write_bytes(content)
        arrays = {
            f"{number}/{place}": sample[each]
            for number, sample in enumerate(samples)
            for place, each in enumerate(graph.inputs)
        }
        np.savez(inputs, **arrays)  # type: ignore[arg-type]
        python = reference_python()
        try:
            run_program([python, program, network, inputs, outputs, str(len(samples))], seconds)
        except ToolError as error:
            if error.timed_out:
                raise CrashError(f"took longer than {seconds:g} s", timed_out=True) from None
            raise LoweringError(f"Arm's reference model does not run the graph: {error}") from None
        with np.load(outputs) as results:
            return [
                {each: results[f"{number}/{place}"] for place, each in enumerate(graph.outputs)}
                for number in range(len(samples))
            ]
