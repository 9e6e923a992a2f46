"""The declarative part: rewrite rules by topic in .egg files, the operators they see, their loader and lint."""
