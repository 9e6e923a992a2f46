"""The values that runtimes take and give."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Value = Any
"""An array, a list of values (sequence), a dict (map), or None (empty optional)."""

Feeds = dict[str, Value]

_LONGEST_MESSAGE = 240
"""Characters that are kept of a message of another library."""


class RunError(Exception):
    """A model that cannot be loaded, fed or run; the message is one line."""


class EndlessRunError(RunError):
    """A run that was ended since it took too long: a Loop may go on for ever on some inputs."""


def one_line(error: BaseException) -> str:
    """The message of a foreign exception as one short line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _LONGEST_MESSAGE else text[: _LONGEST_MESSAGE - 3] + "..."


def layout(value: Value) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
    """Shape and element type of each array inside a value."""
    return [(leaf.shape, leaf.dtype) for leaf in leaves(value)]


def leaves(value: Value) -> list[NDArray[Any]]:
    """The arrays inside a value: itself, the items of a sequence, or the keys and values of a map."""
    if value is None:
        return []
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in leaves(item)]
    if isinstance(value, dict):
        return [np.asarray(list(value)), *leaves([np.asarray(item) for item in value.values()])]
    return [np.asarray(value)]
