"""Forms of kernels to test and time schedules with."""
