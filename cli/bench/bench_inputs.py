"""What ``eqfuse bench`` measures on: given or random inputs, and the model that a bundle was compiled from."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ...lowering.interface import Port, random_inputs, read_samples

if TYPE_CHECKING:
    from ...lowering.bundle.manifest import Manifest


def bench_inputs(arguments: argparse.Namespace, ports: Sequence[Port]) -> Mapping[str, Any]:
    """The inputs to measure on: those that are given, else random ones. Raises UsageError for more than one set."""
    if not arguments.inputs:
        return random_inputs(ports, 0)
    samples = read_samples(arguments.inputs, ports)
    if len(samples) > 1:
        raise UsageError(f"--inputs: {len(samples)} sets of inputs are given, and one is measured on; name one file")
    return samples[0].values


def original(arguments: argparse.Namespace, manifest: Manifest) -> Path:
    """The model that the bundle was compiled from. Raises UsageError where it is gone or another one."""
    from ...engine.onnx.model import read
    from ...lowering.bundle.cache import fingerprint

    path = arguments.model or Path(manifest.provenance.model)
    if not path.is_file():
        raise UsageError(f"{path}: the original model is not there; say where it is by --model FILE")
    if fingerprint(read(path)) != manifest.provenance.sha256:
        raise UsageError(f"{path}: is not the model that {arguments.bundle} was compiled from, or was changed since")
    return Path(path)
