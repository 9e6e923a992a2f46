"""The counting plugin: programs of a few instructions, whose counts and misses are known."""

from __future__ import annotations

import subprocess
from contextlib import nullcontext
from pathlib import Path

import pytest

from eqfuse.costmodels.device import Cache
from eqfuse.lowering.arm.counts import Counts
from eqfuse.lowering.arm.emulate import count_regions
from eqfuse.lowering.base.toolchain import Tool, find, missing
from eqfuse.support.processes.program import ToolError

ABSENT = missing(Tool.CROSS_COMPILER, Tool.COUNTING_EMULATOR, Tool.HOST_COMPILER)
pytestmark = pytest.mark.skipif(bool(ABSENT), reason=ABSENT)

PROGRAM = """
    .macro mark region
    .inst 0xD280001F | \\region << 5
    .endm
    .bss
    .balign 65536
data: .skip 131072
    .text
    .global _start
_start:
    adrp x1, data
    {body}
    mark 0
    mov x0, 0
    mov x8, 94
    svc 0
"""
TWO_LEVELS = (Cache(1, 4096, 1e9, False, 4, 64), Cache(2, 16384, 1e9, False, 8, 64))


def counts(folder: Path, body: str, caches: tuple[Cache, ...] = ()) -> dict[int, Counts]:
    (folder / "program.S").write_text(PROGRAM.format(body=body), encoding="utf-8")
    compiler = [str(find(Tool.CROSS_COMPILER)), "-march=armv8.2-a+fp16", "-nostdlib", "-static"]
    subprocess.run([*compiler, "program.S", "-o", "program"], cwd=folder, check=True)
    return count_regions(["./program"], folder, caches)


def walk(lines: int, step: int = 64, times: int = 1) -> str:
    """Load from each of `lines` lines, `step` bytes apart; as often as `times`. Region 1 is the last time."""
    return f"""
    mov x4, {times}
again:
    mov x2, x1
    mov x3, {lines}
    cmp x4, 1
    b.ne inner
    mark 1
inner:
    ldr x0, [x2], {step}
    subs x3, x3, 1
    b.ne inner
    subs x4, x4, 1
    b.ne again
    """


@pytest.mark.representatives(13)
@pytest.mark.parametrize(
    ("instruction", "counter", "lanes"),
    [
        ("fmla v0.4s, v1.4s, v2.4s", "fused", 4),
        ("fmls v0.2s, v1.2s, v2.2s", "fused", 2),
        ("fmla v0.2d, v1.2d, v2.2d", "fused", 2),
        ("fmla v0.4s, v1.4s, v2.s[3]", "fused", 4),
        ("fmls v0.2d, v1.2d, v2.d[1]", "fused", 2),
        ("fmla v0.8h, v1.8h, v2.8h", "fused", 8),
        ("fmla v0.8h, v1.8h, v2.h[5]", "fused", 8),
        ("fmadd s0, s1, s2, s3", "vector", 1),
        ("fmla s0, s1, v2.s[1]", "vector", 1),
        ("fadd v0.4s, v1.4s, v2.4s", "vector", 0),
        ("fmul v0.4s, v1.4s, v2.s[0]", "vector", 0),
        ("fmax v0.4s, v1.4s, v2.4s", "vector", 0),
        ("movi v0.4s, 0", "vector", 0),
        ("fcvtzs x0, s0", "vector", 0),
        ("ldr q0, [x1]", "loads", 0),
        ("ldp q0, q1, [x1, 32]", "loads", 0),
        ("ld1 {{v0.4s-v3.4s}}, [x1]", "loads", 0),
        ("ld1r {{v0.4s}}, [x1]", "loads", 0),
        ("ldr x0, _start", "loads", 0),
        ("ldrsw x0, [x1]", "loads", 0),
        ("ldur w0, [x1, 3]", "loads", 0),
        ("ldar x0, [x1]", "loads", 0),
        ("str q0, [x1]", "stores", 0),
        ("stp x0, x2, [x1]", "stores", 0),
        ("str x0, [x1, xzr]", "stores", 0),
        ("strb w0, [x1]", "stores", 0),
        ("st1 {{v0.4s}}, [x1]", "stores", 0),
        ("stlr x0, [x1]", "stores", 0),
        ("cbz xzr, 1f; 1:", "branches", 0),
        ("bl 1f; 1:", "branches", 0),
        ("tbz xzr, 3, 1f; 1:", "branches", 0),
        ("b.ne 1f; 1:", "branches", 0),
        ("add x0, x0, 1", "other", 0),
        ("madd x0, x0, x0, x0", "other", 0),
        ("nop", "other", 0),
        ("movz x0, 7", "other", 0),
    ],
)
def test_an_instruction_is_of_one_class(tmp_path: Path, instruction: str, counter: str, lanes: int) -> None:
    text = instruction.replace("{{", "{").replace("}}", "}")
    assert counts(tmp_path, f"mark 1\n{text}")[1] == Counts(instructions=1, multiply_adds=lanes, **{counter: 1})


