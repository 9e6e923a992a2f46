"""Inputs from users: the files and folders that hold them, and messages on those that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from eqfuse.engine.verification.inputs.given import Sample, read_samples
from eqfuse.support.errors import UsageError

from ..models import normal, value

INPUTS = [value("x", ["n", 3]), value("m", ["n"], TensorProto.INT64)]
FITTING: dict[str, NDArray[Any]] = {"x": normal(2, 3), "m": np.array([1, 2])}


def archive(path: Path, **arrays: NDArray[Any]) -> Path:
    np.savez(path, **arrays)
    return path


def assert_fitting(sample: Sample, factor: int = 1) -> None:
    assert list(sample.values) == ["x", "m"]
    np.testing.assert_array_equal(sample.values["x"], FITTING["x"] * np.float32(factor))


def test_an_archive_is_one_sample(tmp_path: Path) -> None:
    (sample,) = read_samples([archive(tmp_path / "a.npz", **FITTING)], INPUTS)
    assert_fitting(sample)


def test_a_folder_of_archives_holds_several_in_the_order_of_their_names(tmp_path: Path) -> None:
    for factor, name in enumerate(("a.npz", "b.npz"), start=1):
        archive(tmp_path / name, x=FITTING["x"] * np.float32(factor), m=FITTING["m"])
    for factor, sample in enumerate(read_samples([tmp_path], INPUTS), start=1):
        assert_fitting(sample, factor)
        assert sample.origin == str(tmp_path / f"{'ab'[factor - 1]}.npz")


def test_a_folder_of_arrays_is_one_sample(tmp_path: Path) -> None:
    for name, array in FITTING.items():
        np.save(tmp_path / f"{name}.npy", array)
    (sample,) = read_samples([tmp_path], INPUTS)
    assert_fitting(sample)


@pytest.mark.parametrize("folder", [".", "test_data_set_0"])
def test_test_data_of_onnx_is_taken_by_position(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir(exist_ok=True)
    for number, array in enumerate(FITTING.values()):
        tensor = numpy_helper.from_array(array, "another name")
        (tmp_path / folder / f"input_{number}.pb").write_bytes(tensor.SerializeToString())
    (tmp_path / folder / "output_0.pb").write_bytes(b"is not read")
    (sample,) = read_samples([tmp_path], INPUTS)
    assert_fitting(sample)


def test_paths_add_up(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.npz", **FITTING)
    assert len(read_samples([path, path], INPUTS)) == 2


def test_types_that_numpy_lacks_are_read(tmp_path: Path) -> None:
    """Saved as what numpy has for unknown types."""
    bfloat16 = onnx.helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16)
    path = archive(tmp_path / "a.npz", x=normal(4).astype(bfloat16))
    (sample,) = read_samples([path], [value("x", [4], TensorProto.BFLOAT16)])
    assert sample.values["x"].dtype == bfloat16


def test_texts_are_read(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.npz", x=np.array(["a", "bc"]))
    (sample,) = read_samples([path], [value("x", [2], TensorProto.STRING)])
    assert sample.values["x"].tolist() == ["a", "bc"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"m": None}, "lacks the input 'm': int64[n]; it has 'x'"),
        ({"z": normal(1)}, "the model has no input 'z'; its inputs are 'x', 'm'"),
        ({"x": normal(2, 3).astype(np.float64)}, "'x' is float64, and the model wants float32; convert it by .astype"),
        ({"x": normal(2, 4)}, "'x' has the shape [2, 4], and the model wants 'x': float32[n, 3]"),
        ({"x": normal(3)}, "'x' has the shape [3], and the model wants 'x': float32[n, 3]"),
        ({"m": np.array([1])}, "'m' has the shape [1], and the model wants 'm': int64[n] where n is 2"),
    ],
    ids=["missing", "unknown", "type", "size", "rank", "named size"],
)
def test_what_does_not_fit_is_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    arrays = {name: array for name, array in (FITTING | changes).items() if array is not None}
    path = archive(tmp_path / "a.npz", **arrays)
    with pytest.raises(UsageError) as caught:
        read_samples([path], INPUTS)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gone.npz", None, "no such file or folder of inputs"),
        ("text.npz", b"no archive", "is no .npz file of numbers"),
        ("empty", None, "there are no inputs in this folder"),
        ("broken/x.npy", b"nothing", "is no .npy file of numbers"),
        ("broken/input_0.pb", b"\xff\xff", "is no tensor of ONNX test data"),
        ("many/input_5.pb", b"", "input_5.pb is of none of the model's 2 inputs"),
    ],
)
def test_files_that_hold_no_inputs_are_named(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    if name == "empty":
        path.mkdir()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        read_samples([path if path.parent == tmp_path else path.parent], INPUTS)


def test_a_single_array_is_no_archive(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", normal(2, 3))
    with pytest.raises(UsageError, match=r"is no \.npz file"):
        read_samples([tmp_path / "x.npy"], INPUTS)


def test_inputs_that_are_no_tensors_cannot_be_given(tmp_path: Path) -> None:
    sequence = onnx.helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, [2])
    with pytest.raises(UsageError, match="'s' is no tensor"):
        read_samples([archive(tmp_path / "a.npz", s=normal(2))], [sequence])


def test_the_digest_is_that_of_the_values() -> None:
    one, same, other = (Sample(name, {"x": normal(3, seed=seed)}) for name, seed in (("a", 0), ("b", 0), ("c", 1)))
    assert one.digest == same.digest != other.digest
