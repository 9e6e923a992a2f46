"""Integers of tensors wrap around: in kernels, plain loops, tiles, and in C projects for this host and for Arm."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import eqfuse
from eqfuse.costmodels.device import load_device
from eqfuse.engine.onnx.model import read
from eqfuse.engine.onnx.runtime_values import open_session
from eqfuse.engine.operator_graph import operator_graph
from eqfuse.engine.shapes.inference import infer
from eqfuse.lowering.arm.emulate import run_example
from eqfuse.lowering.base.target import target_of
from eqfuse.lowering.base.toolchain import Tool, missing
from eqfuse.lowering.base.weights import Weights
from eqfuse.lowering.dsa.network.graph import Network
from eqfuse.lowering.dsa.tiles.compiled_kernels import compiled_kernels
from eqfuse.lowering.dsa.tiles.local_graph import local_graph
from eqfuse.lowering.kernels.compilation import compile_kernels
from eqfuse.lowering.plan.plan import Plan
from eqfuse.lowering.program.planning import plan_program
from eqfuse.lowering.program.project import build_example, write_project

from .dsa.tile_cases import all_of
from .in_tvm import Call, in_tvm
from .in_tvm import model_of as call_of
from .integer_chains import (
    DTYPES,
    FLOATS,
    OPSET,
    REPRESENTATIVES,
    Array,
    Chain,
    Step,
    assert_wrapped,
    draw_chains,
    extremes,
    inputs_of,
    model_of,
)  # fmt: skip
from .loops.in_c import InC
from .small_models import graph_of, saved

ARM = load_device("arm-cortex-a76")
NO_ARM = missing(Tool.CROSS_COMPILER, Tool.EMULATOR)
emulated = pytest.mark.skipif(bool(NO_ARM), reason=NO_ARM)
OUTPUTS = 100
"""Chains of a model."""
OPEN = (
    Chain("int32", (Step("Div", ("y_int32",)),)),
    Chain("int64", (Step("Div", (-1,)),)),
    Chain("int32", (Step("Mod", ("y_int32",)),)),
    Chain("int64", (Step("Mod", ("y_int64",), (("fmod", 1),)),)),
    Chain("uint64", (Step("Div", ("y_uint64",)),)),
    Chain("uint8", (Step("BitShift", ("y_uint8",), (("direction", "LEFT"),)),)),
    Chain("uint32", (Step("BitShift", ("y_uint32",), (("direction", "RIGHT"),)),)),
    Chain("int32", (Step("Pow", (2,)),)),
    Chain("int64", (Step("Pow", ("e_int64",)),)),
    *(Chain(source, (Step("Cast", attributes=(("to", target),)),)) for source in FLOATS for target in DTYPES),
    Chain("float32", (Step("Cast", attributes=(("to", "bool"),)), Step("Not"))),
    Chain("float64", (Step("Less", ("y_float64",)), Step("Not"))),
)
"""Divisions by zero and of the least number by -1, shifts by all bits and more, powers and floats that the type cannot
hold, NaN as a truth value: ONNX leaves these open."""


def in_kernels(chains: Sequence[Chain], immediates: bool = True) -> list[Array]:
    model = model_of(chains)
    (results,) = in_tvm([Call(model, inputs_of(model))], immediates)
    return [results[f"y{number}"] for number in range(len(chains))]


def in_loops(chains: Sequence[Chain], *_: Path) -> list[Array]:
    """A few at a time, of which the C compiler optimises each on its own."""
    results = []
    for first in range(0, len(chains), 20):
        model = model_of(chains[first : first + 20])
        results += InC(model, "-O2")(list(inputs_of(model).values()))
    return results


def in_tiles(chains: Sequence[Chain], *_: Path) -> list[Array]:
    """Each chain as the kernel of a tile that is the whole tensor."""
    models = [model_of([chain]) for chain in chains]
    networks = [Network(graph_of(model)) for model in models]
    graphs, ends = {}, []
    for number, network in enumerate(networks):
        members = tuple(range(len(network.graph.operators)))
        (end,) = (v for v, value in enumerate(network.graph.values) if value.is_output)
        ends.append(all_of(network, members, end))
        graphs[f"k{number}"] = local_graph(network, ends[-1])
    kernels = compiled_kernels(graphs, opset=OPSET)
    results = []
    for number, (model, network, tile, chain) in enumerate(zip(models, networks, ends, chains, strict=True)):
        stored = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
        values = {**stored, **inputs_of(model)}
        output = np.zeros_like(chain.result)
        kernels[f"k{number}"]([values[network.graph.values[v].name] for v, _ in tile.inputs], [output])
        results.append(output)
    return results


def in_a_project(chains: Sequence[Chain], folder: Path) -> list[Array]:
    """A C project, built by the C compiler of this machine and run on files."""
    model = model_of(chains)
    write_chains(model, chains, folder, "host")
    sources = sorted(str(path) for path in (folder / "project").rglob("*.[cSo]"))
    command = ["gcc", "-std=gnu11", "-O2", "-pthread", f"-I{folder / 'project'}", *sources, "-lm", "-o", "example"]
    subprocess.run(command, check=True, cwd=folder, timeout=60)
    names = []
    for number, array in enumerate(inputs_of(model).values()):
        names.append(f"x{number}.npy")
        np.save(folder / names[-1], array)
    outputs = [f"y{number}.npy" for number in range(len(chains))]
    subprocess.run(["./example", *names, *outputs], check=True, cwd=folder, timeout=60)
    return [np.load(folder / name) for name in outputs]


def on_arm(chains: Sequence[Chain], folder: Path) -> list[Array]:
    """A C project for Arm, run by an emulator."""
    model = model_of(chains)
    plan = write_chains(model, chains, folder, ARM.name)
    build_example(folder / "project", folder / "example", ARM)
    return run_example(folder / "example", plan, list(inputs_of(model).values()), ARM)


def write_chains(model: onnx.ModelProto, chains: Sequence[Chain], folder: Path, target: str) -> Plan:
    """Write a C project whose kernels are a chain each."""
    read_model = read(model)
    graph = operator_graph(read_model, infer(read_model))
    numbers = iter(range(len(graph.operators)))
    groups = [tuple(islice(numbers, len(chain.steps))) for chain in chains]
    (folder / "objects").mkdir()
    compiled = compile_kernels(graph, groups, Weights(read_model), target_of(target, 1), folder / "objects", 2)
    plan, weights = plan_program(compiled)
    write_project(folder / "project", plan, weights, compiled.all_objects)
    return plan


def in_onnx_runtime(chain: Chain) -> Array | None:
    """The result of ONNX Runtime, as the model is written; None if it has no kernel for a type."""
    model = model_of([chain])
    try:
        session = open_session(model)
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        return None
    (result,) = session.run(None, inputs_of(model))
    return np.asarray(result)


@pytest.mark.parametrize("immediates", [True, False])
def test_kernels_wrap(immediates: bool) -> None:
    assert_wrapped(REPRESENTATIVES, in_kernels(REPRESENTATIVES, immediates))


@pytest.mark.parametrize("run", [in_kernels, in_loops])
def test_what_onnx_leaves_open_is_defined(run: Callable[[Sequence[Chain]], list[Array]]) -> None:
    assert_wrapped(OPEN, run(OPEN))


ENDS = np.array(extremes("int32"), np.int32)
PAIRS = np.stack([ENDS, ENDS[::-1]], axis=1)
MATRIX = np.random.default_rng(0).choice(ENDS, (2, 5))


@pytest.mark.representatives(3)
@pytest.mark.parametrize(
    ("op", "operand", "expected"),
    [
        ("ReduceSum", np.array([1]), PAIRS.sum(1, np.int32, keepdims=True)),
        ("ReduceProd", np.array([1]), PAIRS.prod(1, np.int32, keepdims=True)),
        ("ReduceSumSquare", np.array([1]), (PAIRS * PAIRS).sum(1, np.int32, keepdims=True)),
        ("ReduceL1", np.array([1]), abs(PAIRS).sum(1, np.int32, keepdims=True)),
        ("ReduceMin", np.array([1]), PAIRS.min(1, keepdims=True)),
        ("ReduceMax", np.array([1]), PAIRS.max(1, keepdims=True)),
        ("CumSum", np.array(1), PAIRS.cumsum(1, np.int32)),
        ("Pow", np.array(3), PAIRS * PAIRS * PAIRS),
        ("Pow", np.array([[3]]), PAIRS * PAIRS * PAIRS),
        ("MatMul", MATRIX, PAIRS @ MATRIX),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_reductions_wrap(op: str, operand: Array, expected: Array) -> None:
    nodes = [helper.make_node(op, ["x", "w"], ["y"])]
    (results,) = in_tvm([call_of(nodes, {"x": PAIRS, "w": operand}, ["w"], ["y"])], immediates=True)
    np.testing.assert_array_equal(results["y"], expected)


def test_loops_wrap() -> None:
    chains = REPRESENTATIVES[:3]
    assert_wrapped(chains, in_loops(chains))


@emulated
def test_chains_on_arm_wrap(tmp_path: Path) -> None:
    chains = REPRESENTATIVES[:3]
    assert_wrapped(chains, on_arm(chains, tmp_path))


def test_onnx_runtime_wraps() -> None:
    """The numbers that all others are compared with are those of the runtime."""
    chains = (*REPRESENTATIVES, *OPEN, *draw_chains(0, 300))
    known = [(chain, in_onnx_runtime(chain)) for chain in chains if not chain.is_open]
    both = [(chain, result) for chain, result in known if result is not None]
    assert len(both) > 150
    assert_wrapped([chain for chain, _ in both], [result for _, result in both])


@pytest.mark.conformance
@pytest.mark.parametrize("seed", range(50))
def test_compiled_models_wrap(tmp_path: Path, seed: int) -> None:
    """Optimised and compiled as users do it."""
    chains = draw_chains(seed, OUTPUTS)
    model = model_of(chains)
    path = saved(model, tmp_path / "chains.onnx")
    eqfuse.compile(path, tmp_path / "build", threads=1, verify=False, measure=False)
    results = eqfuse.load(tmp_path / "build").run(inputs_of(model))
    assert_wrapped(chains, [results[f"y{number}"] for number in range(OUTPUTS)])


@pytest.mark.conformance
@pytest.mark.parametrize("run", [in_loops, in_tiles, in_a_project, pytest.param(on_arm, marks=emulated)])
@pytest.mark.parametrize("seed", range(100, 105))
def test_drawn_chains_wrap(run: Callable[[Sequence[Chain], Path], list[Array]], seed: int, tmp_path: Path) -> None:
    drawn = draw_chains(seed, OUTPUTS, lambda chain: run is in_loops or chain.is_elementwise)
    chains = (*REPRESENTATIVES, *drawn)
    assert_wrapped(chains, run(chains, tmp_path))
