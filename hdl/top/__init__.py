"""The tops that `gradnic verilog` writes, and how they are written."""
