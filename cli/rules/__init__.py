"""``eqfuse rules`` and ``eqfuse bisect``: the commands about rules and what they did."""
