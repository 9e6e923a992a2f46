"""The provenance in a result."""

from __future__ import annotations

import pytest

from eqfuse.costmodels.device import load_device
from eqfuse.engine.onnx.provenance import Provenance, provenance, stamp
from eqfuse.rules.vocabulary import Precision

DEVICE = load_device("arm64")


def test_a_stamp_is_read_back_and_leaves_other_entries_alone() -> None:
    metadata = {"author": "somebody"}
    stamp(metadata, "fast", 12, DEVICE)
    assert provenance(metadata) == Provenance("fast", 12, f"arm64 {DEVICE.digest}")
    assert metadata["author"] == "somebody"


@pytest.mark.parametrize(
    ("earlier", "later", "kept"),
    [("real", "exact", "real"), ("fast", "real", "fast"), ("exact", "real", "real"), ("exact", "exact", "exact")],
)
def test_a_result_made_of_a_result_is_of_the_looser_precision(
    earlier: Precision, later: Precision, kept: Precision
) -> None:
    metadata: dict[str, str] = {}
    stamp(metadata, earlier, 3, load_device("x86-64-v2"))
    stamp(metadata, later, 4, DEVICE)
    assert provenance(metadata) == Provenance(kept, 4, f"arm64 {DEVICE.digest}")


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"eqfuse.precision": "real"},
        {"eqfuse.rules": "3"},
        {"eqfuse.precision": "vague", "eqfuse.rules": "3"},
        {"eqfuse.precision": "real", "eqfuse.rules": "many"},
    ],
)
def test_other_entries_say_nothing(metadata: dict[str, str]) -> None:
    assert provenance(metadata) is None


def test_one_rule_is_singular() -> None:
    assert str(Provenance("exact", 1)) == "made with --precision exact, 1 rule matched"


def test_a_result_of_unchecked_rules_stays_one() -> None:
    metadata: dict[str, str] = {}
    stamp(metadata, "real", 1, DEVICE, ("own.egg",))
    stamp(metadata, "real", 1, DEVICE)
    result = provenance(metadata)
    assert result is not None
    assert result.trusted == ("own.egg",)
    assert str(result).endswith(", rules of own.egg used unchecked")
