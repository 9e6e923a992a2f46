"""Progress of a long list, on a clock that the test sets."""

from __future__ import annotations

import pytest

from eqfuse.support.countdown import Countdown


def test_the_bar_and_the_count() -> None:
    countdown = Countdown(4, "rules", lambda: 0.0)
    assert countdown.advance() == "[#####---------------] 1 of 4 rules"


@pytest.mark.parametrize(
    ("each", "left"), [(0.5, "about 48 s left"), (3.0, "about 5 min left"), (60.0, "about 1.6 h left")]
)
def test_the_estimate_is_for_what_is_left(each: float, left: str) -> None:
    now = 0.0
    countdown = Countdown(100, "rules", lambda: now)
    for _ in range(4):
        now += each
        text = countdown.advance()
    assert text.endswith(left)
