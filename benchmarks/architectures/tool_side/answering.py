"""Requests for exports, read as JSON from standard input, each answered by a line of JSON.

An answer has an error where there is no export, and what the export says of itself.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

Array = np.ndarray[Any, Any]
Request = Mapping[str, Any]
_LEAST_MOVE = 1e-3
"""An output moves between two inputs by at least this part of its size, or it proves nothing."""
_SATURATED = 1e-3
"""Scores between 0 and 1 that are all this near to one of both ends are saturated."""


def answer_all(export: Callable[[Request], dict[str, Any]]) -> None:
    """Answer all requests, in order."""
    warnings.filterwarnings("ignore")
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # exporters print, compiled code among them
    for request in json.load(sys.stdin):
        print(json.dumps(_answer(export, request)), file=answers, flush=True)


def _answer(export: Callable[[Request], dict[str, Any]], request: Request) -> dict[str, Any]:
    started = time.monotonic()
    try:
        answer = export(request)
    except Exception as error:  # whatever libraries and exporters raise
        Path(request["path"]).unlink(missing_ok=True)
        lines = str(error).strip().splitlines() or [""]
        answer = {"error": f"{type(error).__name__}: {lines[0][:300]}"}
    return {**answer, "seconds": round(time.monotonic() - started, 1)}


def why_useless(first: Iterable[Array], second: Iterable[Array]) -> str:
    """Why the outputs for two inputs prove nothing; empty if some output does."""
    for one, other in zip(first, second, strict=True):
        if one.dtype.kind != "f" or not one.size:
            continue
        if not np.isfinite(one).all():
            return "an output is not finite"
        inside = (one > _SATURATED) & (one < 1 - _SATURATED)
        is_saturated = bool(((one >= 0) & (one <= 1)).all()) and not bool(inside.any())
        if float(np.abs(one - other).max()) > _LEAST_MOVE * float(np.abs(one).max()) and not is_saturated:
            return ""
    return "no output depends on the inputs"


def load(path: str) -> onnxruntime.InferenceSession:
    """A model as it is, without optimisations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def require_use(request: Request) -> None:
    """Run the exported model on two inputs. Raises ValueError if its outputs prove nothing."""
    session = load(request["path"])
    names = [each.name for each in session.get_inputs()]
    runs = [session.run(None, dict(zip(names, _draw_all(request, seed), strict=True))) for seed in (0, 1)]
    if problem := why_useless(*runs):
        raise ValueError(problem)


def _draw_all(request: Request, seed: int) -> Sequence[Array]:
    generator = np.random.default_rng(seed)
    return [
        generator.integers(0, entry["high"], entry["shape"]).astype(np.int32) if entry["kind"] == "integers"
        else generator.standard_normal(entry["shape"]).astype(np.float32)
        for entry in request["architecture"]["inputs"]
    ]  # fmt: skip


def shape_of(request: Request, free: Any = None) -> list[Any]:
    """The shape of the only input; the first dimension is `free` if free sizes are asked for."""
    shape: list[Any] = list(request["architecture"]["inputs"][0]["shape"])
    return [free, *shape[1:]] if request["form"]["is_free"] else shape
