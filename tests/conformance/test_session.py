"""The session with the process that really compiles: in programs that end, are killed, share it or serve others."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import helper, load, save

import eqfuse
from eqfuse.driver.session.verdicts import Verdicts, try_lock

from ..engine.models import model as build
from ..engine.models import value
from .programs import SECONDS, install

pytestmark = pytest.mark.conformance
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
    weights = {"w": np.linspace(0.5, 2, 512, dtype=np.float32)}
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    save(build(nodes, [value("x", [256, 512])], [value(f"v{len(nodes) - 1}", [256, 512])], weights), path)
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
    for port in (*proto.graph.input, *proto.graph.output):
        port.type.tensor_type.shape.dim[0].dim_param = "N"
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


MULTIPROCESSING = """
import multiprocessing, sys, time
import numpy as np
import onnxruntime
import eqfuse as ort

session = None

def call(seed):
    global session
    session = session or ort.InferenceSession(sys.argv[1])
    array = np.random.default_rng(seed).random((256, 512), dtype=np.float32)
    (expected,) = onnxruntime.InferenceSession(sys.argv[1]).run(None, {"x": array})
    limit = time.monotonic() + float(sys.argv[2])
    while time.monotonic() < limit and not any(sizes.compiled_calls for sizes in session.report().sizes):
        (result,) = session.run(None, {"x": array})
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
    return session.report().sizes[0].runs_in

if __name__ == "__main__":
    session = ort.InferenceSession(sys.argv[1])
    for _ in range(3):  # it begins to compile
        session.run(None, {"x": np.ones((256, 512), np.float32)})
    with multiprocessing.get_context(sys.argv[3]).Pool(4) as pool:
        print(set(pool.map(call, range(4), chunksize=1)))
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_of_a_pool_take_compiled_code_over(method: str, model: Path, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(MULTIPROCESSING)
    command = [sys.executable, "-W", "ignore", "program.py", model, str(SECONDS), method]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS + 60)
    assert result.stdout == "{'compiled code'}\n", result.stderr[-2000:]


SERVED = """
import os
import numpy as np
import eqfuse as ort

session = ort.InferenceSession(os.environ["MODEL"])
for _ in range(3):  # it begins to compile before there are workers
    session.run(None, {"x": np.ones((256, 512), np.float32)})

def application(environment, start_response):
    body = environment["wsgi.input"].read(int(environment["CONTENT_LENGTH"]))
    (result,) = session.run(None, {"x": np.frombuffer(body, np.float32).reshape(256, 512)})
    (sizes,) = session.report().sizes
    start_response("200 OK", [("X-Worker", str(os.getpid())), ("X-Compiled", str(sizes.compiled_calls))])
    return [result.tobytes()]
"""


@pytest.fixture
def url(model: Path, cache: Path, tmp_path: Path) -> Iterator[str]:
    """A gunicorn of four workers of two threads, which share a session that was made before they were."""
    install(["gunicorn", "packaging"], tmp_path, "--no-deps")
    (tmp_path / "served.py").write_text(SERVED)
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    command = [sys.executable, "-m", "gunicorn", "served:application", "--preload", "--workers=4", "--threads=2"]
    with subprocess.Popen(
        [*command, "--bind=127.0.0.1:0"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path, "MODEL": str(model)},
        stderr=subprocess.PIPE, text=True,
    ) as server:  # fmt: skip
        assert server.stderr is not None
        match = next(filter(None, (re.search(r"Listening at: (\S+)", line) for line in server.stderr)), None)
        assert match is not None
        yield match[1]
        server.terminate()
        server.communicate(timeout=60)


def test_workers_of_gunicorn_take_compiled_code_over(url: str, model: Path) -> None:
    """All answers are right, whichever worker gives them, and in the end each worker gives compiled ones."""
    runtime = onnxruntime.InferenceSession(model)
    limit = time.monotonic() + SECONDS

    def ask(seed: int) -> tuple[str, int]:
        array = np.random.default_rng(seed).random((256, 512), dtype=np.float32)
        with urllib.request.urlopen(url, array.tobytes(), timeout=SECONDS) as answer:
            result = np.frombuffer(answer.read(), np.float32).reshape(256, 512)
            np.testing.assert_allclose(result, runtime.run(None, {"x": array})[0], rtol=1e-4, atol=1e-4)
            return answer.headers["X-Worker"], int(answer.headers["X-Compiled"])

    compiled: dict[str, int] = {}
    with ThreadPoolExecutor(8) as clients:
        while len(compiled) < 4 or not all(compiled.values()):
            assert time.monotonic() < limit, compiled
            compiled.update(clients.map(ask, range(32)))
    assert len(compiled) == 4


def test_two_versions_share_a_cache(model: Path, cache: Path, tmp_path: Path) -> None:
    """Each compiles the model for itself, and finds its own verdict again."""
    package = Path(eqfuse.__file__).parent
    skipped = shutil.ignore_patterns(".*", "__pycache__", "tests", "build", "models", "docs", "*.egg-info")
    shutil.copytree(package, tmp_path / "other/eqfuse", ignore=skipped)
    with (tmp_path / "other/eqfuse/driver/session/__init__.py").open("a") as file:
        file.write("# another version\n")
    for _ in range(2):
        for path in ([], [str(tmp_path / "other")]):
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*path, *filter(None, sys.path)])}
            command = [sys.executable, "-c", PROGRAM + "print(ort.__file__)", model, str(SECONDS)]
            result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            assert result.stdout.startswith("compiled code"), result.stdout
            assert (str(tmp_path) in result.stdout) == bool(path)
    assert len([each for each in cache.iterdir() if not each.name.startswith(".")]) == 2


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
