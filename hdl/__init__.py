"""Circuits, in Amaranth: one file per stage of the datapath, named like its golden model."""
