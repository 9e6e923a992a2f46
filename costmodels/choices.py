"""What users choose from by name for costs. Light to import, so that ``--help`` answers at once."""

from __future__ import annotations

DEFAULT_DEVICE = "x86-64-v4"
"""The device that costs are for unless the user names one. It is the same on every machine, so that results are too;
kernels.toml was measured with its figures."""
DEFAULT_RUNTIME = "onnxruntime"
"""The runtime that results are for unless the user names one."""
ACCELERATOR = "dsa-"
"""The beginning of the names of accelerators, which a simulator executes."""
