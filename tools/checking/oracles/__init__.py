"""The values of the two sides of a rule, in numpy and in ONNX Runtime, and their comparison."""
