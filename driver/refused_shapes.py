"""Input shapes that the user gives, and on which the model itself does not run: then these are at fault."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..engine.onnx.model import Model, read
from ..engine.preparation.overrides import override_shapes
from ..support.errors import EqfuseError, UsageError, VerificationError
from .options import Options


@contextmanager
def blame_input_shapes(source: Any, options: Options) -> Iterator[None]:
    """Raise UsageError, within the context, for given input shapes on which the model does not run.

    Without verification they are tried first, since nothing else would find out; otherwise after a failure.
    """
    if not options.input_shapes:
        yield
        return
    if not options.verify:
        _require_running(source, options)
    try:
        yield
    except UsageError:
        raise
    except EqfuseError:
        _require_running(source, options)
        raise


def _require_running(source: Any, options: Options) -> None:
    """Raise UsageError if the model runs in ONNX Runtime, but not on the given shapes."""
    model = read(source)
    refusal = _find_refusal(override_shapes(model, options.input_shapes), options)
    if refusal and not _find_refusal(model, options):
        shapes = ", ".join(f"{name}:{','.join(map(str, shape))}" for name, shape in options.input_shapes.items())
        raise UsageError(f"--input-shapes {shapes}: {model.label} cannot have these: {refusal}; give others")


def _find_refusal(model: Model, options: Options) -> str:
    """Why ONNX Runtime does not run a model on drawn inputs; "" if it does."""
    from ..engine.verification import verify  # it takes imports of its own

    try:
        verification = verify(
            model.source, model.source, seed=options.seed, precise=False, limit=options.verification_seconds
        )
    except VerificationError as error:
        return str(error)
    if verification.status != "unverified":
        return ""
    return verification.reason.removeprefix("nothing was verified, ").partition("; give real ones")[0]
