"""ONNX files in and out, and the types and constants of a model's values."""
