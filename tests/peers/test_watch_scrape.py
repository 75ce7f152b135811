"""What a watcher reads from a page of metrics, whoever wrote it."""

import threading
import time
from contextlib import suppress
from math import isnan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pages import LEAST, answering, dripping, endless, page, silent

from gossamer.peers.counters import Counters, Gauge, serve
from gossamer.peers.local.local_group import free_ports
from gossamer.peers.progress import PHASES
from gossamer.peers.watch.scrape import MOST_SERIES, ScrapeError, fetch, read, reading_of, series_of

HOSTILE = {
    "endless": (endless, "longer than 250 kB"),
    "huge": (page(LEAST + b"# more of it\n" * 100_000), "longer than 250 kB"),
    "a million series": (page(b"".join(b"gossamer_x%d 1\n" % i for i in range(1_000_000))), "longer than 250 kB"),
    "too many series": (page(LEAST + b"gossamer_x 1\n" * MOST_SERIES), "more than 2000 series"),
    "dripping": (dripping, "no page within 0.5 s"),
    "silent": (silent, "no page within 0.5 s"),
    "closed at once": (lambda connection: None, "no page of metrics"),
    "another status": (page(LEAST, b"HTTP/1.0 404 Not Found\r\n\r\n"), "no page of metrics"),
    "no HTTP": (page(b"", b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), "no page of metrics"),
    "broken off": (page(LEAST, b"HTTP/1.0 200 OK\r\nContent-Length: 9000\r\n\r\n"), "broke off"),
    "not text": (page(LEAST + b"\xff\xfe"), "not text"),
    "a long line": (page(LEAST + b"gossamer_x" + b"x" * 3000 + b" 1\n"), "not in the format"),
    "wrong text": (page(LEAST + b"gossamer_rounds{ 4\n"), "not in the format"),
    "wrong number": (page(b"gossamer_round 1_000\n"), "not in the format"),
    "wrong label": (page(LEAST + b'gossamer_phase{phase="a" "b"} 1\n'), "not in the format"),
    "another program's": (page(b"python_info 1\n"), "not that of a Gossamer peer"),
    "empty": (page(b""), "not that of a Gossamer peer"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_page_that_is_no_peers_is_told_in_a_few_words_and_in_time(name: str) -> None:
    answer, told = HOSTILE[name]
    began = time.monotonic()
    with answering(answer) as port, pytest.raises(ScrapeError, match=told):
        read("127.0.0.1", port, 0.5)
    assert time.monotonic() - began < 3


@pytest.mark.parametrize("host", ["127.0.0.1", "a..b", "x" * 300, "no-such-host.invalid"])
def test_where_nobody_listens_there_is_no_page(host: str) -> None:
    with pytest.raises(ScrapeError):
        fetch(host, free_ports(1)[0], 2)


@settings(max_examples=50)
@given(st.binary(max_size=200), st.text(alphabet='gosamer_ruinfo{}=",\\\n 0123456789.eNa+-', max_size=200))
def test_whatever_bytes_a_page_has_are_a_reading_or_refused(some: bytes, nearly: str) -> None:
    for body in (some, LEAST + b"gossamer_" + nearly.encode()):
        with suppress(ScrapeError):
            reading_of(series_of(body))


@pytest.mark.parametrize("label", ['\\\\"' * 80_000, "\\" * 240_000, 'a="",' * 50_000, "x" * 240_000, '"' * 240_000])
def test_no_page_takes_long_to_read(label: str) -> None:
    began = time.process_time()
    for lines in ([label], [label[:1900]] * (len(label) // 1900)):
        with suppress(ScrapeError):
            series_of("".join(f'gossamer_peer_info{{name="{line}"}} 1\n' for line in lines).encode())
    assert time.process_time() - began < 1


def test_what_is_not_a_number_is_not_known_and_text_is_cut() -> None:
    body = b"""gossamer_round 7
gossamer_rounds NaN
gossamer_train_loss +Inf
gossamer_bytes_out_total 1e999
gossamer_bytes_in_total 123456789012345678901234567890
gossamer_missing_total -2 1700000000000
gossamer_evaluation{metric="accuracy"} NaN
gossamer_waiting_seconds{neighbour="sou\\"th\\\\"} 4.5
gossamer_waiting_seconds{nothing="x"} 4.5
gossamer_phase{phase="sleeping"} 1
gossamer_peer_info{name="%s",metric="accuracy",unknown="a\\nb"} 1
process_resident_memory_bytes 3e+08
something_else nobody reads this
""" % (b"n" * 500)
    found = reading_of(series_of(body))
    assert found["round"] == 7
    assert found["missing"] == -2
    assert all(isnan(found[name]) for name in ("rounds", "train_loss", "bytes_out", "bytes_in"))
    assert isnan(found.score)
    assert found.waiting == {'sou"th\\': 4.5}
    assert found.phase == ""
    assert found.name == "n" * 63 + "…"
    assert found["process_resident_memory_bytes"] == 3e8


def test_what_a_peer_serves_is_what_is_read() -> None:
    counters = Counters()
    counters.add(bytes_out=120, late_used=2)
    gauges = [
        Gauge("round", "", [({}, 3.0)]),
        Gauge("peer_info", "", [({"name": 'no"rth\n', "metric": "accuracy"}, 1.0)]),
        Gauge("phase", "", [({"phase": phase}, float(phase == "exchanging")) for phase in PHASES]),
        Gauge("neighbour_up", "", [({"neighbour": "south"}, 0.0), ({"neighbour": "east"}, 1.0)]),
        Gauge("evaluation", "", [({"metric": "accuracy"}, 0.75), ({"metric": "test_loss"}, 1.5)]),
    ]
    end, port = serve("127.0.0.1", 0, counters, lambda: gauges)
    found = read("127.0.0.1", port)
    threading.Timer(0.2, lambda: read("127.0.0.1", port)).start()
    end()  # once it was read again
    assert (found.name, found.phase, found.score) == ('no"rth', "exchanging", 0.75)
    assert found.neighbours == {"south": False, "east": True}
    assert (found["bytes_out"], found["late_used"], found["missing"]) == (120, 2, 0)
    assert found["process_resident_memory_bytes"] > 1e6


def test_a_page_that_is_watched_is_there_for_one_more_reading() -> None:
    phases = ["training"]
    gauges = [Gauge("round", "", [({}, 3.0)])]
    end, port = serve("127.0.0.1", 0, Counters(), lambda: [*gauges, Gauge("phase", "", [({"phase": phases[0]}, 1.0)])])
    assert read("127.0.0.1", port).phase == "training"
    phases[0] = "done"
    ending = threading.Thread(target=end)
    ending.start()
    assert read("127.0.0.1", port).phase == "done"
    ending.join(10)
    with pytest.raises(ScrapeError, match="refused"):
        read("127.0.0.1", port)
    began = time.monotonic()
    serve("127.0.0.1", 0, Counters(), list)[0]()
    assert time.monotonic() - began < 1.5, "nobody reads it"
