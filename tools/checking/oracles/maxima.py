"""Both zeros as the largest or least of many elements.

Which of them an operator returns depends on the order in which it looks at the elements, and ONNX Runtime's kernels
look at several at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..drawing.elements import draw, satisfy_facts
from ..drawing.evaluation import Evaluation, is_float
from ..drawing.near_ties import applications
from ..drawing.samples import Sample
from ..drawing.scratch import Fired

_MAXIMA = frozenset({"Max", "Min", "ReduceMax", "ReduceMin", "MaxPool", "GlobalMaxPool"})
_DRAWS = 8
"""Choices of elements for a sample, half of them for maxima and half for minima."""


def zeros_in_maxima(sample: Sample, fired: Fired, random: np.random.Generator) -> Iterator[Evaluation]:
    """Evaluations of elements among which zeros of both signs are the largest or the least ones, where an operator of
    either side takes the largest or the least of several."""
    if not any(each.head in _MAXIMA for each in applications(sample, fired)):
        return
    for number in range(_DRAWS):
        elements = draw(sample, "ordinary", {}, random)
        for leaf in sample.named_leaves:
            if is_float(elements[leaf.name]):
                zeros = np.array([0.0, -0.0, -1.0 if number % 2 else 1.0], elements[leaf.name].dtype)
                elements[leaf.name] = satisfy_facts(random.choice(zeros, leaf.type.shape), leaf)
        yield Evaluation(sample, fired, elements, {})
