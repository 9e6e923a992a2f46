"""Stages that answer questions about rules: list, check and discover them, observe and blame them."""
