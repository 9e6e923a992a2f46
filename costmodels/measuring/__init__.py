"""Measured costs: figures of this machine, and the times of sub-graphs that a user measured, in a database."""
