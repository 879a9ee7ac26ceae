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
    "trees": "trees",
    "time-to-accuracy": "accuracy_time",
}


def _module(name):
    return importlib.import_module(f".{MODULES[name]}", __package__)


def run(names, *, quick, say, **more):
    """Run the papers of `names`; a dict of JSON: quick, claims, papers, constants.

    say : called with a line of progress now and then. more : arguments of these papers only. The
    same arguments give the same dict.
    """
    results = []
    for name in names:
        result = _module(name).run(quick, lambda text, name=name: say(f"{name}: {text}"), **more)
        results.append(result.as_json())
    return _found(results, quick)


def _found(results, quick):
    return {
        "quick": quick,
        "claims": [claim for result in results for claim in result["claims"]],
        "papers": results,
        "constants": {name: asdict(constant) for name, constant in CONSTANTS.items()},
    }


def work(names, *, quick, **more):
    """Arguments of `part`, a list of dicts: the papers, or the points of those that have them."""
    items = []
    for name in names:
        points = getattr(_module(name), "points", None)
        parts = [{"point": list(key)} for key in points(quick, **more)] if points else [{}]
        items += [{"name": name, "quick": quick, **more, **one} for one in parts]
    return items


def part(name, quick, point=None, **more):
    """What a process of a cluster does: a paper's dict, or one point of it."""
    if point is not None:
        return _module(name).measure(*point)
    return _module(name).run(quick, lambda _: None, **more).as_json()


def joined(items, results):
    """The dict of `run` out of the `results` of all `items` of `work`, or of several works."""
    known, papers = {}, {}
    for item, result in zip(items, results, strict=True):
        own = {k: v for k, v in item.items() if k not in ("name", "quick", "point")}
        paper = (item["name"], *own.items())
        papers[paper] = result
        if "point" in item:
            known.setdefault(paper, []).append((item["point"], result))
    quick = items[0]["quick"]
    for (name, *own), found in known.items():
        module = _module(name)
        answers = module.answers(*zip(*found, strict=True))
        papers[name, *own] = module.run(quick, lambda _: None, answers, **dict(own)).as_json()
    return _found(list(papers.values()), quick)
