"""Figures of an accelerator, halved and doubled."""

from __future__ import annotations

from eqfuse.benchmarks.accelerators.sensitivity import other_devices
from eqfuse.costmodels.dsa_device import load_dsa_device, single_cluster


def test_one_figure_differs_at_a_time() -> None:
    own = single_cluster(load_dsa_device("stcp920"))
    (_, first), *others = other_devices(own)
    assert first == own
    changed = [[name for name in vars(own) if getattr(own, name) != getattr(other, name)] for _, other in others]
    assert all(len(names) == 1 for names in changed)
    assert len({name for (name,) in changed[:-1]}) == (len(changed) - 1) / 2


def test_the_last_device_has_arrays_that_load_ahead() -> None:
    *_, (_, last) = other_devices(single_cluster(load_dsa_device("stcp920")))
    assert [unit.loads_ahead for unit in last.units] == [True, False, False]
