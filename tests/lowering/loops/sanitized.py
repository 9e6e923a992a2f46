"""Plain loops as a program of their own, which gcc's sanitizers end at the first access beside a tensor."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from eqfuse.lowering.base.linking import LANGUAGE
from eqfuse.lowering.loops.program import CONSTANTS, loop_program

from .in_c import ERRORS, Array

FLAGS = ("-g", "-fsanitize=address,bounds,integer-divide-by-zero", "-fno-sanitize-recover=all")
SECONDS = 120.0
"""Of a compilation or a run: a generous limit for what hangs."""
MAIN = """
#include <stdio.h>
int main(int count, char **names) {
    FILE *file = fopen(names[1], "rb");
    int64_t head[2 + MAX_RANK];
    for (int call = 0; fread(head, sizeof *head, 1, file) == 1; ++call) {
        tensor tensors[PORTS] = {{0}};
        packed_argument arguments[PORTS];
        for (int i = 0; i < PORTS; ++i) {
            arguments[i] = (packed_argument){PACKED_TENSOR, 0, &tensors[i]};
            if (i >= head[0]) continue;
            tensor *t = &tensors[i];
            if (fread(&t->rank, sizeof t->rank, 1, file) != 1) return 2;
            if (fread(t->shape, sizeof *t->shape, (size_t)t->rank, file) != (size_t)t->rank) return 2;
            if (fread(&t->capacity, sizeof t->capacity, 1, file) != 1) return 2;
            t->data = malloc((size_t)t->capacity); /* not a byte more: what is read behind it is reported */
            if (fread(t->data, 1, (size_t)t->capacity, file) != (size_t)t->capacity) return 2;
        }
        message[0] = 0;
        __tvm_ffi_model(NULL, arguments, PORTS, NULL);
        printf("%s\\n", message);
        fflush(stdout);
        for (int i = 0; i < PORTS; ++i)
            if (i < head[0] || tensors[i].is_owned) free(tensors[i].data);
    }
    return 0;
}
"""


@dataclass(frozen=True)
class Report:
    """What the loops said of each call, "" if nothing is wrong, up to the one at which a sanitizer ended the program:
    its `violation`, "" if there is none."""

    messages: tuple[str, ...]
    violation: str


def run_sanitized(model: onnx.ModelProto, calls: Iterable[Sequence[Array]], folder: Path) -> Report:
    """Call a model as loops on each of several lists of inputs. Raises LoweringError if an operator has no loop."""
    program = loop_program(model, "model")
    source, calls_file = folder / "model.c", folder / "calls"
    ports = len(program.inputs) + len(program.outputs)
    source.write_text(f"{ERRORS}\n{program.text}\n#define PORTS {ports}\n{MAIN}", encoding="utf-8")
    (folder / CONSTANTS).write_bytes(program.constants)
    with calls_file.open("wb") as file:
        for inputs in calls:
            file.write(np.int64(len(inputs)).tobytes())
            for array in inputs:
                file.write(np.array([array.ndim, *array.shape, array.nbytes], np.int64).tobytes())
                file.write(np.ascontiguousarray(array).tobytes())
    command = ["gcc", "-O1", "-w", *LANGUAGE, *FLAGS, "-o", "model", source.name, "-lm"]
    subprocess.run(command, check=True, cwd=folder, timeout=SECONDS)
    environment = {"ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1"}
    done = subprocess.run(["./model", "calls"], cwd=folder, env=environment, capture_output=True, timeout=SECONDS)
    lines = done.stderr.decode(errors="replace").splitlines()
    found = [line for line in lines if "ERROR: " in line or "runtime error: " in line or line.startswith("    #")]
    violation = " | ".join(found[:3]) or f"exit code {done.returncode}"
    return Report(tuple(done.stdout.decode().splitlines()), violation if done.returncode else "")
