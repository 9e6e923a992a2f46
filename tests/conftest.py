"""For all tests: which of them `make test` runs, and which are left to `make conformance`."""

from __future__ import annotations

import gc
import os
import signal
from collections import defaultdict

import pytest
from hypothesis import settings

# A limit on the seconds of an example would fail on a slower machine.
settings.register_profile("thorough", deadline=None, max_examples=300)
settings.register_profile("quick", deadline=None, max_examples=25)
settings.load_profile("quick")


def pytest_configure() -> None:
    """Make SIGINT count, which a shell has what it runs in the background ignore, and that what it starts. A table's
    width is that of no terminal, which workers of pytest-xdist say that they have."""
    os.environ.pop("COLUMNS", None)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the cases of a test marked `representatives(n)` all but n, evenly spread, become conformance tests."""
    cases: defaultdict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    for item in items:
        marker = item.get_closest_marker("representatives")
        if marker is not None and item.get_closest_marker("conformance") is None:
            cases[item.nodeid.partition("[")[0], marker.args[0]].append(item)
    for (_, number), found in cases.items():
        kept = {len(found) * n // number for n in range(number)}
        for position, item in enumerate(found):
            if position not in kept:
                item.add_marker(pytest.mark.conformance)


def pytest_collection_finish() -> None:
    """Thousands of collected tests live to the end: no garbage collection has to walk through them."""
    gc.collect()
    gc.freeze()
