"""A model, and what the process that compiles it would find out."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, load, numpy_helper, save

import eqfuse
from eqfuse.driver.session.verdicts import Job, Verdict, Verdicts

from ..engine.models import model as build
from ..engine.models import value

ROWS = 3


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``y = Relu(x W)``, ``z = table[i]``; i has free size N."""
    random = np.random.default_rng(0)
    weights = {"w": random.standard_normal((8, 4), np.float32), "table": random.standard_normal((5, 2), np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["xw"]),
        helper.make_node("Relu", ["xw"], ["y"]),
        helper.make_node("Gather", ["table", "i"], ["z"], axis=0),
    ]
    inputs = [value("x", [ROWS, 8]), value("i", ["N"], TensorProto.INT64)]
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    save(build(nodes, inputs, [value("y", [ROWS, 4]), value("z", ["N", 2])], weights), path)
    return path


@pytest.fixture(scope="session")
def bundle(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model compiled for two indices."""
    folder = tmp_path_factory.mktemp("bundle") / "bundle"
    eqfuse.compile(model, folder, input_shapes={"i": (2,)}, threads=2, measure=False)
    return folder


@pytest.fixture(scope="session")
def free_bundle(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model compiled for any number of indices."""
    folder = tmp_path_factory.mktemp("bundle") / "free"
    eqfuse.compile(model, folder, typical="N=2", threads=2, measure=False)
    return folder


@pytest.fixture(scope="session")
def slow_bundle(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model with much work beside it that adds zeros: many times as slow as ONNX Runtime on the model."""
    proto = load(model)
    random = np.random.default_rng(0)
    weights = {"wide": random.standard_normal((8, 50_000), np.float32), "two": np.float32(2)}
    proto.graph.initializer.extend(numpy_helper.from_array(np.asarray(w), name) for name, w in weights.items())
    proto.graph.node[1].output[0] = "relu"
    proto.graph.node.extend(
        [
            helper.make_node("MatMul", ["x", "wide"], ["product"]),
            helper.make_node("Sin", ["product"], ["sine"]),
            helper.make_node("Sub", ["sine", "two"], ["negative"]),
            helper.make_node("Relu", ["negative"], ["zeros"]),
            helper.make_node("ReduceMax", ["zeros"], ["zero"], axes=[1], keepdims=1),
            helper.make_node("Add", ["relu", "zero"], ["y"]),
        ]
    )
    folder = tmp_path_factory.mktemp("bundle")
    save(proto, folder / "slow.onnx")
    eqfuse.compile(folder / "slow.onnx", folder / "slow", input_shapes={"i": (2,)}, threads=2, measure=False)
    return folder / "slow"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Finding:
    """What stands in for the process: it answers with a verdict, and has the bundle in the cache."""

    def __init__(self, bundle: Path, free_bundle: Path) -> None:
        self.bundle = bundle
        self.verdict = Verdict(True, "compiled", 2.0)
        self.jobs: list[Job] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self._free_bundle = free_bundle

    def __call__(self, verdicts: Verdicts, job: Job, lock: int) -> Verdict:
        self.jobs.append(job)
        self.may_answer.wait(60)
        made = self.bundle if job.typical is None else self._free_bundle
        bundle = made if self.verdict.takes_over else None
        verdicts.keep(job.key, self.verdict, bundle)
        return self.verdict


@pytest.fixture
def finding(bundle: Path, free_bundle: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Finding]:
    """The stand-in for the process that compiles."""
    finding = Finding(bundle, free_bundle)
    monkeypatch.setattr(Verdicts, "_compile", lambda self, job, lock: finding(self, job, lock))
    yield finding
    finding.may_answer.set()
