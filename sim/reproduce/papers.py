"""The papers that can be run, and what one run of several gives."""

import importlib
from dataclasses import asdict

from gradnic.models.training.constants import CONSTANTS

MODULES = {  # name: module; the order of `all`
    "inceptionn": "inceptionn",
    "thc": "thc",
    "multitree": "multitree",
    "eflops": "eflops",
    "dlcp": "dlcp",
    "composed": "composed",
    "time-to-accuracy": "accuracy_time",
}


def run(names, *, quick, say, **more):
    """Run the papers of `names`; a dict of JSON: quick, claims, papers, constants.

    say : called with a line of progress now and then. more : arguments of these papers only. The
    same arguments give the same dict.
    """
    results = []
    for name in names:
        module = importlib.import_module(f".{MODULES[name]}", __package__)
        result = module.run(quick, lambda text, name=name: say(f"{name}: {text}"), **more)
        results.append(result.as_json())
    return {
        "quick": quick,
        "claims": [claim for result in results for claim in result["claims"]],
        "papers": results,
        "constants": {name: asdict(constant) for name, constant in CONSTANTS.items()},
    }


def alone(name, quick, **more):
    """`run` of one paper, without progress: what a process of a cluster does."""
    return run([name], quick=quick, say=lambda _: None, **more)


def joined(runs):
    """The dict of `run` for all papers of several, in their order."""
    both = ("claims", "papers")
    return runs[0] | {key: [one for found in runs for one in found[key]] for key in both}
