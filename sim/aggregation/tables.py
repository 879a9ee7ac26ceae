"""An aggregator's jobs and children as the plain inputs of its gate and parser have them."""

import numpy as np
from gradnic.hdl.aggregation.parser import Child
from gradnic.hdl.frame.intake import Names

from .unit import registers


def programmed(model, config):
    """An instance whose jobs and children are those of `config`, written in its first cycles.

    model : batch.Model with the plain inputs ``names``, ``write`` and maybe ``jobs`` of a
    `gradnic.hdl.aggregation.parser.ContributionParser`, with a place for each job.
    """
    n_jobs = len(config.jobs)
    jobs = [
        {"number": job.job, "enabled": 1, "switchml": int(job.kind == "switchml")}
        for job in config.jobs
    ]
    names = Names(n_jobs).const({"port": config.udp_port, "jobs": jobs})
    layout, entries = model.levels["write"].shape, []
    for place, job in enumerate(config.jobs):
        for src, child in enumerate(job.children):
            fields = {"mac": child.mac, "ip": child.ip, "udp_port": child.udp_port, "src": src}
            entry = {"enable": 1, "port": child.port, "job": place}
            entries.append(layout.const(entry | {"child": Child.const(fields | {"enabled": 1})}))
    rows = [_row(entry, model.levels["write"].size) for entry in [*entries, layout.const({})]]
    instance = model.instance()
    signals = {
        "names": _row(names, model.levels["names"].size)[None],
        "jobs": registers(config.jobs, n_jobs),
        "write": np.array(rows),
    }
    instance.run(
        signals={name: value for name, value in signals.items() if name in model.levels},
        drain=False,
        max_cycles=len(rows) + 1,
        probe_cycles=0,
    )
    return instance


def _row(constant, size):
    value = constant.as_value().value
    return np.frombuffer(value.to_bytes(size, "little"), np.uint8)
