"""The program that calls compiled kernels: its plan, the C that is generated from it, and the runtime in C."""
