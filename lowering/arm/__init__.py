"""64-bit Arm: C projects, cross-compiled, run and counted under QEMU's user emulation."""
