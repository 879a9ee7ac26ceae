"""AXI4-Stream, AXI4-Lite and AXI4 edges: ports, register bank, memory engines."""
