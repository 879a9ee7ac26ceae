"""Circuits, in Amaranth: one file per stage of the datapath, named like its golden model."""

import gc

# Elaboration makes millions of objects that stay. With Python's own thresholds half of its time
# goes into looking whether they are garbage.
gc.set_threshold(200_000, 20, 100)
