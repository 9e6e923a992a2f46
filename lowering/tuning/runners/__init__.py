"""Where candidates are built and measured: here, under emulation, on devices of a tracker."""
