"""ONNX files in and out, their nodes and types, and the evaluation of constant nodes."""
