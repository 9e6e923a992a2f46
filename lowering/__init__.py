"""From a graph cut into kernels to compiled code.

A kernel becomes a PrimFunc (`compute`, `kernel_function`), gets a schedule (`schedules`) and is compiled in a process
of its own (`kernels`). Generated C calls the kernels in order (`program`): for this machine in a shared library that
lies in a folder with its manifest (`bundle`) and is run from Python (`running`), for another one in a C project (`arm`
has its emulator). What has no lowering runs in ONNX Runtime (`fallback`). `check` verifies, `blame` explains; what was
just compiled runs in a process of its own (`isolation`).
"""
