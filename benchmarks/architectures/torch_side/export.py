"""Export models of PyTorch's libraries; an answer has how far ONNX Runtime is from PyTorch.

    python -m architectures.torch_side.export < requests.json     # in benchmarks, by a Python that has PyTorch
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..tool_side.answering import answer_all, load, why_useless
from .calibration import calibrate

_OPSETS = {"ts": 17, "dynamo": 18}
_CALIBRATING = 4
"""Samples of a batch from which statistics are taken."""


def _define_missing_operators() -> None:
    """Let torchvision be imported beside a PyTorch that its compiled part does not fit: exports do without that."""
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        for name in [each for each in sys.modules if each.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        _KEPT.append(torch.library.Library("torchvision", "DEF"))
        for operator in ("nms", "qnms"):
            _KEPT[0].define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


_KEPT: list[Any] = []
"""Definitions of operators hold while their library lives."""


def _build(architecture: Mapping[str, Any], exporter: str) -> nn.Module:
    library, name = architecture["library"], architecture["model"]
    configuration = dict(architecture["configuration"])
    if library == "timm":
        import timm

        return timm.create_model(name, pretrained=False, **configuration)
    if library == "torchvision":
        import torchvision.models

        module, _, function = name.rpartition(".")
        place = getattr(torchvision.models, module) if module else torchvision.models
        if function[0].isupper():
            return getattr(place, function)(**configuration)
        extra = {"weights_backbone": None} if module == "segmentation" else {}
        return getattr(place, function)(weights=None, **extra, **configuration)
    if library == "torchaudio":
        import torchaudio.models

        return getattr(torchaudio.models, name)(**configuration)
    outer, _, part = name.partition(".")
    if library == "diffusers":
        import diffusers

        model = getattr(diffusers, outer)(**configuration)
        return getattr(model, part) if part else model
    if library in ("transformers", "cached"):
        import transformers

        transformers.logging.set_verbosity_error()
        kind = getattr(transformers, outer)
        model = kind(kind.config_class(**configuration))
        if exporter == "ts":
            model.set_attn_implementation("eager")
        if library == "cached":
            from .cached import CachedDecoder

            return CachedDecoder(model)
        return getattr(model, part) if part else model
    from . import modules

    return getattr(modules, name)(**configuration)


def _draw(entry: Mapping[str, Any], generator: torch.Generator, samples: int | None = None) -> Tensor:
    shape = list(entry["shape"])
    if samples is not None and shape[0] == 1:
        shape[0] = samples
    if entry["kind"] == "ones":
        return torch.ones(shape, dtype=torch.int64)
    if entry["kind"] == "integers":
        return torch.randint(0, entry["high"], shape, generator=generator)
    if entry["kind"] == "uniform":
        return torch.rand(shape, generator=generator)
    return torch.randn(shape, generator=generator)


def _draw_all(inputs: list[Mapping[str, Any]], seed: int, samples: int | None = None) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {entry["name"]: _draw(entry, generator, samples) for entry in inputs}


def _tensors(result: Any) -> Iterator[Tensor]:
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, Mapping):
        for each in result.values():
            yield from _tensors(each)
    elif isinstance(result, (tuple, list)):
        for each in result:
            yield from _tensors(each)


class _Plain(nn.Module):
    """Takes tensors in order, and gives a tuple of tensors."""

    def __init__(self, model: nn.Module, names: tuple[str, ...], by_name: bool) -> None:
        super().__init__()
        self.model, self.names, self.by_name = model, names, by_name

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        if self.by_name:
            return tuple(_tensors(self.model(**dict(zip(self.names, tensors, strict=True)))))
        return tuple(_tensors(self.model(*tensors)))


def _write(plain: _Plain, feeds: dict[str, Tensor], request: Mapping[str, Any], outputs: int) -> None:
    form, inputs = request["form"], request["architecture"]["inputs"]
    free = [{int(axis): name for axis, name in entry["free"].items()} if form["is_free"] else {} for entry in inputs]
    names = [f"output_{position}" for position in range(outputs)]
    shared: dict[str, Any] = {
        "input_names": list(feeds), "output_names": names, "opset_version": _OPSETS[form["exporter"]],
    }  # fmt: skip
    if form["exporter"] == "ts":
        axes = {name: each for name, each in zip(feeds, free, strict=True) if each}
        torch.onnx.export(
            plain, tuple(feeds.values()), request["path"], dynamo=False, dynamic_axes=axes or None, **shared
        )
    else:
        shapes = (tuple(each or None for each in free),) if form["is_free"] else None
        torch.onnx.export(
            plain, tuple(feeds.values()), request["path"], dynamo=True, external_data=False, verbose=False,
            dynamic_shapes=shapes, **shared,
        )  # fmt: skip


def _export(request: Mapping[str, Any]) -> dict[str, Any]:
    architecture = request["architecture"]
    inputs = architecture["inputs"]
    torch.manual_seed(0)
    model = _build(architecture, request["form"]["exporter"]).eval()
    by_name = architecture["library"] in ("transformers", "diffusers")
    plain = _Plain(model, tuple(entry["name"] for entry in inputs), by_name).eval()
    batches = [_draw_all(inputs, seed, _CALIBRATING) for seed in (7, 8)]
    calibrate(_ByName(plain), batches)
    feeds, others = _draw_all(inputs, 0), _draw_all(inputs, 1)
    with torch.no_grad():
        expected, moved = plain(*feeds.values()), plain(*others.values())
        if problem := why_useless([each.numpy() for each in expected], [each.numpy() for each in moved]):
            raise ValueError(problem)
        _write(plain, feeds, request, len(expected))
    return {"outputs": len(expected), "error_of_runtime": _error_of_runtime(request["path"], feeds, expected)}


class _ByName(nn.Module):
    """Takes tensors by their names."""

    def __init__(self, plain: _Plain) -> None:
        super().__init__()
        self.plain = plain

    def forward(self, **tensors: Tensor) -> tuple[Tensor, ...]:
        return self.plain(*tensors.values())


def _error_of_runtime(path: str, feeds: Mapping[str, Tensor], expected: tuple[Tensor, ...]) -> float:
    """The largest difference of ONNX Runtime from PyTorch, as a part of the output's size."""
    session = load(path)
    known = {each.name for each in session.get_inputs()}
    results = session.run(None, {name: tensor.numpy() for name, tensor in feeds.items() if name in known})
    worst = 0.0
    for got, tensor in zip(results, expected, strict=True):
        wanted = tensor.numpy().astype(np.float64)
        if wanted.size:
            worst = max(worst, float(np.abs(got - wanted).max()) / max(float(np.abs(wanted).max()), 1e-30))
    return worst


if __name__ == "__main__":
    torch.set_num_threads(1)
    _define_missing_operators()
    answer_all(_export)
