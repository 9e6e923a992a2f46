"""Cache folders of tests."""

from __future__ import annotations

from pathlib import Path

from eqfuse.support.files import cache_folder


def own_cache(folder: Path) -> str:
    """The value of XDG_CACHE_HOME by which `folder` is an empty cache, but for the rules, which take long to load."""
    for name in ("catalogue", "programs"):
        kept, link = cache_folder() / name, folder / "eqfuse" / name
        kept.mkdir(parents=True, exist_ok=True)
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            link.symlink_to(kept)
    return str(folder)
