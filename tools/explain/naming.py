"""Names short enough to read, each as much of its end as tells it from the others."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable


def shortened(names: Iterable[str]) -> dict[str, str]:
    """For each name the shortest end of it, from a slash or dot on, that begins with a letter and is no other's."""
    ends = {name: list(_ends(name)) for name in dict.fromkeys(names)}
    count = Counter(end for found in ends.values() for end in found)
    return {name: next((e for e in found if count[e] == 1), name) for name, found in ends.items()}


def _ends(name: str) -> Iterable[str]:
    starts = [m.end() for m in re.finditer(r"[/.]+", name)]
    for start in reversed(starts):
        if name[start : start + 1].isalpha():
            yield name[start:]
    if 0 not in starts:
        yield name
