"""The kernels of a graph: which operators they have, their functions, and compiling them."""
