"""What is off the way from a model to its result: the rule checker, rule discovery, explanations."""
