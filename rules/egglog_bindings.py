"""The compiled part of egglog without its Python package, whose import costs most of a second."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from ..support.errors import EqfuseError
from ..support.scratch import scratch_folder

MODULE = "egglog.bindings"


@cache
def load() -> ModuleType:
    """Return the module ``egglog.bindings``. Raises EqfuseError if egglog is not installed.

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

    A long one goes through a file: egglog reads it by itself, where `parse_program` makes a Python object of every node
    of its syntax tree, each with a copy of the whole text.
    """
    if len(program) < _SHORT:
        return list(egraph.run_program(*egraph.parse_program(program, name)))
    with scratch_folder("program") as folder:
        path = Path(folder, f"{name}.egg")
        path.write_text(program, encoding="utf-8")
        quoted = str(path).replace("\\", "\\\\").replace('"', '\\"')
        return list(egraph.run_program(*egraph.parse_program(f'(include "{quoted}")', name)))


_SHORT = 2000
"""Characters up to which a program is read as text."""
