"""Packages of others, unchanged but for the import, with compiled code in them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from .programs import SECONDS, exchange_import, install

pytestmark = pytest.mark.conformance

SILERO = """
import sys, types, unittest.mock
import numpy as np
folder, model = sys.argv[1:3]
package = types.ModuleType("silero_vad")  # its __init__ wants torch
package.__path__ = [folder]
sys.modules["silero_vad"] = package
sys.modules["torch"] = unittest.mock.MagicMock()  # which what is used of it does without
from silero_vad.sequence_vad import SileroVADSequence

vad = SileroVADSequence(model)
audio = (np.sin(np.arange(16000 * 4) * 0.05) * np.random.default_rng(0).random(16000 * 4)).astype(np.float32)
def once():
    return [vad.audio_forward(audio).tolist()]
"""
RAPID = """
import sys
import cv2
import numpy as np
from rapidocr_onnxruntime import RapidOCR

image = np.full((96, 320, 3), 255, np.uint8)
cv2.putText(image, "eqfuse 2026", (20, 60), cv2.FONT_HERSHEY_SIMPLEX, 1.2, (0, 0, 0), 2)
engine = RapidOCR()
def once():
    result, _ = engine(image)
    return [[np.array(box).tolist(), text, float(score)] for box, text, score in result]
"""
LOOP = """
import json, time
results, reports = once(), []
if "eqfuse" in sys.modules:
    from eqfuse.driver.session import session as sessions
    limit = time.monotonic() + 600
    while time.monotonic() < limit:
        results = once()
        reports = [size for each in list(sessions._sessions) for size in each.report().sizes]
        if any(size.compiled_calls for size in reports):
            break
        ended = [not size.reason.startswith(("being", "waits", "compiled")) for size in reports]
        if all(ended):
            break
    results = once()
print(json.dumps([results, [str(size) for size in reports]]))
"""


def exchange_imports(folder: Path) -> int:
    """Have a package import eqfuse; how many files that changes."""
    count = 0
    for path in folder.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        changed = exchange_import(text)
        if changed != text:
            count += 1
            path.write_text(changed, encoding="utf-8")
    return count


@pytest.mark.parametrize(
    ("names", "package", "program"),
    [
        (["silero-vad"], "silero_vad", SILERO),
        (
            ["rapidocr_onnxruntime", "pyclipper", "shapely", "PyYAML", "opencv-python-headless", "tqdm", "six",
             "pillow"],
            "rapidocr_onnxruntime", RAPID,
        ),
    ],
)  # fmt: skip
def test_packages_run_unchanged_but_for_the_import(
    names: list[str], package: str, program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    install(names, tmp_path / "before", "--no-deps")
    shutil.copytree(tmp_path / "before", tmp_path / "after")
    assert exchange_imports(tmp_path / "after" / package)
    results = []
    for folder in (tmp_path / "before", tmp_path / "after"):
        models = sorted((folder / package).rglob("*sequence*.onnx"))
        command = [sys.executable, "-c", program + LOOP, folder / package, *models[:1]]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])}
        result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS + 120)
        assert result.returncode == 0, result.stderr[-2000:]
        results.append(json.loads(result.stdout.splitlines()[-1]))
    (before, _), (after, reports) = results
    assert any("compiled code" in report for report in reports), reports
    assert len(before) == len(after)
    for expected, computed in zip(before, after, strict=True):
        if package == "silero_vad":
            np.testing.assert_allclose(computed, expected, atol=1e-3)
        else:
            np.testing.assert_allclose(computed[0], expected[0], atol=1.0)
            assert computed[1] == expected[1]
            np.testing.assert_allclose(computed[2], expected[2], atol=1e-3)
