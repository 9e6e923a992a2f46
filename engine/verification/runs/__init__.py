"""Models as files, their structure, runs of them, and whether the values of two runs are equal."""
