"""Orders of sub-graph instances: those of the text, and the best ones."""
