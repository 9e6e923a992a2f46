"""The libraries of custom operators that every session of ONNX Runtime of this process gets.

They are an environment variable, so that processes that this one starts have them, too; processes that it started
earlier get them with each request (`worker_process`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import UsageError

VARIABLE = "EQFUSE_CUSTOM_OPS"


@contextmanager
def custom_operators(libraries: Sequence[Path]) -> Iterator[None]:
    """Register these libraries with each session within the context, beside those that already are.

    Raises UsageError for a file that is missing.
    """
    missing = next((path for path in libraries if not path.is_file()), None)
    if missing is not None:
        raise UsageError(f"--custom-ops: {missing}: no such file")
    before = list_libraries()
    set_libraries(dict.fromkeys((*before, *(str(path.absolute()) for path in libraries))))
    try:
        yield
    finally:
        set_libraries(before)


def list_libraries() -> tuple[str, ...]:
    """The paths of the libraries that are registered."""
    return tuple(filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)))


def set_libraries(paths: Iterable[str]) -> None:
    """Have these libraries, and no others."""
    os.environ[VARIABLE] = os.pathsep.join(paths)


def register(options: Any) -> None:
    """Register the libraries with the options of a session. Raises UsageError for one that ONNX Runtime refuses."""
    for path in list_libraries():
        try:
            options.register_custom_ops_library(path)
        except Exception as error:  # the runtime's exceptions share no base class of their own
            text = " ".join(str(error).split())[:400]
            raise UsageError(f"--custom-ops: {path}: ONNX Runtime cannot load it: {text}") from None


def explain_refusal(text: str) -> str:
    """The complaint of ONNX Runtime about a model that it refuses, and advice if it does not know an operator."""
    if "is not a registered function/op" not in text:
        return text
    return f"{text}; --custom-ops LIB.so registers a library of custom operators"
