"""The version of the package, which the build reads, and of the output of `--json`."""

__version__ = "0.1.0"
JSON_SCHEMA = 1
"""One more whenever a field of the output of `--json` goes or changes its meaning, not when one is added."""
