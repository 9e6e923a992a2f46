"""Several threads run one loaded model at once, or several models: each gets the results of its own inputs."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import eqfuse
from eqfuse.lowering.bundle.bundle import read_manifest, write_manifest
from eqfuse.lowering.bundle.loaded import LoadedModel
from eqfuse.lowering.running import runner

from ..small_models import Array, random_inputs, with_fallback

SECONDS = 30.0
"""How long a thread waits for the others before the test fails."""


def in_threads(*functions: Callable[[], Any]) -> list[Any]:
    """What they return, each from a thread of its own."""
    results: list[Any] = [None] * len(functions)

    def call(number: int) -> None:
        try:
            results[number] = functions[number]()
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.fixture
def meeting(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Once it is called, that many threads meet in every run of ONNX Runtime: their runs go on at once."""
    barriers: list[threading.Barrier] = []

    class Session(onnxruntime.InferenceSession):  # type: ignore[misc]
        def run_with_iobinding(self, *arguments: Any) -> None:
            for barrier in barriers:
                barrier.wait(SECONDS)
            super().run_with_iobinding(*arguments)

    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    return lambda threads: barriers.append(threading.Barrier(threads))


def shared_by_two(bundle: Path, tmp_path: Path) -> Path:
    """A copy of the bundle that says of itself that its kernels share their loops among two threads."""
    shutil.copytree(bundle, tmp_path / "shared")
    write_manifest(tmp_path / "shared", replace(read_manifest(bundle), threads=2))
    return tmp_path / "shared"


def differences(model: LoadedModel, inputs: dict[str, Array], wanted: dict[str, Array], runs: int) -> list[str]:
    """Outputs that are not the same in each of `runs` runs."""
    every_run = [model.run(inputs) for _ in range(runs)]
    return [name for results in every_run for name in wanted if not np.array_equal(results[name], wanted[name])]


def alone_and_together(models: Sequence[LoadedModel], meeting: Callable[[int], None]) -> list[list[str]]:
    """What each of the models computes otherwise in 50 runs, all of them at once, than alone."""
    inputs = [random_inputs(with_fallback(), seed) for seed in range(len(models))]
    wanted = [model.run(given) for model, given in zip(models, inputs, strict=True)]
    meeting(len(models))
    cases = zip(models, inputs, wanted, strict=True)
    return in_threads(*(partial(differences, *case, 50) for case in cases))


@pytest.mark.parametrize("shared", [False, True])
def test_threads_may_run_one_model_at_once(
    mixed_bundle: Path, tmp_path: Path, meeting: Callable[[int], None], shared: bool
) -> None:
    model = eqfuse.load(shared_by_two(mixed_bundle, tmp_path) if shared else mixed_bundle)
    assert alone_and_together([model] * 4, meeting) == [[]] * 4


def test_threads_may_run_several_models_that_call_onnx_runtime(
    mixed_bundle: Path, smallest_bundle: Path, meeting: Callable[[int], None]
) -> None:
    models = [eqfuse.load(mixed_bundle), eqfuse.load(smallest_bundle)]
    assert alone_and_together([*models, *models], meeting) == [[]] * 4


def test_a_model_may_be_loaded_while_another_runs(mixed_bundle: Path, meeting: Callable[[int], None]) -> None:
    first, inputs = eqfuse.load(mixed_bundle), random_inputs(with_fallback())
    wanted = first.run(inputs)
    second: list[LoadedModel] = []
    meeting(2)

    def load_then_run() -> list[str]:
        """The first model waits in ONNX Runtime until this runs."""
        second.append(eqfuse.load(mixed_bundle))
        return differences(second[0], inputs, wanted, 1)

    assert in_threads(lambda: differences(first, inputs, wanted, 1), load_then_run) == [[], []]


def test_weights_are_loaded_once_for_all_threads(mixed_bundle: Path, meeting: Callable[[int], None]) -> None:
    model = runner.CompiledModel(mixed_bundle)
    libraries = []
    original = runner.CompiledModel._load_library

    def loaded(self: runner.CompiledModel) -> Any:
        libraries.append(self.path)
        return original(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner.CompiledModel, "_load_library", loaded)
        alone_and_together([model] * 4, meeting)
    assert libraries == []
    assert len(model._idle) == 4


def test_threads_that_end_leave_none_behind(plain_bundle: Path, tmp_path: Path) -> None:
    model, x = eqfuse.load(shared_by_two(plain_bundle, tmp_path), 2), np.zeros((4, 8), np.float32)

    def after(runs: int) -> int:
        for _ in range(runs):
            in_threads(lambda: model(x))
        return len(list(Path("/proc/self/task").iterdir()))

    assert after(40) - after(10) < 20
