"""A sample of 100 mutants of the codec and the card dies in every test run; `make mutants` plays
more than 1,000, and the samples marked slow are of all other blocks.
"""

import numpy as np
import pytest
from gradnic.sim.engine import batch
from gradnic.sim.inceptionn import units as engines
from gradnic.sim.mutation import engines as campaign_engines
from gradnic.sim.mutation import run as mutate

#: (mutants, least share of them killed). Each change of a circuit draws another sample. Survivors
#: are put to a proof where that is quick; elsewhere equivalent ones count as not killed
SAMPLES = {
    "compressor": (34, 0.91),
    "decompressor": (33, 0.87),
    "inline": (33, 0.75),
}
PROVEN = ("compressor",)
SLOW = {
    "compressor": (100, 0.86),
    "decompressor": (100, 0.80),
    "registers": (100, 0.94),
    "scheduler": (100, 0.84),
    "ring": (100, 0.86),
    "hadamard": (100, 0.86),
    "thc_encoder": (100, 0.80),
    "thc_decoder": (100, 0.80),
    "level_table": (100, 0.90),
    "job_queue": (100, 0.90),
    "job_context": (100, 0.96),
    "job_cutter": (100, 0.80),
    "packet_steps": (100, 0.80),
    "engine_pool": (100, 0.90),
    "packet_pick": (100, 0.95),
    "allowance_walk": (100, 0.80),
    "thc_keys": (100, 0.80),
}
#: blocks whose bench is their campaign's alone: else it could go stale unnoticed
OWN = ("scheduler", "level_table", "job_queue", "job_context", "job_cutter", "packet_steps")
OWN += ("packet_pick", "allowance_walk", "thc_keys")


@pytest.mark.parametrize("block", OWN)
def test_circuit_itself_passes(block):
    campaign = mutate.load(block)
    campaign.test(batch.build(campaign.component()))


def check(block, count, least, prove=False, jobs=None):
    report = mutate.run(mutate.load(block), count=count, prove=prove, jobs=jobs)
    assert report["control"] == "passes"
    assert report["errors"] == 0, [m for m in report["mutants"] if m["verdict"] == "error"]
    survivors = [m["text"] for m in report["mutants"] if m["verdict"] == "open"]
    assert report["score"] >= least, "\n".join(survivors)


@pytest.mark.parametrize("block", SAMPLES)
def test_sample_dies(block):
    check(block, *SAMPLES[block], prove=block in PROVEN, jobs=1)  # pytest has a process a core


@pytest.mark.slow
@pytest.mark.parametrize("block", SLOW)
def test_larger_sample_dies(block):
    check(block, *SLOW[block])


#: blocks, and those that share patterns: one of them has to match
PATTERNS = (
    *[(block,) for block in ("fifo", "ring", "inline", "scheduler", "aggregate", "hadamard")],
    *[(block,) for block in ("thc_encoder", "thc_decoder", "level_table", "job_context")],
    *[(block,) for block in ("job_cutter", "packet_steps", "packet_pick", "engine_pool")],
    *[(block,) for block in ("allowance_walk", "thc_keys")],
    ("compressor", "decompressor"),
    ("norm_pass", "encode_pass", "decode_pass"),
)


@pytest.mark.slow
@pytest.mark.parametrize("blocks", PATTERNS, ids="-".join)
def test_every_pattern_has_a_mutant(blocks):
    campaigns = [mutate.load(block) for block in blocks]
    missed = [set(mutate.unmatched(campaign)) for campaign in campaigns]
    names = [{*c.argued, *c.exhausted, *c.explained} for c in campaigns]
    stale = set().union(*missed) - set().union(*(a - b for a, b in zip(names, missed, strict=True)))
    assert not stale, "\n".join(sorted(stale))


def test_every_placing_of_a_beat_is_played():
    n_lanes, n_bytes = campaign_engines.N_LANES, campaign_engines.BEAT
    seen = {}
    for words in campaign_engines.all_places():
        octets = engines.coded(engines.Unit(words, len(words)))
        n_tag_bytes = 2 * -(-len(words) // 8)
        tags = np.frombuffer(octets[:n_tag_bytes], np.uint8)[:, None] >> np.arange(0, 8, 2) & 3
        tags = tags.ravel()[: len(words)].reshape(-1, n_lanes)
        sizes = np.array([0, 1, 2, 4])[tags].sum(axis=1)
        starts = (n_tag_bytes + np.cumsum(sizes) - sizes) % n_bytes
        for key in zip(starts.tolist(), map(tuple, tags.tolist()), strict=True):
            seen[key] = seen.get(key, 0) + 1
    assert len(seen) == n_bytes * 4**n_lanes
    assert min(seen.values()) >= 2
