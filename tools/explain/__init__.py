"""Why the rules did what they did: chains of rewrites that can be replayed, and what kept a rule from matching."""
