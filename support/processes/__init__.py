"""Processes for what may crash, hang or need too much memory: new interpreters, or copies of this process."""
