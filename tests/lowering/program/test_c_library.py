"""C projects as applications use them: compilers, sanitizers, threads, two models in one program."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from eqfuse.lowering.base.linking import RUNTIME
from eqfuse.lowering.plan.plan import Buffer, Call, Measure, Plan, View
from eqfuse.lowering.program.project import Naming, write_project

from .handmade import KERNELS, floats, size

COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
SANITIZERS = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
MOST_RUNTIME = 100_000
"""Bytes of the runtime's code and data."""
WEIGHTS = np.arange(6, dtype=np.float32)

THREADS = """\
#include "eqfuse_model.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* Runs the model on vectors of several lengths in a context of its own; the number of wrong results. */
static void *run(void *argument) {
    long errors = 0, thread = (long)argument;
    eqfuse_context *context = eqfuse_create(&eqfuse_network, EQFUSE_EMBEDDED_WEIGHTS, 2);
    if (!context) return (void *)1;
    for (int64_t turn = 0; turn < 60; ++turn) {
        int64_t length = 1 + (thread * 7 + turn / 3) % 40, shape[1] = {length};
        const int64_t *shapes[] = {shape};
        float *x = malloc(sizeof(float) * (size_t)length);
        for (int64_t i = 0; i < length; ++i) x[i] = (float)((i + thread) % 3 - 1);
        const void *inputs[] = {x};
        if (eqfuse_set_shapes(context, shapes)) return (void *)2;
        float *y = malloc(eqfuse_output_bytes(context, 0)), *w = malloc(eqfuse_output_bytes(context, 1));
        void *outputs[] = {y, w};
        if (eqfuse_run(context, inputs, outputs)) return (void *)3;
        int64_t positive = 0;
        for (int64_t i = 0; i < length; ++i) positive += x[i] > 0;
        errors += eqfuse_output_shape(context, 0)[0] != positive;
        for (int64_t i = 0; i < positive; ++i) errors += y[i] != 4;
        for (int64_t i = 0; i < 6; ++i) errors += w[i] != 2 * (float)i;
        free(x), free(y), free(w);
    }
    eqfuse_destroy(context);
    return (void *)errors;
}

int main(void) {
    pthread_t threads[4];
    long errors = 0;
    for (long i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, run, (void *)i);
    for (int i = 0; i < 4; ++i) {
        void *result;
        pthread_join(threads[i], &result);
        errors += (long)result;
    }
    printf("%ld\\n", errors);
    return errors != 0;
}
"""

TWO_MODELS = """\
#include "one_model.h"
#include "two_model.h"
#include <stdio.h>

int main(void) {
    const float x[2] = {1, -2};
    float y[2], z[2];
    const void *inputs[] = {x};
    void *first[] = {y}, *second[] = {z};
    one_context *one = one_create(&one_network, NULL, 1);
    two_context *two = two_create(&two_network, NULL, 1);
    if (!one || !two || one_run(one, inputs, first)) return 1;
    if (!two_run(two, inputs, second)) return 2;
    printf("%g %g; %s; %s.\\n", y[0], y[1], two_message(), one_message());
    one_destroy(one), two_destroy(two);
    return 0;
}
"""


def doubled_positives() -> Plan:
    """The positive elements of a vector, incremented and doubled; and weights, doubled."""
    buffers = (
        floats("x", "N"), floats("all", "count"), Buffer("number", "int64", (1,)), floats("more", "count"),
        floats("y", "count"), floats("w", 6), floats("rows", 2, 3), floats("doubled", 6),
    )  # fmt: skip
    steps = (
        Call("select_positive", (0,), (1, 2)),
        Measure("count", 2, 0, size("N")),
        Call("increment", (1,), (3,)),
        Call("twice", (3,), (4,)),
        Call("twice", (6,), (7,)),
    )
    return Plan(buffers, steps, (0,), (4, 7), (5,), (View(6, 5),))


def one_call(kernel: str) -> Plan:
    return Plan((floats("x", 2), floats("y", 2)), (Call(kernel, (0,), (1,)),), (0,), (1,), ())


def project(
    folder: Path, plan: Plan, options: Sequence[str] = (), prefix: str = "eqfuse", compiler: str = "gcc"
) -> Path:
    """The C project of a plan with kernels that are compiled with these options."""
    kernels = folder.parent / f"{folder.name}.o"
    command = [compiler, *options, "-O1", "-fPIC", f"-I{RUNTIME}", "-c", str(KERNELS), "-o", str(kernels)]
    subprocess.run(command, check=True)
    write_project(folder, plan, {5: WEIGHTS} if plan.weights else {}, [kernels], Naming(prefix, "x86_64"))
    return folder


def sources(folder: Path) -> list[str]:
    return [str(p) for p in sorted(folder.rglob("*.[cSo]")) if p.name != "main.c"]