def test_vector_accesses_relative_to_the_stack_pointer_are_told_apart(tmp_path: Path) -> None:
    counted = counts(tmp_path, "mark 1\n str q0, [sp, -16]!\n ldp q0, q1, [sp]\n ldr x0, [sp]\n ldr q0, [x1]")
    assert counted[1].stack == 2


def test_a_region_holds_what_it_calls_and_reset_forgets(tmp_path: Path) -> None:
    body = "mark 1\n nop\n mark 65535\n mark 2\n bl 1f\n mark 3\n nop\n b 2f\n1: nop\n ret\n2:"
    counted = counts(tmp_path, body)
    assert (counted[2].instructions, counted[3].instructions) == (3, 2)
    assert 1 not in counted


def test_each_line_misses_once_at_first(tmp_path: Path) -> None:
    assert counts(tmp_path, walk(48), TWO_LEVELS)[1].misses == (48, 48)


def test_what_fits_the_first_level_hits_it_the_second_time(tmp_path: Path) -> None:
    assert counts(tmp_path, walk(64, times=2), TWO_LEVELS)[1].misses == (0, 0)


def test_what_fits_the_second_level_misses_the_first_every_time(tmp_path: Path) -> None:
    """One line more than the first level holds: of a full round through one set, least recently used keeps nothing."""
    assert counts(tmp_path, walk(128, times=3), TWO_LEVELS)[1].misses == (128, 0)


def test_what_fits_no_level_misses_all_every_time(tmp_path: Path) -> None:
    assert counts(tmp_path, walk(512, times=2), TWO_LEVELS)[1].misses == (512, 512)


@pytest.mark.parametrize(("lines", "misses"), [(4, 0), (5, 5)])
def test_lines_of_one_set_compete_for_its_ways(tmp_path: Path, lines: int, misses: int) -> None:
    """1024 bytes apart, all lie in one set of the first level, which has 4 ways."""
    body = f"mov x5, 1024\n{walk(lines, times=2)}".replace("[x2], 64", "[x2]\n add x2, x2, x5")
    assert counts(tmp_path, body, TWO_LEVELS)[1].misses == (misses, 0)


def test_an_access_across_two_lines_touches_both(tmp_path: Path) -> None:
    assert counts(tmp_path, "mark 1\n ldr x0, [x1, 60]", TWO_LEVELS)[1].misses == (2, 2)


def test_a_store_brings_its_line_in(tmp_path: Path) -> None:
    assert counts(tmp_path, "mark 1\n str x0, [x1]\n ldr x0, [x1]", TWO_LEVELS)[1].misses == (1, 1)


MEMSET = """
#include <string.h>
static _Alignas(64) char data[1 << 16];
int main(int count, char **arguments) {
    volatile int size = sizeof data;
    __asm__ volatile(".inst 0xD280003F" ::: "memory");
    memset(data, count - 1, size);
    __asm__ volatile(".inst 0xD280001F" ::: "memory");
    return data[count];
}
"""


def test_clearing_memory_touches_its_lines(tmp_path: Path) -> None:
    """The C library would do it with an instruction whose writes QEMU does not report."""
    (tmp_path / "program.c").write_text(MEMSET, encoding="utf-8")
    compiler = find(Tool.CROSS_COMPILER)
    subprocess.run([compiler, "-O2", "-static", "program.c", "-o", "program"], cwd=tmp_path, check=True)
    assert 1024 <= count_regions(["./program"], tmp_path, TWO_LEVELS)[1].misses[0] <= 1034


@pytest.mark.parametrize(("processor", "runs"), [("cortex-a57", False), ("cortex-a76", True)])
def test_an_instruction_that_the_processor_lacks_ends_the_program(tmp_path: Path, processor: str, runs: bool) -> None:
    counts(tmp_path, "fmla v0.8h, v1.8h, v2.8h")
    with nullcontext() if runs else pytest.raises(ToolError, match="qemu-aarch64: failed"):
        count_regions(["./program"], tmp_path, (), processor)
