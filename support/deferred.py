"""Modules that are loaded when something in them is asked for, not when they are imported.

A hook in the user's process has a cost, but onnx-ir imports sympy at the top of its own module, which nothing here
can move: without the hook the API takes 0.40 s of CPU more to load (1.08 s instead of 0.68 s, the medians of 20
interleaved pairs on a Xeon). `import eqfuse` alone, and `eqfuse.load`, load neither.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, module_from_spec, spec_from_loader
from threading import RLock
from types import ModuleType
from typing import Any

_LOCK = RLock()
_STARTED: set[str] = set()


class _Deferred(ModuleType):
    """A module that has only the import system's own attributes.

    importlib.util.LazyLoader would not do: before Python 3.14 a mere `import` of its modules loads them.
    """

    def __getattr__(self, name: str) -> Any:
        with _LOCK:
            if self.__name__ not in _STARTED:
                _load(self)
        return ModuleType.__getattribute__(self, name)


class _LoadPackages(MetaPathFinder):
    """Loads a deferred package before a module in it: the package may import its modules in no other order."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package = sys.modules.get(fullname.rpartition(".")[0])
        if type(package) is not _Deferred:
            return None
        with _LOCK:
            if package.__name__ in _STARTED:
                return None
            _load(package)
        loaded = sys.modules.get(fullname)
        return spec_from_loader(fullname, _AlreadyLoaded(loaded)) if loaded is not None else None


_FINDER = _LoadPackages()


class _AlreadyLoaded(Loader):
    """Gives a module that its package has loaded meanwhile."""

    def __init__(self, module: ModuleType) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec


def _load(module: ModuleType) -> None:
    spec = module.__spec__
    assert spec is not None
    assert spec.loader is not None
    _STARTED.add(module.__name__)
    try:
        spec.loader.exec_module(module)
        module.__class__ = ModuleType
    finally:
        _STARTED.remove(module.__name__)


def defer(name: str) -> None:
    """Let `import name` do nothing until the module is used; without effect if it is loaded or not installed.

    The package that the module is in, if it is in one, is not imported.
    """
    if name in sys.modules:
        return
    package, _, _ = name.rpartition(".")
    parent = find_spec(package) if package else None
    if package:
        spec = PathFinder.find_spec(name, parent.submodule_search_locations) if parent else None
    else:
        spec = find_spec(name)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        module.__class__ = _Deferred
        sys.modules[name] = module
        if _FINDER not in sys.meta_path:
            sys.meta_path.insert(0, _FINDER)
