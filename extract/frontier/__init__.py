"""Exact extraction by a search over frontiers: the sets of e-classes that are needed and not decided yet."""
