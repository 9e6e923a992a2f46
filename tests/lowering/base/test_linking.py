"""Shared libraries of single kernels."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from eqfuse.lowering.base import linking
from eqfuse.lowering.base.errors import LoweringError
from eqfuse.lowering.base.linking import Linker
from eqfuse.lowering.base.target import target_of
from eqfuse.lowering.base.toolchain import Tool, missing

from ..tuning.compiled import adding

ABSENT = missing(Tool.CROSS_COMPILER)
ELF, SHARED, AARCH64 = b"\x7fELF", 3, 183


@pytest.mark.skipif(bool(ABSENT), reason=ABSENT)
def test_a_kernel_and_its_guard_are_linked_for_a_board(tmp_path: Path) -> None:
    linker = Linker.of("aarch64")
    kernel = adding(tmp_path, target=target_of("arm-cortex-a76", 1))
    linker.link((kernel.object_file, linker.guard(tmp_path)), tmp_path / "kernel.so")
    head = (tmp_path / "kernel.so").read_bytes()[:20]
    assert head[:4] == ELF
    assert (int.from_bytes(head[16:18], "little"), int.from_bytes(head[18:20], "little")) == (SHARED, AARCH64)


def test_what_cannot_be_linked_is_said_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "bad.o").write_text("no object")
    with pytest.raises(LoweringError, match=r"cannot link a kernel: .*bad\.o") as caught:
        Linker.of(platform.machine()).link((tmp_path / "bad.o",), tmp_path / "bad.so")
    assert "\n" not in str(caught.value)


def test_processors_without_a_linker_are_refused() -> None:
    with pytest.raises(LoweringError, match="no linker for riscv64"):
        Linker.of("riscv64")


def test_an_object_of_the_runtime_that_was_compiled_before_is_not_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    linker = Linker.of(platform.machine())
    linking._compile_runtime.cache_clear()
    compiled = linker.runtime_object("messages.c", tmp_path).read_bytes()
    linking._compile_runtime.cache_clear()
    monkeypatch.setattr(Linker, "compile", None)
    assert linker.runtime_object("messages.c", tmp_path).read_bytes() == compiled
