"""The session with the process that really compiles: in programs that end, are killed or share it, and in packages."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, load, numpy_helper, save

from eqfuse.driver.session.verdicts import Verdicts, try_lock

pytestmark = pytest.mark.conformance
SECONDS = 600
"""How long a program may take to see compiled code take over, on a machine that has other work."""
PROGRAM = """
import sys, time
import numpy as np
import eqfuse as ort

options = ort.SessionOptions()
options.intra_op_num_threads = 1
session = ort.InferenceSession(sys.argv[1], options)
array = np.ones(session.get_inputs()[0].shape, np.float32)
expected = session.run(None, {"x": array})
limit = time.monotonic() + float(sys.argv[2])
while time.monotonic() < limit:
    results = session.run(None, {"x": array})
    for value, result in zip(expected, results):
        np.testing.assert_allclose(result, value, rtol=1e-4, atol=1e-4)
    (sizes,) = session.report().sizes
    if sizes.compiled_calls or sizes.reason not in ("being compiled", "waits for more calls", "compiled"):
        break
    time.sleep(0.01)
print(sizes.runs_in, "|", sizes.reason, "|", sizes.compiled_calls)
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chain of element-wise operators, which is faster as one kernel."""
    nodes = [helper.make_node("Mul", ["x", "w"], ["v0"])]
    nodes += [helper.make_node(op, [f"v{n}"], [f"v{n + 1}"]) for n, op in enumerate(["Neg", "Abs", "Sqrt", "Relu"] * 3)]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [256, 512])],
        [helper.make_tensor_value_info(f"v{len(nodes) - 1}", TensorProto.FLOAT, [256, 512])],
        [numpy_helper.from_array(np.linspace(0.5, 2, 512, dtype=np.float32), "w")],
    )  # fmt: skip
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/eqfuse/sessions"


def start(model: Path, seconds: float = SECONDS) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM, model, str(seconds)], stdout=subprocess.PIPE, text=True)


def answer(program: subprocess.Popen[str]) -> list[str]:
    """Where its calls ran in the end, and why."""
    output, _ = program.communicate(timeout=SECONDS + 60)
    assert program.returncode == 0
    return [part.strip() for part in output.split("|")]


def compiling(cache: Path) -> list[int]:
    """The processes that compile for sessions with this cache folder."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command, environment = (folder / "cmdline").read_bytes(), (folder / "environ").read_bytes()
        except OSError:
            continue
        if b"eqfuse.driver.session.process" in command and str(cache.parent.parent).encode() in environment:
            found.append(int(folder.name))
    return found


def wait_for_compiler(cache: Path) -> int:
    limit = time.monotonic() + SECONDS
    while not (processes := compiling(cache)):
        assert time.monotonic() < limit
        time.sleep(0.05)
    return processes[0]


def test_compiled_code_takes_over_for_all_processes(model: Path, cache: Path) -> None:
    programs = [start(model) for _ in range(3)]
    for program in programs:
        where, reason, _ = answer(program)
        assert where == "compiled code", reason
    assert len([path for path in cache.iterdir() if not path.name.startswith(".")]) == 1
    assert answer(start(model))[0] == "compiled code"


FREE = """
import sys, time
import numpy as np
import eqfuse as ort

session = ort.InferenceSession(sys.argv[1])
limit = time.monotonic() + 600
for rows in (8, 200, 300):
    array = np.linspace(-2, 2, rows * 512, dtype=np.float32).reshape(rows, 512)
    expected = session.run(None, {"x": array})
    while time.monotonic() < limit:
        (result,) = session.run(None, {"x": array})
        np.testing.assert_allclose(result, expected[0], rtol=1e-4, atol=1e-4)
        sizes = session.report().sizes[-1]
        if sizes.compiled_calls or not sizes.reason.startswith(("being", "waits", "compiled")):
            break
    print(sizes)
"""


def test_sizes_that_vary(model: Path, cache: Path, tmp_path: Path) -> None:
    """The first has code of its own, all others share one."""
    proto = load(model)
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "N"
    save(proto, tmp_path / "free.onnx")
    command = [sys.executable, "-c", FREE, tmp_path / "free.onnx"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS + 60)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("compiled code") >= 2, result.stdout
    keys = [path.name for path in cache.iterdir() if not path.name.startswith(".")]
    assert len(keys) <= 3


def test_a_killed_compiler_is_no_harm_and_leaves_no_lock(model: Path, cache: Path) -> None:
    program = start(model)
    os.kill(wait_for_compiler(cache), signal.SIGKILL)
    where, reason, _ = answer(program)
    assert where == "ONNX Runtime"
    assert "SIGKILL" in reason
    assert answer(start(model))[0] == "compiled code"


def test_the_compiler_outlives_a_killed_program(model: Path, cache: Path) -> None:
    program = start(model)
    compiler = wait_for_compiler(cache)
    time.sleep(2)  # its turn has begun, for nothing else is compiled here
    program.kill()
    program.wait()
    limit = time.monotonic() + SECONDS
    while Path(f"/proc/{compiler}").exists():
        assert time.monotonic() < limit
        time.sleep(0.1)
    (key,) = (path.name for path in cache.iterdir() if not path.name.startswith("."))
    verdict = Verdicts().read(key)
    assert verdict is not None
    assert verdict.takes_over


def test_a_lock_of_another_process_is_waited_for(model: Path, cache: Path) -> None:
    """One at a time: the process that waits for its turn ends with the program that wants it."""
    cache.mkdir(parents=True)
    turn = try_lock(cache / ".compiling.lock")
    program = start(model, 5.0)
    compiler = wait_for_compiler(cache)
    assert answer(program)[1] == "being compiled"
    limit = time.monotonic() + 60
    while Path(f"/proc/{compiler}").exists():
        assert time.monotonic() < limit
        time.sleep(0.1)
    assert turn is not None
    os.close(turn)


@pytest.mark.skipif(os.geteuid() != 0, reason="a disk to fill takes root")
def test_a_full_disk_is_no_harm(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk], check=False).returncode:
        pytest.skip("nothing can be mounted")
    try:
        monkeypatch.setenv("XDG_CACHE_HOME", str(disk))
        (disk / "rest").write_bytes(bytes(40_000))
        where, reason, _ = answer(start(model))
        assert where == "ONNX Runtime"
        assert reason
    finally:
        subprocess.run(["umount", disk], check=True)


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


def install(names: Sequence[str], folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), *names]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        pytest.skip(f"{', '.join(names)} cannot be had: {result.stderr.strip()[-200:]}")


def exchange_imports(folder: Path) -> int:
    """Have a package import eqfuse in the place of ONNX Runtime; how many lines that changes."""
    count = 0
    for path in folder.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        changed = re.sub(r"import onnxruntime as", "import eqfuse as", text)
        changed = re.sub(r"import onnxruntime$", "import eqfuse as onnxruntime", changed, flags=re.MULTILINE)
        changed = changed.replace("from onnxruntime import", "from eqfuse import")
        if changed != text:
            count += sum(a != b for a, b in zip(text.splitlines(), changed.splitlines(), strict=True))
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
    names: list[str], package: str, program: str, tmp_path: Path, cache: Path
) -> None:
    install(names, tmp_path / "before")
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
