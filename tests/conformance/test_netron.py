"""Netron, in Chromium, loads what ``eqfuse optimize --as-functions`` writes, and shows each group as a node."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import onnx
import pytest

from eqfuse.cli import main

netron = pytest.importorskip("netron")
pytestmark = pytest.mark.conformance

ROOT = Path(__file__).parents[2]
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)


class _Consent(BaseHTTPRequestHandler):
    """Sets the cookies without which Netron asks a question first; cookies of a host hold for all its ports."""

    def do_GET(self) -> None:
        self.send_response(200)
        for name in ("consent", "_ga"):
            self.send_header("Set-Cookie", f"{name}=1; Max-Age=3600; Path=/")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def consent() -> Iterator[int]:
    """The port of a server that sets the cookies."""
    server = HTTPServer(("localhost", 0), _Consent)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()


def visit(port: int, profile: Path, milliseconds: int) -> str:
    assert BROWSER is not None
    done = subprocess.run(
        [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}",
            f"--virtual-time-budget={milliseconds}", "--dump-dom", f"http://localhost:{port}/",
        ],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    return done.stdout


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_groups_are_nodes_in_netron(tmp_path: Path, consent: int) -> None:
    demo = runpy.run_path(str(ROOT / "examples/demo_model.py"))["demo_model"]()
    (tmp_path / "demo.onnx").write_bytes(demo.SerializeToString())
    output = tmp_path / "functions.onnx"
    code = main(
        ["optimize", str(tmp_path / "demo.onnx"), "-o", str(output), "-q", "--partition", "ago", "--as-functions"]
    )
    assert code in (0, 5)
    groups = {node.op_type for node in onnx.load(output).graph.node if node.domain not in ("", "ai.onnx")}
    assert groups
    _, port = netron.start(str(output), browse=False)
    try:
        visit(consent, tmp_path / "profile", 1_000)
        page = visit(port, tmp_path / "profile", 60_000)
    finally:
        netron.stop()
    shown = set(re.findall(r">([\w.]+)</text>", page))
    assert {"image", "logits", "segmentation"} <= shown
    assert len(groups & shown) > 10
