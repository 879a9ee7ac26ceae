"""Whole cards whose hosts do all by frames: the sums are those of golden cards, bit for bit."""

import numpy as np
from gradnic.models.offload import job_cluster as golden
from gradnic.models.offload.cluster import LinkFaults
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse
from gradnic.sim.offload.host_cluster import HostCluster
from gradnic.sim.offload.host_speed import Load, post_to_packet
from gradnic.sim.offload.job_cluster import EVERYTHING

from gradnic.interface.host_frame import Kind
from gradnic.interface.job import Job, JobStatus

TOPOLOGY = parse("ring:3")
TABLES = tuple(compile_table(build(TOPOLOGY, name)) for name in ("ring", "multitree"))
N, N_ELEMS, RESULT, MEMORY = 3, 1500, 65536, 1 << 18


def test_from_reset_to_sums_by_frames_alone():
    """HELLO, registers, tables, WRITE, POST, EVENT and READ, on links that lose."""
    faults = LinkFaults(loss=0.03, duplicate=0.05, reorder=60, delay=20, seed=4)
    rtl = HostCluster(
        TABLES, TOPOLOGY, MEMORY, 6000, packet=96, t_probe=500, by_frames=True, **EVERYTHING
    )
    rtl.open(faults)
    model = golden.JobCluster(
        TABLES, TOPOLOGY, MEMORY, n_active=2, packet=96, gives_up=False, n_packets=1024,
        settings={"t_probe": 40, "t_retry": 40},
    )  # fmt: skip
    jobs = [
        Job(id=9 + k, tensor=9 + k, gen=1, elems=N_ELEMS, table=k, source=32768 * k,
            result=RESULT + 32768 * k) for k in range(2)
    ]  # fmt: skip
    values = np.random.default_rng(3).standard_normal((2, N, N_ELEMS)).astype(np.float32)
    for node, card in enumerate(rtl.drivers):
        told = card.link.hello
        assert (told["beat_bytes"], told["n_active"], told["n_nodes"]) == (16, 2, 64)
        for job, mine in zip(jobs, values[:, node], strict=True):
            card.link.store(job.source, mine)
            model.cards[node].memory[job.source :][: mine.nbytes] = mine.view(np.uint8)
            model.post(node, job)
        for job in jobs:
            card.post(job)
    model.run(faults)
    for node, card in enumerate(rtl.drivers):
        ended = sorted((card.completion(1.0) for _ in jobs), key=lambda one: one.id)
        assert [(one.id, one.status, one.leaves_least) for one in ended] == [
            (job.id, JobStatus.DONE, N) for job in jobs
        ]
        for job in jobs:
            total = card.link.load(job.result, 4 * N_ELEMS)
            assert total == model.cards[node].memory[job.result :][: 4 * N_ELEMS].tobytes()
        counts = card.counters()
        assert counts["host_overrun"] == counts["host_format"] == counts["spoofed"] == 0
        assert not card.get("status")["completion"]
        assert card.get("mac_high")["node"] == node
    passes = bytes.fromhex("02676e000001") + bytes(80)  # to another address
    for port in range(2):
        for frame in bytes.fromhex("02676e000000") + bytes(80), passes:
            rtl.send(0, port, frame)
    rtl.step(n_cycles=500)
    left = [(port, frame) for _, node, port, frame in rtl.sent if frame[:5] == passes[:5]]
    assert sorted(left) == [(0, passes), (1, passes)]  # what is for the card leaves nowhere


def test_writes_and_reads_go_at_the_rate_of_the_line_while_cards_sum():
    """And the sums take as long as alone. How soon a POST becomes a packet is held, too."""
    n_elems, result = 12000, 65536
    cluster = HostCluster(
        TABLES, TOPOLOGY, MEMORY, n_elems, packet=352, by_frames=True, **EVERYTHING
    )
    cluster.open()
    values = np.random.default_rng(5).integers(-99, 99, (N, n_elems)).astype(np.float32)
    for node, mine in enumerate(values):
        cluster.memory(node)[: mine.nbytes] = mine.view(np.uint8)
    jobs = Load(cluster, n_elems, result, (2 * result, 2 * result))
    alone, _ = jobs.play(1408)
    assert (cluster.memory(0)[result:][: 4 * n_elems].view(np.float32) == values.sum(0)).all()
    for payload, least in (1408, 0.92), (8192, 0.97):
        for kind in Kind.WRITE, Kind.READ:
            cycles, rate = jobs.play(payload, kind, 350_000)  # less than the sums take
            print(f"{kind.name} of {payload}: {rate:.1%} of the line, sums {cycles} ({alone})")
            assert rate >= least
            assert cycles <= 1.01 * alone
    job = Job(id=77, tensor=7, gen=1, elems=n_elems, source=0, result=result)
    cycles = post_to_packet(cluster, job)
    print(f"POST to first packet: {cycles} cycles")
    assert cycles <= 332  # 172 of them for memory and a packet of 92 beats, stored whole; 12 means
