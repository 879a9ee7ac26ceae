"""The report's part on sums in the network: RTL workers around the RTL aggregator, with loss."""

import numpy as np
from gradnic.models.aggregation.star import Faults

from ..aggregation import star_run

SHAPE = {"B": 256}  # of the job, see `star_run.star_config`
N_WORKERS = 2
N_FLOATS = 20_000
FAULTS = Faults(loss=0.01, duplicate=0.01, reorder=64)


def run(gradients, *, seed=1):
    """THC all-reduce of `N_FLOATS` values of `N_WORKERS` rows; a dict, all of it JSON."""
    gradients = gradients[:N_WORKERS, :N_FLOATS]
    config = star_run.star_config(len(gradients), **SHAPE)
    libraries = star_run.build(config)
    result = star_run.cosim(gradients, config, libraries, FAULTS, seed=seed)
    exact = gradients.astype(np.float64).mean(axis=0)
    error = result.results[0][: exact.size] - exact
    return result.summary() | {
        "floats": int(gradients.shape[1]),
        "loss": FAULTS.loss,
        "nmse": float(np.square(error).sum() / np.square(exact).sum()),
    }


def rows(star):
    """[(name, text)] for the screen and the page."""
    counters = star["counters"]
    again = star["frames"] - counters["accepted"]
    return [
        ("floats of each worker", f"{star['floats']:,}"),
        ("frames lost on each link", f"{100 * star['loss']:g} %"),
        ("contributions, each counted once", f"{counters['accepted']:,}"),
        ("frames that came again, refused or answered", f"{again:,}"),
        ("results sent, of them again", f"{star['answers']:,}, {counters['retransmitted']:,}"),
        ("cycles of the aggregator", f"{star['cycles']:,}"),
        ("NMSE of the mean, 4 bits a value", f"{star['nmse']:.2g}"),
        ("mismatches", f"{star['mismatches']:,}"),
    ]
