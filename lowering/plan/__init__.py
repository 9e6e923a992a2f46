"""What is written down about a compiled model: its plan, its manifest, its sizes, and the C that follows from them."""
