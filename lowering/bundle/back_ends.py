"""Back ends that bring what runs their bundles: a folder of `lowering/` that is known by its name alone."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from .loaded import LoadedModel


class BackEnd(Protocol):
    """What the module `back_end` in the folder of a back end has."""

    def load(self, folder: Path) -> LoadedModel:
        """A bundle, to be run. Raises BundleError where it is damaged."""
        ...


def find_back_end(name: str) -> BackEnd:
    """The back end with that folder in `lowering/`; its bundles have a field of that name in the manifest."""
    return cast(BackEnd, import_module(f"..{name}.back_end", __package__))
