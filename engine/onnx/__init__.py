"""ONNX files in and out, and what is known of the values of a model."""
