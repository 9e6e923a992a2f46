"""The version of eqfuse."""

__version__ = "0.1.0"
