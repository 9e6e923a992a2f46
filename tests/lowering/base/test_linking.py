"""Shared libraries of single kernels."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from eqfuse.lowering.base import linking
from eqfuse.lowering.base.errors import LoweringError
from eqfuse.lowering.base.linking import Linker
from eqfuse.lowering.base.target import target_of
from eqfuse.lowering.base.toolchain import LIBRARIES, Tool, compile_there, emulate, find, missing

from ..tuning.compiled import adding

ABSENT = missing(Tool.CROSS_COMPILER)
LOADED_BY = (Tool.CROSS_COMPILER, Tool.EMULATOR)
LOADER = """\
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **arguments) {
  if (count == 2 && dlopen(arguments[1], RTLD_NOW)) return 0;
  fputs(dlerror(), stderr);
  return 1;
}
"""
ELF, SHARED, AARCH64 = b"\x7fELF", 3, 183


@pytest.mark.skipif(bool(ABSENT), reason=ABSENT)
def test_a_kernel_and_its_guard_are_linked_for_a_board(tmp_path: Path) -> None:
    linker = Linker.of("aarch64")
    kernel = adding(tmp_path, target=target_of("arm-cortex-a76", 1))
    linker.link((kernel.object_file, linker.guard(tmp_path)), tmp_path / "kernel.so")
    head = (tmp_path / "kernel.so").read_bytes()[:20]
    assert head[:4] == ELF
    assert (int.from_bytes(head[16:18], "little"), int.from_bytes(head[18:20], "little")) == (SHARED, AARCH64)


@pytest.mark.skipif(bool(missing(*LOADED_BY)), reason=missing(*LOADED_BY))
def test_a_model_with_the_runtime_is_loaded_by_a_program_that_has_nothing_of_it(tmp_path: Path) -> None:
    """As TVM's RPC server on a board loads it. The runtime calls a function of the C library's static part."""
    linker, loader = Linker.of("aarch64"), tmp_path / "loader"
    linker.link_model((*linker.runtime(tmp_path), linker.guard(tmp_path)), tmp_path / "model.so")
    (tmp_path / "loader.c").write_text(LOADER)
    compile_there([find(Tool.CROSS_COMPILER), "loader.c", "-o", loader], tmp_path)
    emulate([find(Tool.EMULATOR), "-L", LIBRARIES, loader, tmp_path / "model.so"], tmp_path)


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
