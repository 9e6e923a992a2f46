"""64-bit Arm: C projects around compiled kernels, cross-compiled, run and counted under QEMU's user emulation."""
