"""An aggregator's jobs and children as the plain inputs of its gate and parser have them."""

import numpy as np

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
    entries = []
    for place, job in enumerate(config.jobs):
        for src, child in enumerate(job.children):
            fields = {"mac": child.mac, "ip": child.ip, "udp_port": child.udp_port, "src": src}
            entry = {"enable": 1, "port": child.port, "job": place}
            entries.append(entry | {"child": fields | {"enabled": 1}})
    rows = np.concatenate([level(model, "write", entry) for entry in [*entries, {}]])
    instance = model.instance()
    signals = {
        "names": level(model, "names", {"port": config.udp_port, "jobs": jobs}),
        "jobs": registers(config.jobs, n_jobs),
        "write": rows,
    }
    instance.run(
        signals={name: value for name, value in signals.items() if name in model.levels},
        drain=False,
        max_cycles=len(rows) + 1,
        probe_cycles=0,
    )
    return instance


def level(model, name, fields):
    """What a plain input of a struct's or an array's shape is given: one row of its bytes.

    fields : as of ``const`` of the input's shape.
    """
    port = model.levels[name]
    value = port.shape.const(fields).as_value().value
    return np.frombuffer(value.to_bytes(port.size, "little"), np.uint8)[None]
