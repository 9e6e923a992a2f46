"""The version of the package, which the build reads, and of what `--json` prints."""

__version__ = "0.1.0"
JSON_SCHEMA = 1
"""One more whenever a field of what `--json` prints goes or changes its meaning, not when one is added."""
