"""Kernel templates: which connected operators become one kernel, and what that costs. One file for each family."""
