"""ONNX to e-graph and back: reading, inference, encoding, saturation, constants, decoding, verification."""
