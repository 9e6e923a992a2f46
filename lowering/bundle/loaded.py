"""What every bundle that is loaded can do, whatever runs it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...support.errors import UsageError
from ..base.ports import Port, shape_text
from ..plan.manifest import Manifest

Array = np.ndarray[Any, Any]


class LoadedModel(ABC):
    """A bundle that is loaded. Call it with its inputs, in order or by name.

    With one output the result is an array, with several a dict by name. Raises UsageError for inputs that do not fit.
    """

    path: Path
    manifest: Manifest
    threads: int = 1

    @property
    def inputs(self) -> tuple[Port, ...]:
        """The inputs to give."""
        return self.manifest.inputs

    @property
    def outputs(self) -> tuple[Port, ...]:
        """The outputs."""
        return self.manifest.outputs

    def __repr__(self) -> str:
        """One line."""
        inputs, outputs = (", ".join(map(str, ports)) or "nothing" for ports in (self.inputs, self.outputs))
        return f"<{type(self).__name__} {self.path}: {inputs} -> {outputs}; {self.threads} thread(s)>"

    def __call__(self, /, *arrays: Any, **named: Any) -> Array | dict[str, Array]:
        """Run once."""
        results = self.run(self._by_name(arrays, named) if arrays else named)
        return next(iter(results.values())) if len(results) == 1 else results

    @abstractmethod
    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Run once, with names in and out."""

    def bind_inputs(self, inputs: Mapping[str, Any]) -> Callable[[], Any]:
        """A function that runs on these inputs, if possible without copies in or out: for measuring."""
        return lambda: self.run(inputs)

    def _by_name(self, arrays: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
        if len(arrays) > len(self.inputs):
            raise UsageError(f"{self.path}: {len(arrays)} inputs were given, and the model has {len(self.inputs)}")
        given = {port.name: array for port, array in zip(self.inputs, arrays, strict=False)}
        for name in named:
            if name in given:
                raise UsageError(f"{self.path}: input {name!r} was given twice: by its place and by its name")
        return {**given, **named}

    def _check_names(self, given: Mapping[str, Any]) -> None:
        wanted = ", ".join(str(port) for port in self.inputs) or "none"
        names = {port.name for port in self.inputs}
        for name in given:
            if name not in names:
                raise UsageError(f"{self.path}: there is no input {name!r}; the inputs are {wanted}")
        for port in self.inputs:
            if port.name not in given:
                raise UsageError(f"{self.path}: input {port.name!r} is missing; the inputs are {wanted}")


def fit_input(port: Port, value: Any) -> Array:
    """The input as an array of the right type and shape; a Python number or list takes the type that is wanted."""
    try:
        array = np.asarray(value, port.dtype if isinstance(value, int | float | list | tuple) else None)
    except (TypeError, ValueError) as error:
        raise UsageError(f"input {port.name!r}: is no array of {port.dtype}: {error}") from None
    if array.dtype != np.dtype(port.dtype):
        raise UsageError(f"input {port.name!r}: must be {port.dtype}, not {array.dtype}")
    fits = len(array.shape) == len(port.shape) and all(
        a == b for a, b in zip(array.shape, port.shape, strict=True) if isinstance(b, int)
    )
    if not fits:
        raise UsageError(f"input {port.name!r}: must have the shape {shape_text(port.shape)}, not {list(array.shape)}")
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)
