"""What the two sides of a rule compute: by the meanings in numpy, and by ONNX Runtime."""
