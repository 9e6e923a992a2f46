"""Every row of DNNFusion's Table 4 follows from rules that are discovered with the catalogue switched off."""

from __future__ import annotations

from functools import cache

import pytest

from ..tools.discovery.table4 import TABLE_4, derives, discovered

pytestmark = pytest.mark.conformance

rules_over = cache(discovered)


@pytest.mark.parametrize("number", TABLE_4)
def test_a_row_is_rediscovered(number: str) -> None:
    family = TABLE_4[number]
    assert derives(rules_over(family.operators, 3), family)
