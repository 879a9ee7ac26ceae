"""Claims are over the best of what was there before, and no baseline is slower than it has to be."""

import pytest
from gradnic.sim.reproduce import dlcp
from gradnic.sim.reproduce.claims import Result


def test_dlcp_trains_faster_than_the_best_system_before_it():
    """pFabric's last flow is sooner than DCTCP's, which waits for a timeout."""
    last = {"DCTCP": 10_000.0, "pFabric": 600.0}
    found = {(kind, 16, 0.0): (1.0, 1.0, us) for kind, us in last.items()}
    found |= {("ours", 16, p): (1.0, 1.0, 300.0) for p in (0.0, dlcp.BOUND)}
    result = Result("dlcp")
    dlcp._training(result, found, 16, (0.0, dlcp.BOUND))
    (claim,) = result.claims
    assert claim.ours == pytest.approx(100 * (1 / 0.75 - 1))
    assert claim.high == pytest.approx(100 * (1 / 0.55 - 1))
    assert not claim.holds
