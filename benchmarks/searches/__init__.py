"""Searches for schedules side by side: eqfuse's with and without its parts, and MetaSchedule."""
