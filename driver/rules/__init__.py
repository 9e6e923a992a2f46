"""Stages that answer questions about rules: list, check, discover and observe them, and find those at fault."""
