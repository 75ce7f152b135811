"""Networks by name: how quick a node's access is, and what a byte costs there. docs/clock.md has the sources."""

from typing import NamedTuple


class Network(NamedTuple):
    """A node's way into the network; the internet between two nodes is taken to be quick."""

    uplink: float  # bits per second, on average over as long as a message takes
    downlink: float
    latency_seconds: float  # one way; a link has that of both ends
    joules_sent: float  # per byte
    joules_received: float


def _watts_per_rate(per_megabit: float, base: float, megabits: float) -> float:
    """Joules per byte of a radio that takes `base` watts, and so many more for every megabit per second."""
    return (per_megabit * megabits + base) / (megabits * 1e6 / 8)


_LORA_BITS = 5470.0  # per second: spreading factor 7, 125 kHz (LoRaWAN Regional Parameters, EU868, DR5)
_LORA_DUTY = 0.01  # of the time a device may send (ETSI EN 300 220)

NETWORKS: dict[str, Network] = {
    "lan": Network(1e9, 1e9, 0.0001, 0.0, 0.0),  # no radio, and no battery
    "wifi": Network(20e6, 20e6, 0.002, _watts_per_rate(0.28317, 0.13286, 20), _watts_per_rate(0.13701, 0.13286, 20)),
    "4g": Network(6e6, 13e6, 0.035, _watts_per_rate(0.43839, 1.28804, 6), _watts_per_rate(0.05197, 1.28804, 13)),
    "lora": Network(
        _LORA_BITS * _LORA_DUTY, _LORA_BITS, 0.0, 3.3 * 0.029 / (_LORA_BITS / 8), 3.3 * 0.0108 / (_LORA_BITS / 8)
    ),
}
MIXED = ("lan", "wifi", "4g")
"""What a node of a mixed group has, each as likely."""
