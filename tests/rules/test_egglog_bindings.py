"""Loading egglog's compiled part alone."""

from __future__ import annotations

import subprocess
import sys

from eqfuse.rules.egglog_bindings import execute, load


def test_the_package_is_not_imported_and_still_can_be() -> None:
    program = """
import sys
from eqfuse.rules.egglog_bindings import load
bindings = load()
assert "egglog" not in sys.modules and "IPython" not in sys.modules
import egglog
assert egglog.bindings.EGraph is bindings.EGraph
egglog.EGraph()
"""
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr


def test_load_gives_one_module() -> None:
    assert load() is load()


def test_execute_returns_all_outputs_of_a_long_program() -> None:
    lines = [f"(relation r{i} (i64))\n(r{i} 1)\n(check (r{i} 1))\n(print-function r{i} 1)" for i in range(200)]
    assert len(execute(load().EGraph(), "\n".join(lines))) == 200
