"""Sizes of values and contents of small integer tensors, as polynomials of the free dimensions of the inputs."""
