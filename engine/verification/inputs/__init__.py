"""Inputs to run a model on: what its inputs want, random values of several kinds, and values that users give."""

from __future__ import annotations

from .draws import generate, vary
from .given import Sample, read_samples
from .plans import InputSpec, Plan, Temper, enlarge, input_specs, plans

__all__ = [
    "InputSpec",
    "Plan",
    "Sample",
    "Temper",
    "enlarge",
    "generate",
    "input_specs",
    "plans",
    "read_samples",
    "vary",
]
