"""How many examples a property gets."""

from __future__ import annotations

from hypothesis import settings

_QUICK = 25
"""Examples of a property in `make test` that says nothing else: conftest.py registers them."""


def examples(number: int) -> settings:
    """This number of examples in `make test`, for a property that takes long for each.

    `make conformance` draws as many times more of them as of any other property.
    """
    return settings(deadline=None, max_examples=number * settings().max_examples // _QUICK)
