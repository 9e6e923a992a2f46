"""Tools: a missing one is named with its Debian package, a failure in one line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from eqfuse.lowering.arm.emulate import build_plugin, find_counting_emulator
from eqfuse.lowering.base.toolchain import Tool, compile_there, emulate, find, missing
from eqfuse.support.processes.program import ToolError
from eqfuse.support.scratch import scratch_root


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


@pytest.fixture
def only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the whole PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("tool", Tool)
@pytest.mark.usefixtures("only")
def test_a_missing_tool_is_named_with_its_package(tool: Tool) -> None:
    with pytest.raises(ToolError, match=rf"^{tool.program}: not found; .*apt-get install {tool.packages}$"):
        find(tool)


@pytest.mark.usefixtures("only")
def test_all_that_is_missing_is_one_line() -> None:
    assert missing(Tool.EMULATOR, Tool.COUNTING_EMULATOR) == (
        "qemu-aarch64-static, qemu-aarch64: not found; on Debian or Ubuntu: apt-get install qemu-user-static qemu-user"
    )


def test_a_compiler_without_a_c_library_is_told_apart(only: Path) -> None:
    program(only / "aarch64-linux-gnu-gcc", "echo libc.a")
    with pytest.raises(ToolError, match=r"no C library to link; .*libc6-dev-arm64-cross"):
        find(Tool.CROSS_COMPILER)


def test_a_qemu_with_other_plugins_is_refused(only: Path) -> None:
    program(only / "qemu-aarch64", "echo 'qemu-aarch64 version 10.0.2 (Debian)'")
    with pytest.raises(ToolError, match=r"is QEMU 10\.0; the counting plugin needs QEMU 6 to 8"):
        find_counting_emulator()


def test_endless_programs_are_stopped(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="stopped after 0 s"):
        emulate([sys.executable, "-c", "while True: pass"], tmp_path, seconds=0.1)


@pytest.mark.skipif(bool(missing(Tool.HOST_COMPILER)), reason=missing(Tool.HOST_COMPILER))
def test_the_plugin_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    built = build_plugin()
    assert list((tmp_path / "eqfuse").iterdir()) == [built]
    before = built.stat().st_mtime_ns
    assert build_plugin().stat().st_mtime_ns == before


def test_temporary_files_of_a_compiler_go_with_the_process(tmp_path: Path) -> None:
    """Those that a compiler leaves when it is killed, too."""
    program(tmp_path / "cc", 'echo "$TMPDIR" > folder')
    compile_there([tmp_path / "cc"], tmp_path)
    assert (tmp_path / "folder").read_text() == f"{scratch_root()}\n"
