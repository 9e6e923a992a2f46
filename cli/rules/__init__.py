"""``eqfuse rules`` and ``eqfuse bisect``: what is about the rules of a run."""
