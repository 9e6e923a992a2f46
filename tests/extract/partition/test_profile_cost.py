"""Costs of operators from the profile database, and of those that were not measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from eqfuse.costmodels.choices import DEFAULT_DEVICE
from eqfuse.costmodels.device import load_device
from eqfuse.costmodels.measuring.measurement import Measurement
from eqfuse.costmodels.measuring.profile import ProfileDatabase
from eqfuse.costmodels.model import RooflineCost
from eqfuse.extract.partition.canonical_key import subgraph_key
from eqfuse.extract.partition.profile_cost import ProfileCost
from eqfuse.ir.graph import Operator, OperatorGraph, Value
from eqfuse.ir.operation import Operation
from eqfuse.ir.types import TensorType

SMALL, LARGE = (TensorType("float32", (8, size)) for size in (64, 4096))
DEVICE = load_device(DEFAULT_DEVICE)


@pytest.fixture
def database(tmp_path: Path) -> ProfileDatabase:
    return ProfileDatabase.open(tmp_path / "profile.db")


def graph(type_: TensorType) -> OperatorGraph:
    return OperatorGraph(
        (Operator("n", "Relu", {}, (0,), (1,)),), (Value("x", type_), Value("y", type_, 0, is_output=True))
    )


def measure(database: ProfileDatabase, type_: TensorType, seconds: float) -> None:
    key = subgraph_key(graph(type_), (0,))
    assert key is not None
    database.add(Measurement(key, DEFAULT_DEVICE, seconds, 0.0, 1, {"eqfuse": "test"}))


def cost(model: ProfileCost | RooflineCost, type_: TensorType) -> float:
    return model.cost(Operation.of("Relu", {}, (type_,), type_, (False,)))


def test_without_measurements_it_is_the_roofline(database: ProfileDatabase) -> None:
    assert cost(ProfileCost(DEVICE, database), SMALL) == cost(RooflineCost(DEVICE), SMALL)


def test_what_was_measured_costs_what_it_took(database: ProfileDatabase) -> None:
    measure(database, SMALL, 0.5)
    assert cost(ProfileCost(DEVICE, database), SMALL) == 0.5


def test_what_was_not_measured_is_scaled_by_what_was(database: ProfileDatabase) -> None:
    roofline = RooflineCost(DEVICE)
    measure(database, SMALL, 3.0 * cost(roofline, SMALL))
    model = ProfileCost(DEVICE, database).calibrate(graph(SMALL))
    assert cost(model, LARGE) == pytest.approx(3.0 * cost(roofline, LARGE))
