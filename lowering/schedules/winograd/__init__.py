"""Winograd's convolution (Lavin and Gray, 2016): transforms, costs, and which convolutions take it."""
