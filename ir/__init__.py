"""The nouns that every layer speaks: tensor types, the operator graph, and the table of operators."""
