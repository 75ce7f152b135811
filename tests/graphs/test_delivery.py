"""Which messages count and with what weight: one rule for a simulation and for a peer."""

import numpy as np
import pytest

from gossamer.core import OnMissing
from gossamer.graphs.delivery import Delivery
from gossamer.graphs.faults import Faults
from gossamer.graphs.topologies import DirectedRandom, RandomRegular, Redrawn


@pytest.mark.parametrize("on_missing", ["keep_own", "lose_mass"])
def test_one_node_weighs_what_came_as_the_simulation_weighs_it_for_all(on_missing: OnMissing) -> None:
    topology = Redrawn(DirectedRandom(2) if on_missing == "lose_mass" else RandomRegular(4))
    simulated = Delivery(topology, 7, 0, on_missing, Faults(drop=0.3, late=((1, 1), (3, 2))))
    real = Delivery(topology, 7, 0, on_missing)
    for t in range(12):
        links = simulated.arrivals(t)
        for me in range(7):
            here = links.where(links.receivers == me)
            came = [(int(s), t - int(a)) for s, a in zip(here.senders, here.ages, strict=True) if s != me]
            found = real.arrivals_at(t, me, came[::-1])
            assert found.receivers.tolist() == here.receivers.tolist()
            assert found.senders.tolist() == here.senders.tolist()
            assert found.ages.tolist() == here.ages.tolist()
            np.testing.assert_allclose(found.weights, here.weights, rtol=1e-15, atol=1e-16)


def test_when_all_came_in_time_the_weights_are_the_topologys_to_the_last_bit() -> None:
    delivery = Delivery(RandomRegular(4), 7, 0, "keep_own")
    senders, weights = delivery.mixing(5).row(3)
    came = [(int(sender), 5) for sender in senders if sender != 3][::-1]
    assert delivery.arrivals_at(5, 3, came).weights.tolist() == weights.tolist()
    assert delivery.arrivals_at(5, 3, came[1:]).weights.sum() == pytest.approx(1)


def test_an_average_takes_the_newest_of_a_sender_and_mass_takes_all_but_the_stale() -> None:
    came = [(1, 7), (1, 8), (2, 9), (2, 10), (3, 2)]
    average, mass = (Delivery(RandomRegular(4), 7, 0, on_missing) for on_missing in ("keep_own", "lose_mass"))
    assert average.usable(came, 10, late=3) == ([(1, 8), (2, 10)], [(1, 7), (2, 9), (3, 2)])
    assert mass.usable(came, 10, late=3) == (came[:4], [(3, 2)])


def test_neighbours_are_those_of_the_graph_of_the_exchange() -> None:
    delivery = Delivery(Redrawn(DirectedRandom(2)), 9, 1, "lose_mass")
    for t in range(3):
        weights = delivery.mixing(t).dense()
        for me in range(9):
            receivers, senders = delivery.neighbours(t, me)
            assert set(receivers) == set(np.flatnonzero(weights[:, me])) - {me}
            assert set(senders) == set(np.flatnonzero(weights[me])) - {me}
