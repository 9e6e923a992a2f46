"""Values for the inputs of a model: the roles of its inputs, random values of several kinds, and users' values."""
