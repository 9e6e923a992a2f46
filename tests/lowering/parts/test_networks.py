"""Networks of parts as users compile them and under every schedule, in memory that tells of wrong accesses."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import eqfuse
from eqfuse.engine.onnx.model import read
from eqfuse.engine.onnx.runtime_values import open_session
from eqfuse.extract.partition.groups import unfused
from eqfuse.lowering.base.errors import LoweringError
from eqfuse.lowering.base.target import target_of
from eqfuse.lowering.base.weights import Weights
from eqfuse.lowering.kernels import compilation
from eqfuse.lowering.kernels.compilation import CompiledKernels, compile_kernels
from eqfuse.lowering.kernels.messages import Choices
from eqfuse.lowering.plan.manifest import LIBRARY

from ..linked import linked
from ..program.test_c_library import SANITIZERS
from ..small_models import Array, graph_of, model, saved
from .guarded import run_guarded
from .networks import Network, draw_network

TREES = 4
MOST_ROUNDS = 6
"""Of compilations without the schedule rules of those before: no kernel has more that match, but for the plain one."""
NO_RULES = ("contributed",)
"""A topic all of whose rules are for another domain: the parts stay as they are drawn."""


def in_onnx_runtime(network: Network, feeds: Mapping[str, Array]) -> dict[str, Array]:
    session = open_session(network.proto)
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, dict(feeds)), strict=True))


def assert_close(found: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    """Outputs that no step computes may be missing: copies of inputs."""
    assert found
    for name, array in found.items():
        wanted = expected[name]
        assert array.shape == wanted.shape, name
        np.testing.assert_allclose(array, wanted, rtol=0, atol=1e-5 * max(1.0, np.abs(wanted).max()), err_msg=name)


def compile_alone(
    proto: onnx.ModelProto, folder: Path, threads: int, without: Mapping[str, frozenset[str]] | None = None
) -> CompiledKernels:
    """Each operator as a kernel of its own, with no schedules of the rules `without`, by the keys of their tasks."""
    graph, target = graph_of(proto).at_call, target_of("host", threads)
    folder.mkdir()
    choices = Choices(without=without or {})
    return compile_kernels(graph, unfused(graph).members, Weights(read(proto)), target, folder, 2, choices=choices)


def under_every_rule(proto: onnx.ModelProto, folder: Path, threads: int) -> Iterator[CompiledKernels]:
    """Each operator as a kernel of its own, again and again without the schedule rules that were used before."""
    without: dict[str, frozenset[str]] = {}
    for number in range(MOST_ROUNDS):
        compiled = compile_alone(proto, folder / f"objects {number}", threads, without)
        yield compiled
        rules = {compiled.keys[n]: answer.rule.partition(" ")[0] for n, answer in compiled.answers.items()}
        more = {key: without.get(key, frozenset()) | {rule} for key, rule in rules.items()}
        if more == without:
            return
        without = more


def check_compiled(compiled: CompiledKernels, network: Network, library: Path, threads: int) -> None:
    """Compare what the kernels compute in the memory of a model, and in guarded memory, with ONNX Runtime."""
    library.mkdir()
    context = linked(compiled, library, threads)
    for sizes in network.sizes:
        feeds = network.feeds(sizes)
        expected = in_onnx_runtime(network, feeds)
        assert_close(context.run(feeds), expected)
        assert_close(run_guarded(compiled, library / LIBRARY, feeds, sizes, threads), expected)


@pytest.fixture
def driven(monkeypatch: pytest.MonkeyPatch) -> list[CompiledKernels]:
    """What the driver compiled in this test."""
    seen: list[CompiledKernels] = []

    def record(*arguments: Any) -> CompiledKernels:
        seen.append(compile_kernels(*arguments))
        return seen[-1]

    monkeypatch.setattr(compilation, "compile_kernels", record)
    return seen


def nested() -> Network:
    """Rows in a Concat in another one, a slice that begins in the one and ends in the other, and a part that is read
    beside it; axes are counted from behind."""
    node = onnx.helper.make_node
    nodes = [
        node("Neg", ["rows"], ["a"]), node("Abs", ["rows"], ["b"]), node("Concat", ["a", "b"], ["c"], axis=-1),
        node("Relu", ["rows"], ["d"]), node("Concat", ["c", "d"], ["e"], axis=-1), node("Tanh", ["e"], ["y"]),
        node("Slice", ["e", "start", "end", "axis"], ["s"]), node("Sigmoid", ["s"], ["z"]), node("Exp", ["b"], ["w"]),
    ]  # fmt: skip
    numbers = {"start": [-8], "end": [2**62], "axis": [-1]}
    stored = {name: np.array(number, np.int64) for name, number in numbers.items()}
    outputs = {"y": (2, 3, 15), "z": (2, 3, 8), "w": (2, 3, 5)}
    return Network(model(nodes, {"rows": (2, 3, 5)}, outputs, **stored), ({},))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> CompiledKernels:
    return compile_alone(nested().proto, tmp_path_factory.mktemp("nested") / "objects", 1)


def test_nested_parts(compiled: CompiledKernels, tmp_path: Path) -> None:
    assert len(compiled.places) == 5
    check_compiled(compiled, nested(), tmp_path / "library", 1)


def test_a_part_of_a_stored_tensor_whose_end_is_a_size_of_an_input(tmp_path: Path) -> None:
    node = onnx.helper.make_node
    nodes = [
        node("Shape", ["rows"], ["end"], start=2), node("Slice", ["stored", "start", "end", "axis"], ["s"]),
        node("Add", ["rows", "s"], ["y"]),
    ]  # fmt: skip
    numbers = {"start": np.array([0]), "axis": np.array([1])}
    stored = np.arange(24, dtype=np.float32).reshape(3, 8)
    network = Network(model(nodes, {"rows": (2, 3, 5)}, {"y": (2, 3, 5)}, stored=stored, **numbers), ({},))
    compiled = compile_alone(network.proto, tmp_path / "objects", 1)
    assert compiled.places
    check_compiled(compiled, network, tmp_path / "library", 1)


def test_guards_notice_what_is_written_beside_a_part(compiled: CompiledKernels, tmp_path: Path) -> None:
    linked(compiled, tmp_path)
    shifted = {value: replace(place, first=max(0, place.first - 1)) for value, place in compiled.places.items()}
    network = nested()
    with pytest.raises(LoweringError, match="writes beside its results"):
        run_guarded(replace(compiled, places=shifted), tmp_path / LIBRARY, network.feeds({}), {}, 1)


@pytest.mark.conformance
@pytest.mark.parametrize("only", [(), NO_RULES], ids=["rules", "no rules"])
@pytest.mark.parametrize("seed", range(100, 106))
def test_networks_as_users_compile_them(
    seed: int, only: Sequence[str], tmp_path: Path, driven: list[CompiledKernels]
) -> None:
    network, threads = draw_network(seed, TREES), 1 + seed % 2
    path = saved(network.proto, tmp_path / "model.onnx")
    eqfuse.compile(path, tmp_path / "bundle", verify=False, measure=False, only=only, threads=threads)
    loaded = eqfuse.load(tmp_path / "bundle")
    for sizes in network.sizes:
        feeds = network.feeds(sizes)
        expected = in_onnx_runtime(network, feeds)
        assert_close(loaded.run(feeds), expected)
        assert_close(run_guarded(driven[-1], tmp_path / "bundle" / LIBRARY, feeds, sizes, threads), expected)


@pytest.mark.conformance
@pytest.mark.parametrize("seed", [0, *range(2, 9), 10, 11, 13, 14])  # networks that have parts of other values
def test_networks_under_every_schedule(seed: int, tmp_path: Path) -> None:
    network, threads = draw_network(seed, TREES), 1 + seed % 2
    for number, kernels in enumerate(under_every_rule(network.proto, tmp_path, threads)):
        assert kernels.places
        check_compiled(kernels, network, tmp_path / f"library {number}", threads)


@pytest.mark.conformance
@pytest.mark.parametrize("seed", range(200, 206))
def test_c_projects_under_sanitizers(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runtime, and the loops that the compiler driver is given, touch no byte that is not their own."""
    network, sanitized = draw_network(seed, TREES), ("gcc", *SANITIZERS)
    monkeypatch.setenv("CC", " ".join(sanitized))
    path, folder = saved(network.proto, tmp_path / "model.onnx"), tmp_path / "project"
    eqfuse.compile(path, folder, verify=False, measure=False, only=NO_RULES, threads=2, format="c")
    sources = sorted(str(source) for source in folder.rglob("*.[cSo]"))
    command = [*sanitized, "-std=gnu11", "-O1", "-pthread", *sources, "-lm", "-o", str(tmp_path / "example")]
    subprocess.run(command, check=True, cwd=folder)
    names = [output.name for output in network.proto.graph.output]
    for sizes in network.sizes:
        feeds = network.feeds(sizes)
        for name, array in feeds.items():
            np.save(tmp_path / f"{name}.npy", array)
        files = [f"{name}.npy" for name in (*feeds, *names)]
        subprocess.run([tmp_path / "example", *files, "--threads", "2"], check=True, cwd=tmp_path)
        assert_close({name: np.load(tmp_path / f"{name}.npy") for name in names}, in_onnx_runtime(network, feeds))
