"""Tools that no model passes on its way to a result: the rule checker, rule discovery, explanations."""
