"""Samples of rules: terms drawn at random so that a rule fires on them."""
