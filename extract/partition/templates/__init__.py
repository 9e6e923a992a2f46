"""Kernel templates: which connected operators become one kernel, and at what cost. One file for each family."""
