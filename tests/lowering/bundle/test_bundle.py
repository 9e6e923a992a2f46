"""Bundles: loading and running them, and refusing damaged ones with one clear line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqfuse
from eqfuse.lowering.base.errors import BundleError
from eqfuse.lowering.bundle.bundle import MANIFEST, check_destination, check_file, publish, read_manifest, stage_bundle
from eqfuse.lowering.plan.manifest import BACK_ENDS, FORMAT, parse_manifest
from eqfuse.lowering.running import runner
from eqfuse.support.errors import UsageError

from ..conftest import _compiled
from ..small_models import chain, expected, random_inputs, with_fallback

Edit = Callable[[dict[str, Any]], object]


@pytest.fixture
def bundle(plain_bundle: Path, tmp_path: Path) -> Path:
    """A bundle that the test may spoil."""
    return Path(shutil.copytree(plain_bundle, tmp_path / "bundle"))


def edit_manifest(bundle: Path, edit: Edit) -> Path:
    content = json.loads((bundle / MANIFEST).read_text())
    edit(content)
    (bundle / MANIFEST).write_text(json.dumps(content))
    return bundle


def reseal(bundle: Path, edit: Edit) -> Path:
    """Edit the manifest and its digest too, for the checks behind that of the digest."""
    from eqfuse.lowering.plan import manifest

    content = json.loads((bundle / MANIFEST).read_text())
    edit(content)
    del content["digest"]
    (bundle / MANIFEST).write_text(json.dumps({**content, "digest": manifest._digest(content)}))
    return bundle


def refusal(bundle: Path) -> str:
    """The message about a bundle that is not loaded, without the folder."""
    with pytest.raises(BundleError) as refused:
        eqfuse.load(bundle)
    message = str(refused.value)
    assert "\n" not in message
    return message.replace(str(bundle), "bundle")


# --- running


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that are started find no compiler: to import a part of one is an error."""
    for name in ("tvm", "tvm_ffi", "onnx", "onnx_ir", "onnxruntime", "egglog", "rustworkx", "scipy", "z3"):
        (tmp_path / f"{name}.py").write_text("raise ImportError(__name__)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.usefixtures("alone")
def test_a_bundle_is_loaded_and_run_without_compilers(plain_bundle: Path) -> None:
    script = (
        "import sys, numpy, eqfuse; x = numpy.ones((4, 8), numpy.float32); model = eqfuse.load(sys.argv[1]);"
        "print(model(x).shape, *{'eqfuse.api', 'eqfuse.engine'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script, plain_bundle], capture_output=True, text=True, check=True)
    assert done.stdout == "(4, 8)\n"


@pytest.mark.usefixtures("alone")
def test_the_command_that_runs_a_bundle_needs_no_compilers(plain_bundle: Path) -> None:
    command = [sys.executable, "-m", "eqfuse", "run", str(plain_bundle), "--random", "0", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["outputs"]["y"]["shape"] == [4, 8]


def test_one_output_comes_as_an_array(plain_bundle: Path) -> None:
    inputs = random_inputs(chain())
    result = eqfuse.load(plain_bundle)(inputs["x"])
    np.testing.assert_allclose(result, expected(chain(), inputs)["y"], rtol=1e-5, atol=1e-6)


def test_inputs_may_be_named(plain_bundle: Path) -> None:
    model, x = eqfuse.load(str(plain_bundle)), random_inputs(chain())["x"]
    np.testing.assert_array_equal(model(x=x), model(x))


def test_several_outputs_come_by_name(mixed_bundle: Path) -> None:
    inputs = random_inputs(with_fallback())
    result = eqfuse.load(mixed_bundle)(*inputs.values())
    assert isinstance(result, dict)
    for name, wanted in expected(with_fallback(), inputs).items():
        np.testing.assert_allclose(result[name], wanted, rtol=1e-5, atol=1e-6, err_msg=name)


def test_results_stay_when_the_model_runs_again(plain_bundle: Path) -> None:
    model = eqfuse.load(plain_bundle)
    first = model(np.ones((4, 8), np.float32))
    kept = np.array(first)
    model(np.zeros((4, 8), np.float32))
    np.testing.assert_array_equal(first, kept)


def test_an_input_may_lie_in_memory_in_any_order(plain_bundle: Path) -> None:
    model, x = eqfuse.load(plain_bundle), random_inputs(chain())["x"]
    np.testing.assert_array_equal(model(np.asfortranarray(x)), model(x))


def test_two_bundles_with_fallbacks_do_not_mix(mixed_bundle: Path, smallest_bundle: Path) -> None:
    first, second = eqfuse.load(mixed_bundle), eqfuse.load(smallest_bundle)
    inputs = random_inputs(with_fallback())
    assert not np.array_equal(first(**inputs)["y"], second(**inputs)["y"])


@pytest.mark.conformance
def test_a_bundle_that_was_compiled_again_is_loaded_anew(tmp_path: Path) -> None:
    x = np.ones((4, 8), np.float32)
    first = eqfuse.load(_compiled(tmp_path, chain()))(x)
    proto = chain()
    proto.graph.node[1].op_type = "Neg"
    second = eqfuse.load(_compiled(tmp_path, proto))(x)
    assert not np.array_equal(first, second)


# --- wrong inputs


@pytest.mark.parametrize(
    ("arrays", "named", "message"),
    [
        ((), {}, "input 'x' is missing; the inputs are x: float32[4, 8]"),
        ((), {"z": np.zeros(1)}, "there is no input 'z'; the inputs are x: float32[4, 8]"),
        ((np.zeros((4, 8)),), {}, "input 'x': must be float32, not float64"),
        ((np.zeros((8, 4), np.float32),), {}, "input 'x': must have the shape [4, 8], not [8, 4]"),
        ((np.zeros((4, 8), np.float32),) * 2, {}, "2 inputs were given, and the model has 1"),
        ((1,), {"x": 2}, "input 'x' was given twice: by its place and by its name"),
        (([["a"]],), {}, "input 'x': is no array of float32"),
    ],
)
def test_inputs_that_do_not_fit(
    plain_bundle: Path, arrays: tuple[Any, ...], named: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as refused:
        eqfuse.load(plain_bundle)(*arrays, **named)
    assert message in str(refused.value)


# --- the manifest


def test_the_manifest_comes_back_as_it_was_written(mixed_bundle: Path) -> None:
    manifest = read_manifest(mixed_bundle)
    assert parse_manifest(manifest.text(), "again") == manifest


@pytest.mark.parametrize("name", BACK_ENDS)
def test_a_field_of_the_manifest_names_the_folder_that_runs_the_bundle(name: str, plain_bundle: Path) -> None:
    manifest = read_manifest(plain_bundle)
    assert manifest.back_end == ""
    assert replace(manifest, **{name: {}}).back_end == name
    assert callable(runner.find_back_end(name).load)


def test_the_manifest_says_what_was_compiled(mixed_bundle: Path) -> None:
    manifest = read_manifest(mixed_bundle)
    assert [str(port) for port in manifest.inputs] == ["x: float32[1, 1, 4, 8]", "bias: float32[1, 3]"]
    assert [str(port) for port in manifest.outputs] == ["y: float32[1, 1, 2, 3]", "pooled: float32[1, 1, 2, 3]"]
    assert manifest.provenance.verification.startswith("passed, 2 output(s)")
    assert manifest.provenance.certificate.startswith("checked by z3: ")
    assert sorted(manifest.files) == ["fallback/0.onnx", "kernels.json", "model.so", "plan.json", "weights.bin"]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda m: m.pop("threads"), "field threads: missing"),
        (lambda m: m.update(threads=0), "field threads: must be at least 1, not 0"),
        (lambda m: m.update(threads=10**9), "field threads: must be at most 1024, not 1000000000"),
        (lambda m: m.update(precision="\ud800"), "was changed after it was written (its digest differs)"),
        (lambda m: m.update(threads="two"), "field threads: must be a whole number, not 'two'"),
        (lambda m: m.pop("format"), "field format: missing, or no whole number"),
        (lambda m: m.update(format=True), "field format: missing, or no whole number"),
        # Libraries of format 2 have no function that sets the number of threads.
        (lambda m: m.update(format=2), "was compiled by an older version of eqfuse (its format is 2, and this version"),
        # Those of format 6 have no outputs whose memory grows.
        (lambda m: m.update(format=6), "was compiled by an older version of eqfuse (its format is 6, and this version"),
        (lambda m: m.update(format=FORMAT + 1), f"by a newer version of eqfuse (its format is {FORMAT + 1}, and"),
        (lambda m: m.update(extra=1), "field extra: unknown"),
        (lambda m: m["inputs"][0].update(dtype="float33"), "field inputs[0].dtype: 'float33' is no element type"),
        (lambda m: m["inputs"][0].update(dtype="object"), "field inputs[0].dtype: 'object' is no element type"),
        (lambda m: m["inputs"][0].update(dtype="\ud800"), "field inputs[0].dtype: '\\ud800' is no element type"),
        (lambda m: m["inputs"][0].update(shape=[-1]), "field inputs[0].shape: must be a list of sizes, not [-1]"),
        (
            lambda m: m["inputs"][0].update(shape=[10**9, 10**9]),
            "field inputs[0].shape: is no tensor's that fits into memory: [1000000000, 1000000000]",
        ),
        (lambda m: m["inputs"][0].update(shape=[1] * 65), "field inputs[0].shape: is no tensor's that fits"),
        (lambda m: m["inputs"].append(m["inputs"][0]), "field inputs[1].name: 'x' is there twice"),
        (lambda m: m["files"].update({"../a": "0" * 64}), "field files.../a: is no file in the bundle"),
        (
            lambda m: m["files"].update({"model.so": "0"}),
            "field files.model.so: must be 64 hexadecimal digits, not '0'",
        ),
        (lambda m: m.update(library="other.so"), "field library: 'other.so' is not among the files"),
        (lambda m: m["provenance"].update(kernels=None), "field provenance.kernels: must be a whole number, not None"),
        (lambda m: m["inputs"][0].update(shape=[8, 4]), "was changed after it was written (its digest differs)"),
    ],
)
def test_an_edited_manifest_is_refused(bundle: Path, edit: Edit, message: str) -> None:
    refused = refusal(edit_manifest(bundle, edit))
    assert refused.startswith(f"bundle/{MANIFEST}: ")
    assert message in refused


@pytest.mark.parametrize("text", ["", "[]", "{", "\xff", "[" * 100_000])
def test_what_is_no_manifest_is_refused(bundle: Path, text: str) -> None:
    (bundle / MANIFEST).write_bytes(text.encode("latin-1"))
    assert refusal(bundle).startswith(f"bundle/{MANIFEST}: ")


# --- the files and the machine


def test_an_edited_library_is_refused(bundle: Path) -> None:
    with (bundle / "model.so").open("ab") as library:
        library.write(b"x")
    assert refusal(bundle) == "bundle/model.so: was changed (its checksum differs); compile the model again"


@pytest.mark.parametrize("kept", [0, 1000])
def test_a_library_that_was_cut_off_is_refused(bundle: Path, kept: int) -> None:
    os.truncate(bundle / "model.so", kept)
    assert refusal(bundle) == "bundle/model.so: was changed (its checksum differs); compile the model again"


def test_what_is_loaded_is_what_was_checked(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library is another one from right after it was looked at; what was looked at is loaded."""
    x = random_inputs(chain())["x"]
    wanted = eqfuse.load(bundle)(x)

    def replace_after_check(*arguments: Any) -> None:
        check_file(*arguments)
        (bundle / "other.so").write_bytes(b"")
        (bundle / "other.so").replace(bundle / "model.so")

    monkeypatch.setattr(runner, "check_file", replace_after_check)
    np.testing.assert_array_equal(eqfuse.load(bundle)(x), wanted)


@pytest.mark.parametrize("threads", [0, 1025, 10**9])
def test_a_number_of_threads_that_cannot_be_had_is_refused(plain_bundle: Path, threads: int) -> None:
    with pytest.raises(UsageError, match=f"threads: must be 1 to 1024, not {threads}"):
        eqfuse.load(plain_bundle, threads)


def test_it_runs_on_no_more_threads_than_there_are_cores(bundle: Path) -> None:
    edit_manifest = reseal(bundle, lambda m: m.update(threads=1024))
    assert eqfuse.load(edit_manifest).threads == min(1024, os.cpu_count() or 1)


def test_a_missing_file_is_named(bundle: Path) -> None:
    (bundle / "model.so").unlink()
    assert refusal(bundle) == "bundle/model.so: is missing; compile the model again"


def test_another_architecture_is_refused(bundle: Path) -> None:
    refused = refusal(reseal(bundle, lambda m: m["platform"].update(architecture="riscv64")))
    assert refused.startswith("bundle: was compiled for riscv64 (host), and this machine is ")


def test_a_processor_that_lacks_instructions_is_refused(bundle: Path) -> None:
    refused = refusal(reseal(bundle, lambda m: m["platform"]["features"].append("avx1024")))
    assert "this processor has no avx1024" in refused


def test_weights_that_are_a_pipe_are_missing(bundle: Path) -> None:
    """Opening one would wait for somebody to write."""
    (bundle / "weights.bin").unlink()
    os.mkfifo(bundle / "weights.bin")
    assert refusal(bundle) == "bundle/weights.bin: is missing; compile the model again"


def test_weights_that_were_changed_are_refused(bundle: Path) -> None:
    content = bytearray((bundle / "weights.bin").read_bytes())
    content[0] ^= 1
    (bundle / "weights.bin").write_bytes(content)
    assert refusal(bundle) == "bundle/weights.bin: was changed (its checksum differs); compile the model again"


def test_a_folder_that_is_no_bundle_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path) == f"bundle: is no compiled bundle: it has no {MANIFEST}"


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "no such folder" in refusal(tmp_path / "nothing")


# --- the destination


def test_a_folder_with_other_things_in_it_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("")
    with pytest.raises(UsageError, match="with other things in it"):
        check_destination(tmp_path)


def test_what_was_put_there_meanwhile_stays_as_it_is(tmp_path: Path) -> None:
    with stage_bundle(tmp_path / "build") as folder:
        (folder / MANIFEST).touch()
        (tmp_path / "build").write_text("thesis")
        with pytest.raises(UsageError, match="is a file"):
            publish(folder, tmp_path / "build")
    assert (tmp_path / "build").read_text() == "thesis"
    assert list(tmp_path.iterdir()) == [tmp_path / "build"]


def test_a_bundle_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "build").write_text("")
    with pytest.raises(UsageError, match="is a file"):
        check_destination(tmp_path / "build")


def test_the_folder_above_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        check_destination(tmp_path / "a" / "b")
