"""For all tests."""

from __future__ import annotations

import gc


def pytest_collection_finish() -> None:
    """Thousands of collected tests live to the end: no garbage collection has to walk through them."""
    gc.collect()
    gc.freeze()
