"""Processes for work that may crash, hang or need too much memory: new interpreters, or forks of this process."""
