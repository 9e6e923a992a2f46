"""TOSA 1.0: graphs of integer tensors, as data, as numbers, and as a file for Arm's tools."""
