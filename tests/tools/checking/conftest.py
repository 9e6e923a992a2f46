"""A fixture that checks a rewrite written in a test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from eqfuse.rules.records import read_file
from eqfuse.tools.checking.check import check_rule, scratch_for
from eqfuse.tools.checking.verdict import Verdict

RECORD = """\
; a line of maths
; @property identity
; @sound {sound}
; @requires what stands on the left
; @source derived
; @example {example}
"""

Check = Callable[..., Verdict]


@pytest.fixture
def verdict(tmp_path: Path) -> Check:
    """Check one rewrite; its example is the rewrite itself unless given."""

    def check(left: str, right: str, *conditions: str, sound: str = "real", example: str = "") -> Verdict:
        path = tmp_path / "trial.egg"
        asked = f" :when ({' '.join(conditions)})" if conditions else ""
        record = RECORD.format(sound=sound, example=example or f"{left} => {right}")
        path.write_text(f'{record}(rewrite {left} {right}{asked} :ruleset explore :name "trial")\n')
        file = read_file(path)
        return check_rule(file.rules[0], scratch_for(file))

    return check
