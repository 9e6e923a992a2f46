"""Types and sizes of a model's values, and contents of small tensors: numbers, or polynomials of dynamic dimensions."""
