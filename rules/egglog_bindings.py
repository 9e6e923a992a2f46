"""The compiled part of egglog without its Python package, whose import costs most of a second."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any

from ..errors import EqfuseError

MODULE = "egglog.bindings"


@cache
def load() -> ModuleType:
    """Return the module ``egglog.bindings``. Raises EqfuseError where egglog is not installed.

    A later ``import egglog`` gets the same compiled module.
    """
    if MODULE in sys.modules:
        return sys.modules[MODULE]
    package = importlib.util.find_spec("egglog")
    spec = PathFinder.find_spec(MODULE, package.submodule_search_locations) if package else None
    if spec is None or spec.loader is None:
        raise EqfuseError("egglog is not installed: run `pip install egglog`")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # left there, a later import would find it without its package and not make it an attribute of the package
    sys.modules.pop(MODULE, None)
    return module


def execute(egraph: Any, program: str, name: str = "program") -> list[Any]:
    """Run an egglog program and return what its commands put out.

    The time of egglog's parser grows with the square of the text: commands that begin a line are read in small groups.
    """
    outputs: list[Any] = []
    for chunk in _chunks(program):
        outputs += egraph.run_program(*egraph.parse_program(chunk, name))
    return outputs


def _chunks(program: str, size: int = 800) -> Iterator[str]:
    chunk = ""
    for command in re.split(r"\n(?=\()", program):
        if chunk and len(chunk) + len(command) > size:
            yield chunk
            chunk = ""
        chunk += command + "\n"
    yield chunk
