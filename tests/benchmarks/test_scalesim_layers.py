"""The comparison of layers with SCALE-Sim, as far as it needs no SCALE-Sim."""

from __future__ import annotations

import pytest

from eqfuse.benchmarks.accelerators.one_core import Ours
from eqfuse.benchmarks.accelerators.scalesim import Scratchpads, Simulated
from eqfuse.benchmarks.accelerators.scalesim_layers import LayerRow, print_table
from eqfuse.costmodels.systolic import Product

SMALL = Scratchpads(64, 10)


def row(theirs: Simulated, computing: int, total: int, moved: int, product: Product) -> LayerRow:
    return LayerRow("a layer", product, SMALL, theirs, Ours(computing, total, moved))


@pytest.mark.parametrize(
    ("made", "reasons"),
    [
        (row(Simulated(1000, 0, 1000, 100), 1000, 1050, 100, Product(8, 8, 8)), []),
        (row(Simulated(1000, 9000, 11000, 90000), 1000, 5000, 20000, Product(100, 100, 50)), ["refetched"]),
        (row(Simulated(1000, 0, 3000, 20000), 1000, 2000, 20000, Product(100, 10, 200)), ["filled first"]),
        (row(Simulated(1000, 0, 2500, 20000), 1000, 4000, 20000, Product(100, 100, 100)), ["apart"]),
        (row(Simulated(1000, 0, 1000, 200), 1200, 1300, 200, Product(8, 8, 8)), ["rows of tiles"]),
    ],
)
def test_differences_have_reasons(made: LayerRow, reasons: list[str]) -> None:
    assert list(made.reasons()) == reasons


def test_the_table_has_both_counts(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([row(Simulated(1000, 0, 1000, 200), 1200, 1300, 210, Product(8, 9, 10))])
    cells = capsys.readouterr().out.splitlines()[-1].strip("| ").split(" | ")
    assert cells[:6] == ["a layer", "8 x 9 x 10", "10", "1,200", "1,300", "210"]
    assert cells[6:] == ["1,000", "1,000", "0", "200", "+30%", "rows of tiles"]
