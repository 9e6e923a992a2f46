"""The declarative part: rewrite rules by topic in .egg files, the operators they see, and the loader and lint for both."""
