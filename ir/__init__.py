"""The nouns of every layer: tensor types, the operator graph, and the table of operators."""
