"""Tiles: the parts of a layer that a core computes at once, as graphs and kernels."""
