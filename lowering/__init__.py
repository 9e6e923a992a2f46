"""From a chosen graph to compiled code. Empty so far: ONNX to ONNX comes first."""
