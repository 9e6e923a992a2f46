"""Operators as plain C loops, for what no kernel does: results whose size depends on data, and the long tail.

A loop reads tensors of any shape and says itself how large its results are. `sources/` has one C file for one operator,
or for several that differ in a line; the first line of a file names them. Everything else that the C text asks for
comes from ONNX's own schema of the operator (``sources/tensor.h`` lists it), so one file is all that an operator takes.
"""
