"""The example service around a C project: right answers to many clients at once, and to requests that do not fit."""

from __future__ import annotations

import re
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import eqfuse
from eqfuse.lowering.plan.plan import Call, Plan

from .handmade import floats
from .test_c_library import build, project

SERVICE = Path(eqfuse.__file__).parent / "examples" / "service" / "service.c"
CLIENTS, REQUESTS = 8, 20


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("service")
    plan = Plan((floats("x", 2, 3), floats("y", 6)), (Call("twice", (0,), (1,)),), (0,), (1,), ())
    program = build(SERVICE.read_text(encoding="utf-8"), [project(folder / "project", plan)], folder, ())
    with subprocess.Popen([program, "0", "4"], stderr=subprocess.PIPE, text=True) as service:
        assert service.stderr is not None
        match = re.match(r"serving on port (\d+)", service.stderr.readline())
        assert match is not None
        yield f"http://127.0.0.1:{match[1]}/"
        service.terminate()
        assert service.wait() == 0


def ask(url: str, body: bytes | None) -> bytes:
    with urllib.request.urlopen(url, body, timeout=30) as answer:
        content: bytes = answer.read()
        return content


def test_clients_get_the_results_of_their_own_inputs(url: str) -> None:
    def serve(client: int) -> list[bool]:
        inputs = [np.random.default_rng((client, turn)).random((2, 3), np.float32) for turn in range(REQUESTS)]
        return [ask(url, x.tobytes()) == (2 * x).tobytes() for x in inputs]

    with ThreadPoolExecutor(CLIENTS) as clients:
        assert list(clients.map(serve, range(CLIENTS))) == [[True] * REQUESTS] * CLIENTS


def test_it_says_what_it_takes(url: str) -> None:
    assert ask(url, None) == b"input x: <f4, 24 bytes\noutput y: <f4, 24 bytes\n"


@pytest.mark.parametrize("size", [0, 23, 25, 1 << 20])
def test_another_size_is_refused_and_the_next_request_is_answered(url: str, size: int) -> None:
    with pytest.raises(urllib.error.HTTPError, match="400"):
        ask(url, bytes(size))
    assert ask(url, bytes(24)) == bytes(24)


@pytest.mark.conformance
@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake: not found")
def test_cmake_builds_one_static_program(tmp_path: Path) -> None:
    plan = Plan((floats("x", 2, 3), floats("y", 6)), (Call("twice", (0,), (1,)),), (0,), (1,), ())
    shutil.copytree(SERVICE.parent, tmp_path / "service")
    project(tmp_path / "service" / "model", plan)
    subprocess.run(["cmake", "-S", tmp_path / "service", "-B", tmp_path / "build"], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", tmp_path / "build"], check=True, capture_output=True)
    said = subprocess.run(["ldd", tmp_path / "build" / "service"], capture_output=True, text=True)
    assert "not a dynamic executable" in said.stderr + said.stdout
