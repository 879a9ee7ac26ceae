"""The report's part on offload cards: two all-reduces over networks that lose, in RTL."""

from gradnic.models.offload.cluster import LinkFaults

from ..offload import run as offload_run
from ..training import network as training

N_FLOATS = 16_384
RUNS = (
    {
        "spelling": "torus:4x4",
        "algorithm": "multitree",
        "codec": "thc",
        "faults": LinkFaults(loss=0.01),
        "p": 0.02,
        "spray": True,
    },
    {
        "spelling": "bigraph:2x8",
        "algorithm": "hdrm",
        "codec": "inceptionn",
        "faults": LinkFaults(loss=0.001),
        "p": 0.0,
        "spray": False,
    },
)
N_WORKERS = 16


def gradients():
    """Real gradients of `N_WORKERS` workers at the first iteration."""
    kept, _ = training.train((1,), n_workers=N_WORKERS, loss="sum")
    return kept[1][:, :N_FLOATS]


def run(n_floats=None):
    """Both runs, of at most `n_floats` values a card; a list of dicts, all of them JSON."""
    values = gradients()[:, :n_floats]
    found = []
    for options in RUNS:
        _, summary = offload_run.cosim(gradients=values, **options)
        named = {name: options[name] for name in ("algorithm", "codec", "p", "spray")}
        named |= {"topology": options["spelling"], "loss": options["faults"].loss}
        found.append(summary | named | {"floats": int(values.shape[1])})
    return found


def rows(runs):
    """[(name, text of each run)] for the screen and the page."""
    return [
        ("floats of each card", *(f"{run['floats']:,}" for run in runs)),
        ("frames lost on each link", *(f"{100 * run['loss']:g} %" for run in runs)),
        ("may be missing, p", *(f"{100 * run['p']:g} %" for run in runs)),
        ("is missing", *(f"{100 * run['lost_share']:.2g} %" for run in runs)),
        ("frames", *(f"{run['frames']:,}" for run in runs)),
        ("of them lost", *(f"{run['frames_lost']:,}" for run in runs)),
        ("packets sent again", *(f"{run['data_again']:,}" for run in runs)),
        ("cycles", *(f"{run['cycles'] or 0:,}" for run in runs)),
        ("NMSE of the sum", *(f"{run['nmse']:.2g}" for run in runs)),
        ("mismatches", *(f"{run['mismatches']:,}" for run in runs)),
    ]


def names(runs):
    """What each run is called."""
    return [f"{run['topology']} {run['algorithm']}, {run['codec']}" for run in runs]
