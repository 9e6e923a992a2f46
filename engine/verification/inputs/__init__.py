"""Values for the inputs of a model: the roles of its inputs, random values of several kinds, and users' values."""

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
