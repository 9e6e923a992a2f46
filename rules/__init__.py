"""The declarative part: rewrite rules by topic in .egg files, their loader and lint."""
