"""``eqfuse compile --target dsa-...``, and ``run`` and ``bench`` of its result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from eqfuse.costmodels.dsa_device import DIRECTORY, dsa_device_names
from eqfuse.lowering.base.choices import Floats, OrderName, VariantName
from eqfuse.lowering.base.ports import random_inputs
from eqfuse.lowering.bundle import check
from eqfuse.lowering.bundle.bundle import read_manifest
from eqfuse.lowering.dsa.back_end import WIDTHS
from eqfuse.lowering.dsa.bundle.files import load_json
from eqfuse.lowering.dsa.bundle.simulated_model import IsolatedSimulation
from eqfuse.lowering.dsa.program.instructions import Compute, Role
from eqfuse.lowering.dsa.schedule.scheduler import _ORDERS
from eqfuse.lowering.dsa.schedule.variants import VARIANTS
from eqfuse.lowering.running.runner import load

from ...lowering.dsa.small_networks import by_sample, cnn, transformer, up_sampling
from ...lowering.ethos_u.networks import float_model, quantised
from ..command_line import CommandLine, Outcome

TARGET = "dsa-stcp920-1mb"


def written(model: onnx.ModelProto, name: str = "in.onnx") -> onnx.ModelProto:
    onnx.save(model, name)
    return model


def compiled(eqfuse: CommandLine, *arguments: object) -> Outcome:
    outcome = eqfuse.run("compile", "in.onnx", "--target", TARGET, "-o", "build", *arguments)
    assert (outcome.code, outcome.err) == (0, "")
    return outcome


def tiny_device(path: str = "tiny.toml", **figures: object) -> str:
    """The edge NPU with other figures, as a file."""
    lines = []
    for line in (DIRECTORY / "edge-npu.toml").read_text(encoding="utf-8").splitlines():
        name = line.partition("=")[0].strip()
        lines.append(f'{name} = {{ value = {figures[name]}, origin = "assumed" }}' if name in figures else line)
    Path(path).write_text("\n".join(lines), encoding="utf-8")
    return f"dsa-{path}"


# --- compile, run


@pytest.mark.representatives(1)
@pytest.mark.parametrize("batch", [1, 4])
def test_a_transformer_runs_as_onnx_runtime_does(eqfuse: CommandLine, batch: int) -> None:
    model = written(transformer())
    ids = np.random.default_rng(0).integers(0, 32, (batch, 8))
    np.save("ids.npy", ids)
    said = compiled(eqfuse, "--batch", batch).out
    assert "verification: passed, 1 output(s)" in said
    assert f"({batch} of {batch} sample(s), simulated)" in said
    assert eqfuse.run("run", "build", "--input", "ids.npy", "--output", "y.npy").code == 0
    np.testing.assert_allclose(np.load("y.npy"), by_sample(model, {"ids": ids}, 1)[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("share", "said"), [(3, "x 3 sample(s) and 1 cluster(s) x 1"), (1, "+ 1 iteration(s) x 3 cl")])
def test_an_uneven_batch_runs_as_onnx_runtime_does(eqfuse: CommandLine, share: int, said: str) -> None:
    """7 samples in runs of 3, 3 and 1, or of 1 in two iterations."""
    model = written(transformer())
    ids = np.random.default_rng(0).integers(0, 32, (7, 8))
    np.save("ids.npy", ids)
    output = compiled(eqfuse, "--batch", 7, "--per-cluster", share).out
    assert said in output
    assert "(7 of 7 sample(s), simulated)" in output
    assert eqfuse.run("run", "build", "--input", "ids.npy", "--output", "y.npy").code == 0
    np.testing.assert_allclose(np.load("y.npy"), by_sample(model, {"ids": ids}, 1)[0], rtol=1e-3, atol=1e-4)


def test_clusters_that_share_samples_run_as_onnx_runtime_does(eqfuse: CommandLine) -> None:
    weights = {"u": (768, 768), "v": (768, 768)}
    onnx.save(float_model("h = MatMul(x, u) r = Relu(h) y = MatMul(r, v)", (1, 768), weights), "in.onnx")
    x = np.random.default_rng(0).standard_normal((3, 768)).astype(np.float32)
    np.save("x.npy", x)
    said = compiled(eqfuse, "--batch", 3).out
    assert "4 cluster(s) x 3 sample(s) by 4 together" in said
    assert "(3 of 3 sample(s), simulated)" in said
    assert eqfuse.run("run", "build", "--input", "x.npy", "--output", "y.npy").code == 0
    session = onnxruntime.InferenceSession("in.onnx")
    expected = np.concatenate([session.run(None, {"x": sample[None]})[0] for sample in x])
    np.testing.assert_allclose(np.load("y.npy"), expected, rtol=1e-3, atol=1e-4)
    own, other = json.loads(eqfuse.run("bench", "build", "--against", "full", "--json").out)["variants"].values()
    assert own == other


@pytest.mark.conformance
def test_of_a_large_uneven_batch_each_program_is_verified(eqfuse: CommandLine) -> None:
    written(cnn())
    said = compiled(eqfuse, "--batch", 26, "--per-cluster", 4).out
    assert "26: 1 iteration(s) x 4 cluster(s) x 4 sample(s) + 1 iteration(s) x 2 cluster(s) x 4 sample(s) and" in said
    assert "(10 of 26 sample(s), simulated)" in said


@pytest.mark.conformance
def test_an_uneven_batch_is_compared_with_another_variant(eqfuse: CommandLine) -> None:
    written(transformer())
    compiled(eqfuse, "--batch", 3, "--per-cluster", 2, "--no-verify")
    said = json.loads(eqfuse.run("bench", "build", "--against", "full", "--json").out)
    assert said["allocation"]["rounds"] == [{"iterations": 1, "samples": [2, 1], "split": 1}]
    assert said["speed-up"] == 1.0


@pytest.mark.conformance
def test_a_cnn_runs_as_onnx_runtime_does_in_several_iterations(eqfuse: CommandLine) -> None:
    model = written(cnn())
    x = np.random.default_rng(0).standard_normal((16, 3, 12, 12)).astype(np.float32)
    np.save("x.npy", x)
    said = compiled(eqfuse, "--batch", 16, "--per-cluster", 2).out
    assert "16: 2 iteration(s) x 4 cluster(s) x 2 sample(s)" in said
    assert "(2 of 16 sample(s), simulated)" in said
    eqfuse.run("run", "build", "--input", "x.npy", "--output", "y.npy")
    np.testing.assert_allclose(np.load("y.npy"), by_sample(model, {"x": x}, 2)[0], rtol=1e-3, atol=1e-4)


@pytest.mark.conformance
@pytest.mark.parametrize("op", ["LSTM", "GRU"])
def test_a_recurrent_network_with_steps_outermost_runs_at_another_batch(eqfuse: CommandLine, op: str) -> None:
    random, gates = np.random.default_rng(0), {"LSTM": 4, "GRU": 3}[op]
    shapes = {"w": (1, gates * 4, 8), "r": (1, gates * 4, 4), "b": (1, gates * 8)}
    weights = {name: random.standard_normal(shape).astype(np.float32) / 3 for name, shape in shapes.items()}
    nodes = [helper.make_node(op, ["x", "w", "r", "b"], ["y", "h"], hidden_size=4)]
    model = onnx.load(eqfuse.model("in.onnx", nodes, (6, 1, 8), **weights))
    model.graph.output.append(helper.make_tensor_value_info("h", onnx.TensorProto.FLOAT, (1, 1, 4)))
    written(model)
    x = random.standard_normal((6, 8, 8)).astype(np.float32)
    np.save("x.npy", x)
    assert "verification: passed" in compiled(eqfuse, "--batch", 8, "--batch-axis", 1).out
    assert eqfuse.run("run", "build", "--input", "x.npy", "--output", "out.npz").code == 0
    session = onnxruntime.InferenceSession("in.onnx")
    runs = [session.run(None, {"x": x[:, sample : sample + 1]}) for sample in range(8)]
    found = np.load("out.npz")
    for name, axis, parts in zip("yh", (2, 1), zip(*runs, strict=True), strict=True):
        np.testing.assert_allclose(found[name], np.concatenate(parts, axis), rtol=1e-4, atol=1e-5)


@pytest.mark.conformance
def test_transposed_convolutions_whose_weights_fill_no_buffer_are_divided(eqfuse: CommandLine) -> None:
    """64 x 32 x 2 x 2 weights of 4 bytes, 32,768 in all, where the LB has 4,096 for them."""
    written(up_sampling())
    target = tiny_device(weight_buffer=4096, local_buffer=65536)
    outcome = eqfuse.run("compile", "in.onnx", "--target", target, "-o", "build")
    assert (outcome.code, outcome.err) == (0, "")
    assert "verification: passed, 1 output(s)" in outcome.out


def test_columns_of_heads_fit_the_buffer_for_weights(eqfuse: CommandLine) -> None:
    """Half of the 16 KB hold 32 of the 128 columns, which lie along two axes once they are heads."""
    text = """
        heads = Constant<value = int64[4] {1, 128, 2, 64}>() m = MatMul(x, w) a = Add(m, b)
        r = Reshape(a, heads) y = Transpose<perm=[0,2,1,3]>(r)
    """
    onnx.save(float_model(text, (1, 128, 128), {"w": (128, 128), "b": (128,)}), "in.onnx")
    outcome = eqfuse.run("compile", "in.onnx", "--target", "dsa-stcp920", "--floats", "float16", "-o", "build")
    assert (outcome.code, outcome.err) == (0, "")


def test_a_quantised_network_moves_and_multiplies_bytes(eqfuse: CommandLine) -> None:
    """Each layer hands on what it has rounded, and all large products are of integers."""
    text = "a = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, u, b) r = Relu(a) y = Conv<kernel_shape=[1,1]>(r, v, c)"
    weights = {"u": (64, 32, 3, 3), "b": (64,), "v": (48, 64, 1, 1), "c": (48,)}
    quantised(float_model(text, (1, 32, 14, 14), weights), Path()).rename("in.onnx")
    assert "verification: passed, 1 output(s)" in compiled(eqfuse, "--batch", 4).out
    program = load_json(Path("build/program.json").read_text())
    products = [p for each in program.instructions if isinstance(each, Compute) for w in each.work for p in w.products]
    assert products
    assert all(product.eight_bits for product in products)
    made = [each.dtype for each in program.buffers if each.role is Role.INTERMEDIATE and len(each.shape) == 4]
    assert set(made) == {"float32", "int8"}  # the input is copied as it comes
    assert made.count("int8") > 1


@pytest.mark.conformance
def test_floats_may_be_narrower_than_the_models(eqfuse: CommandLine) -> None:
    written(transformer())
    assert "verification: passed" in compiled(eqfuse, "--floats", "float16").out
    said = json.loads(eqfuse.run("run", "build", "--random", 0, "--json").out)
    assert said["outputs"]["y"]["type"] == "float32"


@pytest.mark.conformance
def test_nothing_is_verified_where_that_is_not_wanted(eqfuse: CommandLine) -> None:
    written(transformer())
    assert "verification: none (--no-verify)" in compiled(eqfuse, "--no-verify").out
    assert eqfuse.run("run", "build", "--random", 0).code == 0


def test_the_bundle_holds_the_program_for_people_and_tools(eqfuse: CommandLine) -> None:
    written(transformer())
    said = compiled(eqfuse, "--no-verify").out
    program = load_json(Path("build/program.json").read_text())
    assert f"instructions ({len(program.instructions)}):" in Path("build/program.txt").read_text()
    assert json.loads(Path("build/trace.json").read_text())["traceEvents"]
    assert "A run over time" in Path("build/report.html").read_text()
    assert "build/report.html" in said
    section = read_manifest(Path("build")).dsa
    assert section is not None
    assert section["batch"] == 1


@pytest.mark.conformance
def test_the_same_again_comes_from_the_cache(eqfuse: CommandLine) -> None:
    written(transformer())
    compiled(eqfuse, "--no-verify", "--seed", 7)
    assert "taken from the cache" in compiled(eqfuse, "--no-verify", "--seed", 7).out


@pytest.mark.conformance
def test_kernels_of_another_machine_are_compiled_again(eqfuse: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    written(transformer())
    compiled(eqfuse)
    model = load("build")
    inputs = random_inputs(model.inputs, 0)
    first = model.run(inputs)
    monkeypatch.setattr("eqfuse.lowering.dsa.bundle.files.made_for", dict)
    again = load("build").run(inputs)
    assert all(np.array_equal(again[name], first[name]) for name in first)


@pytest.mark.representatives(1)
@pytest.mark.parametrize("floats", ["float32", "float16"])
def test_a_program_that_is_wrong_is_not_published(
    eqfuse: CommandLine, monkeypatch: pytest.MonkeyPatch, floats: str
) -> None:
    eqfuse.model("in.onnx", [helper.make_node("Relu", ["x"], ["y"])], (1, 8, 4))
    right = IsolatedSimulation.run_programs

    def wrong(*given: Any) -> dict[str, Any]:
        return {name: array * 1.1 for name, array in right(*given).items()}

    monkeypatch.setattr(IsolatedSimulation, "run_programs", wrong)
    monkeypatch.setattr(check, "call_isolated", lambda _, function, *arguments: function(*arguments))
    error = eqfuse.fail(3, "compile", "in.onnx", "--target", TARGET, "-o", "build", "--floats", floats, "--seed", 11)
    assert "the program differs from the original" in error
    assert not Path("build").exists()


def test_a_damaged_bundle_is_named(eqfuse: CommandLine) -> None:
    written(transformer())
    compiled(eqfuse, "--no-verify")
    Path("build/constants.bin").write_bytes(b"")
    assert "build/constants.bin: was changed" in eqfuse.fail(1, "run", "build", "--random", 0)


# --- bench


def test_the_time_report_is_printed(eqfuse: CommandLine) -> None:
    written(transformer())
    compiled(eqfuse, "--no-verify")
    outcome = eqfuse.run("bench", "build", "--trace", "t.json")
    expected = (
        "simulated time", "throughput", "DDR, bytes read", "mme occupied", "tensors in LB", "lower bound / cycles",
    )  # fmt: skip
    assert outcome.code == 0
    assert [text for text in expected if text not in outcome.out] == []
    assert json.loads(Path("t.json").read_text())["traceEvents"]


@pytest.mark.parametrize("variant", ["tvm", "full"])
def test_a_variant_is_compared_with(eqfuse: CommandLine, variant: str) -> None:
    written(transformer())
    compiled(eqfuse, "--no-verify")
    said = json.loads(eqfuse.run("bench", "build", "--against", variant, "--json").out)
    own, other = said["variants"].values()
    assert said["speed-up"] == pytest.approx(other["cycles"] / own["cycles"])
    assert variant != "full" or own == other


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--against", "ort"), "--against ort: the time of build is simulated"),
        (("--kernels",), "--kernels: build is a program for an accelerator"),
        (("--trace", "nowhere/t.json"), "nowhere does not exist"),
    ],
)
def test_what_bench_cannot_do(eqfuse: CommandLine, arguments: tuple[str, ...], message: str) -> None:
    written(transformer())
    compiled(eqfuse, "--no-verify")
    assert message in eqfuse.fail(2, "bench", "build", *arguments)


def test_other_bundles_have_no_variants(eqfuse: CommandLine) -> None:
    eqfuse.small()
    eqfuse.run("compile", "in.onnx", "-o", "build", "-q", "--no-verify")
    assert "--against tvm: is for programs of an accelerator" in eqfuse.fail(2, "bench", "build", "--against", "tvm")


def test_a_folder_that_is_missing_is_named_before_what_it_may_lack(eqfuse: CommandLine) -> None:
    assert "gone: no such folder" in eqfuse.fail(1, "bench", "gone", "--against", "tvm")


# --- refusals


def refusal(eqfuse: CommandLine, *arguments: object) -> Outcome:
    outcome = eqfuse.run("compile", "in.onnx", "-o", "build", *arguments)
    assert outcome.code in (1, 2, 3)
    assert not Path("build").exists()
    return outcome


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--target", "dsa-stcp921"), "unknown; the targets are host"),
        (("--target", "dsa-nothing.toml"), "there is no device 'nothing.toml'"),
        (("--target", TARGET, "--threads", "2"), "--threads: is for processors"),
        (("--target", TARGET, "--batch", "8", "--per-cluster", "9"), "batch 8: has no 9 samples for a program"),
    ],
)
def test_options_that_do_not_fit(eqfuse: CommandLine, arguments: tuple[str, ...], message: str) -> None:
    written(transformer())
    assert message in refusal(eqfuse, *arguments).error


def test_impossible_figures_of_a_device_are_named(eqfuse: CommandLine) -> None:
    written(transformer())
    target = tiny_device(weight_buffer=262144)
    message = "tiny.toml: the 262144 bytes of weight_buffer do not leave room in the 262144 bytes of local_buffer"
    assert message in refusal(eqfuse, "--target", target).error


def test_a_tensor_that_does_not_fit_is_named(eqfuse: CommandLine) -> None:
    written(transformer(length=64))
    sizes = {"local_buffer": 1024, "weight_buffer": 512, "global_buffer": 2048, "ddr_capacity": 2048}
    message = refusal(eqfuse, "--target", tiny_device(**sizes)).error
    assert "tensor '" in message
    assert "do not fit the 2048 bytes of DDR" in message


@pytest.mark.representatives(1)
@pytest.mark.parametrize(
    ("arguments", "shape"), [((), [1, 128, 4]), (("--typical", "length=6"), [1, 6, 4]), (("--batch", 4), [4, 128, 4])]
)
def test_dynamic_dimensions_have_the_size_that_is_optimised_for(
    eqfuse: CommandLine, arguments: tuple[object, ...], shape: list[int]
) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    eqfuse.model("in.onnx", nodes, ("N", "length", 4))
    assert "verification: passed" in compiled(eqfuse, *arguments).out
    assert [list(port.shape) for port in read_manifest(Path("build")).inputs] == [shape]


def test_a_program_that_no_input_can_verify_is_not_written(eqfuse: CommandLine) -> None:
    """No float32 is larger than the constant, so the output is 0 for all inputs."""
    nodes = [helper.make_node("Greater", ["x", "w"], ["c"]), helper.make_node("Cast", ["c"], ["y"], to=1)]
    eqfuse.model("in.onnx", nodes, (2, 4), w=np.full((4,), np.finfo(np.float32).max, np.float32))
    error = refusal(eqfuse, "--target", TARGET).error
    assert "no input shows whether the program is right: 'y' did not change with the inputs" in error
    assert "nothing was written; --no-verify does without" in error
    assert "verification: none" in compiled(eqfuse, "--no-verify").out


def test_an_output_that_moves_less_than_rounding_allows_is_not_called_verified(eqfuse: CommandLine) -> None:
    """About 1 for all inputs: numbers that float16 does not tell apart, while float32 does."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Add", ["a", "b"], ["y"])]
    weights = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32) * 1e-6
    eqfuse.model("in.onnx", nodes, (2, 16), w=weights, b=np.ones(8, np.float32))
    error = refusal(eqfuse, "--target", TARGET, "--floats", "float16").error
    assert "no input shows whether the program is right: 'y' changes with the inputs by less than twice the" in error
    assert "verification: passed" in compiled(eqfuse).out