def build(program: str, folders: Sequence[Path], where: Path, options: Sequence[str], compiler: str = "gcc") -> Path:
    (where / "program.c").write_text(program, encoding="utf-8")
    files = [file for folder in folders for file in sources(folder)]
    include = [f"-I{folder}" for folder in folders]
    # The path of the weights in an assembly file is relative to where the compiler runs.
    given = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-pthread", *options, *include]
    linked = [str(where / "program.c"), *files, "-lm", "-o", str(where / "program")]
    subprocess.run([compiler, *given, *linked], check=True, cwd=folders[0])
    return where / "program"


@pytest.mark.representatives(1)
@pytest.mark.parametrize("compiler", COMPILERS)
def test_threads_with_contexts_of_their_own_run_one_model(compiler: str, tmp_path: Path) -> None:
    """Under both sanitizers: no byte is touched that is not one's own, and none is left behind."""
    folder = project(tmp_path / "project", doubled_positives(), SANITIZERS, compiler=compiler)
    program = build(THREADS, [folder], tmp_path, SANITIZERS, compiler)
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout == "0\n"


@pytest.mark.conformance
@pytest.mark.parametrize("compiler", COMPILERS)
def test_threads_race_for_nothing(compiler: str, tmp_path: Path) -> None:
    options = ("-g", "-fsanitize=thread")
    folder = project(tmp_path / "project", doubled_positives(), options, compiler=compiler)
    program = build(THREADS, [folder], tmp_path, options, compiler)
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout == "0\n"


@pytest.mark.conformance
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind: not found")
def test_valgrind_has_nothing_to_say(tmp_path: Path) -> None:
    program = build(THREADS, [project(tmp_path / "project", doubled_positives(), ["-g"])], tmp_path, ["-g"])
    command = ["valgrind", "-q", "--error-exitcode=9", "--leak-check=full", str(program)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stderr == ""


def test_two_models_are_one_program(tmp_path: Path) -> None:
    """Of the second one the only kernel fails: its message is its own."""
    folders = [
        project(tmp_path / "one", one_call("twice"), prefix="one"),
        project(tmp_path / "two", one_call("fail"), prefix="two"),
    ]
    program = build(TWO_MODELS, folders, tmp_path, SANITIZERS)
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    assert done.stdout == "2 -4; ValueError: always; .\n"


@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake: not found")
@pytest.mark.parametrize(
    "options",
    [
        ("-DBUILD_SHARED_LIBS=ON",),
        pytest.param(
            ("-DBUILD_SHARED_LIBS=ON", "-DCMAKE_C_COMPILER=clang"),
            marks=[pytest.mark.conformance, pytest.mark.skipif("clang" not in COMPILERS, reason="clang: not found")],
        ),
        pytest.param(("-DNET_EMBED_WEIGHTS=OFF",), marks=pytest.mark.conformance),
        pytest.param(("-DNET_STATIC=ON",), marks=pytest.mark.conformance),
    ],
)
def test_cmake_builds_the_library_and_the_example(options: tuple[str, ...], tmp_path: Path) -> None:
    folder = project(tmp_path / "project", doubled_positives(), prefix="net")
    subprocess.run(["cmake", "-S", folder, "-B", tmp_path / "build", *options], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", tmp_path / "build"], check=True, capture_output=True)
    x = np.array([1, -2, 3], np.float32)
    np.save(tmp_path / "x.npy", x)
    weights = ["--weights", str(folder / "weights.bin")] if "-DNET_EMBED_WEIGHTS=OFF" in options else []
    command = [tmp_path / "build" / "net_example", "x.npy", "y.npy", "w.bin", "--threads", "2", *weights]
    subprocess.run(command, check=True, cwd=tmp_path)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), [4, 8])
    np.testing.assert_array_equal(np.fromfile(tmp_path / "w.bin", np.float32), 2 * WEIGHTS)


@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake: not found")
def test_weights_that_no_library_holds_are_refused(tmp_path: Path) -> None:
    folder = project(tmp_path / "project", doubled_positives(), prefix="net")
    with (folder / "weights.bin").open("r+b") as file:
        file.truncate(1 << 31)  # no blocks of a disk
    command = ["cmake", "-S", str(folder), "-B", str(tmp_path / "build")]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode
    assert "add -D NET_EMBED_WEIGHTS=OFF" in " ".join(refused.stderr.split())
    assert subprocess.run([*command, "-DNET_EMBED_WEIGHTS=OFF"], capture_output=True).returncode == 0


def test_the_runtime_is_small(tmp_path: Path) -> None:
    folder = project(tmp_path / "project", doubled_positives())
    names = ("eqfuse_runtime", "messages", "thread_pool", "eqfuse_model")
    for name in names:
        subprocess.run(["gcc", "-O2", "-c", f"{name}.c", "-o", tmp_path / f"{name}.o"], check=True, cwd=folder)
    table = subprocess.run(["size", *(tmp_path / f"{n}.o" for n in names)], capture_output=True, text=True, check=True)
    rows = [line.split() for line in table.stdout.splitlines()[1:]]
    assert 0 < sum(int(text) + int(data) for text, data, *_ in rows) < MOST_RUNTIME
