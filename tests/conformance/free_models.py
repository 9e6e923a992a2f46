"""Compiled models of free sizes beside ONNX Runtime, at sizes that it accepts, on inputs that look like real ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import eqfuse
from eqfuse.engine.verification.compare import Tolerance, compare
from eqfuse.engine.verification.judges.oracle import Oracle, judge
from eqfuse.engine.verification.source import read_source
from eqfuse.errors import UsageError
from eqfuse.lowering.ports import Port

Array = np.ndarray[Any, Any]
_SIZES = (512, 320, 640, 48, 576, 96, 224, 736, 33, 160, 256, 97, 1000, 64, 1)
"""Sizes of dimensions that are no batch: of windows of sound, of lines of text and of images, and odd ones."""
_MOST_TRIALS = 80
_RATE = 16000


@dataclass(frozen=True)
class Row:
    """A run at some sizes of the inputs: "right", "wrong" or "refused", and how far outputs are off."""

    shapes: Mapping[str, tuple[int, ...]]
    verdict: str
    difference: str = ""


def compare_at_sizes(model: Path, bundle: Path, count: int) -> Iterator[Row]:
    """Runs at that many sizes which ONNX Runtime accepts, a batch of 1 first; fewer where it accepts no more."""
    compiled = eqfuse.load(bundle)
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
    seen: set[tuple[tuple[int, ...], ...]] = set()
    for sizes in draw_sizes(compiled.inputs):
        feeds = draw_inputs(compiled.inputs, sizes, len(seen))
        shapes = {name: array.shape for name, array in feeds.items()}
        if tuple(shapes.values()) in seen:
            continue
        try:
            expected = session.run(None, feeds)
        except Exception:  # of any of the runtime's own kinds: it refuses these sizes
            continue
        seen.add(tuple(shapes.values()))
        try:
            results = compiled.run(feeds)
        except UsageError as error:
            yield Row(shapes, "refused", str(error))
        else:
            yield _compare(model, feeds, shapes, expected, list(results.values()))
        if len(seen) == count:
            return


def _compare(
    model: Path,
    feeds: dict[str, Array],
    shapes: Mapping[str, tuple[int, ...]],
    expected: Sequence[Array],
    results: Sequence[Array],
) -> Row:
    """Right is what is equal up to the usual tolerance, or is no farther from a float64 run than ONNX Runtime is."""
    differences = [compare(a, b, Tolerance()) for a, b in zip(expected, results, strict=True)]
    text = "; ".join(map(str, differences))
    if all(difference.equal for difference in differences):
        return Row(shapes, "right", text)
    exact = Oracle(read_source(model, "original")).run(feeds).values()
    judgements = [judge(e, a, b, None) for e, a, b in zip(exact, expected, results, strict=True)]
    return Row(shapes, "right" if all(j.no_farther for j in judgements) else "wrong", f"{text} (float64)")


def draw_sizes(ports: Sequence[Port]) -> Iterator[Mapping[str, int]]:
    """Sizes of all free dimensions; first axes, and second ones beside fixed ones, are batches in most of them."""
    names = sorted({name for port in ports for name in port.names})
    generator = np.random.default_rng(0)
    for trial in range(_MOST_TRIALS if names else 5):
        batch = (1, 4, 2, 3, 5)[trial % 5]
        others = [_SIZES[trial]] * len(names) if trial < len(_SIZES) else generator.choice(_SIZES, len(names)).tolist()
        sizes = dict(zip(names, others, strict=True))
        batches = {name for port in ports for name in _batches(port)}
        yield {name: batch if name in batches else sizes[name] for name in names}


def _batches(port: Port) -> frozenset[str]:
    """The free dimension of a state, which has one alone, or the first one of what has elements behind it."""
    if len(port.shape) > 1 and not isinstance(port.shape[0], int):
        return Port(port.name, port.dtype, port.shape[:1]).names
    return port.names if len(port.names) == 1 and len(port.shape) == 3 else frozenset()


def draw_inputs(ports: Sequence[Port], sizes: Mapping[str, int], seed: int) -> dict[str, Array]:
    """Images with edges and gradients, sound, bytes of text, states and a sampling rate."""
    generator = np.random.default_rng(seed)
    return {port.name: _draw(port, port.shape_for(sizes), generator) for port in ports}


def _draw_page(height: int, width: int, generator: np.random.Generator) -> Array:
    """Lines of dark signs of 5 x 7 squares on a bright page, from -1 to 1."""
    scale = max(1, min(height // 12, 4))
    page = np.ones((height, width))
    for top in range(scale * 2, height - 7 * scale, 14 * scale):
        for left in range(scale * 3, width - 5 * scale, 6 * scale):
            sign = np.kron(generator.integers(0, 2, (7, 5)), np.ones((scale, scale)))
            page[top : top + 7 * scale, left : left + 5 * scale] -= 1.8 * sign
    return page


def _draw(port: Port, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    if np.dtype(port.dtype).kind != "f":
        if not shape:
            return np.array(_RATE, port.dtype)
        text = np.frombuffer(Path(__file__).read_bytes(), np.uint8)
        return np.resize(text, shape).astype(port.dtype)
    if len(shape) == 4:
        pages = np.stack([_draw_page(shape[2], shape[3], generator) for _ in range(shape[0])])
        paper = generator.uniform(0.8, 1, (1, shape[1], 1, 1))
        return (pages[:, None] * paper + 0.02 * generator.standard_normal(shape)).astype(port.dtype)
    if len(shape) == 3 and shape[-1] > 1:
        return (0.3 * generator.standard_normal(shape)).astype(port.dtype)
    time = np.arange(int(np.prod(shape))).reshape(shape)
    sound = np.sin(time * 0.05) * np.sin(time * 0.003) * 0.3 + 0.02 * generator.standard_normal(shape)
    return np.asarray(sound).astype(port.dtype)