def test_an_operator_that_nothing_runs_is_named(eqfuse: CommandLine) -> None:
    nodes = [helper.make_node("Odd", ["x"], ["y"], name="n", domain="odd")]
    model = onnx.load(eqfuse.model("in.onnx", nodes, (4, 4)))
    model.opset_import.append(helper.make_opsetid("odd", 1))
    written(model)
    outcome = eqfuse.run("compile", "in.onnx", "-o", "build", "--target", TARGET)
    assert (outcome.code, Path("build").exists()) == (3, False)
    assert "nothing was verified, the original cannot be loaded: odd:Odd(-1)" in outcome.error


def test_an_output_that_is_a_constant_is_named(eqfuse: CommandLine) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["z"]),
        helper.make_node("Sub", ["w", "w"], ["c"]),
        helper.make_node("Add", ["c", "w"], ["y"]),
    ]
    model = onnx.load(eqfuse.model("in.onnx", nodes, w=np.ones((2, 3))))
    model.graph.output.append(helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, (2, 3)))
    written(model)
    assert "output 'y' is " in refusal(eqfuse, "--target", TARGET).error


# --- names


def test_accelerators_are_listed_where_targets_are(eqfuse: CommandLine) -> None:
    written(transformer())
    error = refusal(eqfuse, "--target", "nonsense").error
    assert [name for name in dsa_device_names() if f"dsa-{name}" not in error] == []


def test_the_options_know_all_names() -> None:
    assert set(get_args(VariantName)) == set(VARIANTS)
    assert set(get_args(OrderName)) == set(_ORDERS)
    assert set(get_args(Floats)) == set(WIDTHS)


def test_help_says_what_is_for_accelerators(eqfuse: CommandLine) -> None:
    said = eqfuse.run("compile", "--help").out
    assert [
        o for o in ("dsa-NAME", "--batch", "--floats", "--variant", "--order", "--per-cluster") if o not in said
    ] == []
