"""Schedules of functions with several anchor operators, and of operators that join others."""
