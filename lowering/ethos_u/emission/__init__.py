"""From quantised operators of ONNX to TOSA: which integers stand for which numbers, and what computes them."""
