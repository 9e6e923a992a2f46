"""Runs in an environment with PyTorch, which eqfuse itself does without: builds, calibrates and exports models."""
