"""One node's ends of its links: what is resent to whom, and what is refused."""

from dataclasses import replace

import pytest
import torch

from gossamer.compressors import NoCompression
from gossamer.core import Message, Part, PartSpec, sparse_part
from gossamer.wire import Codec, Endpoint, WireError
from gossamer.wire.resync import needs_resync, plain_bytes, resync_parts

PARTS = {"q": PartSpec(width=100, sparse=True, cumulative=True), "u": PartSpec(width=1)}


def message(t: int, num_sent: int) -> Message:
    sent = torch.arange(100)[None] < num_sent
    return {"q": sparse_part(torch.full((1, 100), t + 1.0), sent), "u": Part(torch.full((1, 1), float(t)))}


def ends(parts: dict[str, PartSpec] = PARTS, width: int = 100) -> tuple[Endpoint, Endpoint]:
    return Endpoint(7, parts, width, 0), Endpoint(8, parts, width, 0)


@pytest.mark.parametrize(("num_sent", "num_frames"), [(5, 4), (60, 1)])
def test_who_missed_frames_gets_them_again_or_the_sums_whichever_is_shorter(num_sent: int, num_frames: int) -> None:
    sender, receiver = ends()
    sums = torch.zeros(1, 100)
    for t in range(5):
        sums += message(t, num_sent)["q"].values
        outgoing = sender.send(message(t, num_sent), t)
        assert torch.equal(outgoing.own["q"].values, sums)
        if t in (0, 4):  # what went in the exchanges between was lost
            frames = receiver.check(outgoing.bytes_for(8), 7, t)
            assert len(frames) == (1 if t == 0 else num_frames)
            received = receiver.receive(frames)
            sender.acknowledged(8, t)
            assert (received.sender, received.exchange) == (7, t)
            assert torch.equal(received.message["q"].values, sums)
            assert received.message["u"].values.item() == t
    assert torch.equal(receiver.receive(frames).message["q"].values, sums)  # twice is as good as once


def test_a_slow_link_gets_what_it_should_have_had_in_its_exchange() -> None:
    sender, receiver = ends()
    outgoing = [sender.send(message(t, 5), t) for t in range(200)]
    first = receiver.receive(receiver.check(outgoing[0].bytes_for(8), 7, 0))
    assert torch.equal(first.message["q"].values, message(0, 5)["q"].values)
    sender.acknowledged(8, 0)  # so long ago that nobody counts on it
    for t in (2, 199):
        received = receiver.receive(receiver.check(outgoing[t].bytes_for(8), 7, t)).message
        assert torch.equal(received["q"].values, outgoing[t].own["q"].values)
        sender.acknowledged(8, t)
    outgoing.append(sender.send(message(200, 5), 200))
    assert len(receiver.check(outgoing[200].bytes_for(8), 7, 200)) == 1


def test_what_was_under_way_when_its_sender_was_restarted_is_still_brought() -> None:
    sender, receiver = ends()
    before = sender.send(message(0, 5), 0)
    sender.restart(9, {"q": torch.full((1, 100), 3.0)})
    received = receiver.receive(receiver.check(before.bytes_for(8), 7, 0)).message
    assert torch.equal(received["q"].values, message(0, 5)["q"].values)
    sender.acknowledged(8, 0)
    after = sender.send(message(9, 5), 9)
    (frame,) = receiver.check(after.bytes_for(8), 7, 9)  # the sums, because the receiver does not know the new ones
    assert torch.equal(receiver.receive([frame]).message["q"].values, after.own["q"].values)


def test_a_receiver_that_was_restarted_gets_the_sums() -> None:
    sender, receiver = ends()
    for t in range(2):
        outgoing = sender.send(message(t, 5), t)
        sender.acknowledged(8, t)
    sender.forget(8)
    (frame,) = receiver.check(outgoing.bytes_for(8), 7, 1)
    assert torch.equal(receiver.receive([frame]).message["q"].values, outgoing.own["q"].values)


def test_a_sender_that_goes_on_from_saved_sums_tells_everyone_anew() -> None:
    sender, receiver = ends()
    saved = {"q": torch.full((1, 100), 3.0)}
    sender.restart(5, saved)
    outgoing = sender.send(message(5, 5), 5)
    assert torch.equal(outgoing.own["q"].values, saved["q"] + message(5, 5)["q"].values)
    (frame,) = receiver.check(outgoing.bytes_for(8), 7, 5)
    assert torch.equal(receiver.receive([frame]).message["q"].values, outgoing.own["q"].values)


def test_a_sender_keeps_no_more_frames_than_fill_the_room_of_its_sums() -> None:
    sender, _ = ends()
    for t in range(50):
        outgoing = sender.send(message(t, 10), t)
        assert sum(map(len, outgoing.frames)) <= plain_bytes(PARTS, 100) == 400
    assert len(outgoing.frames) > 1


def test_the_rule_is_the_same_for_numbers_and_arrays() -> None:
    missed = torch.tensor([0, 0, 50, 90, 91])
    frame = torch.tensor([10, 500, 10, 10, 10])
    expected = [False, False, False, False, True]
    assert needs_resync(missed, frame, 100).tolist() == expected
    assert [needs_resync(m, f, 100) for m, f in zip(missed.tolist(), frame.tolist(), strict=True)] == expected


def test_a_resync_frame_is_never_taken_for_another() -> None:
    parts = {"q": replace(NoCompression().spec, cumulative=True)}  # whose frames are dense float32 as well
    frame = Codec(resync_parts(parts), 8, 0).encode({"q": Part(torch.ones(1, 8))}, 7, 0)
    with pytest.raises(WireError, match="parts are not those of this algorithm"):
        Codec(parts, 8, 0).decode(frame)
    _, receiver = ends(parts, 8)
    assert torch.equal(receiver.receive(receiver.check(frame, 7, 0)).message["q"].values, torch.ones(1, 8))


@pytest.mark.parametrize("content", [b"", b"Gm", bytes(60)])
def test_what_is_no_frame_is_refused(content: bytes) -> None:
    with pytest.raises(WireError):
        ends()[1].check(content, 7, 0)


def test_values_that_are_not_finite_are_refused() -> None:
    sender, receiver = ends({"x": PartSpec()}, 8)
    outgoing = sender.send({"x": Part(torch.tensor([[1.0] * 7 + [float("nan")]]))}, 0)
    with pytest.raises(WireError, match="part x are not all finite"):
        receiver.receive(receiver.check(outgoing.bytes_for(8), 7, 0))


def test_sums_that_would_become_infinite_are_refused_and_not_kept() -> None:
    sender, receiver = ends({"q": PartSpec(cumulative=True)}, 8)
    huge = {"q": Part(torch.full((1, 8), 3e38))}
    receiver.receive(receiver.check(sender.send(huge, 0).bytes_for(8), 7, 0))
    sender.acknowledged(8, 0)
    for t in (1, 2):
        with pytest.raises(WireError, match="part q are not all finite"):
            receiver.receive(receiver.check(sender.send(huge, t).bytes_for(8), 7, t))


def test_the_indices_of_a_cumulative_part_cannot_be_shared() -> None:
    with pytest.raises(ValueError, match="part 'w' has the indices of 'q', which is cumulative"):
        resync_parts(PARTS | {"w": PartSpec(width=100, same_indices_as="q")})


def test_after_a_refused_message_nothing_of_its_sender_counts_until_it_resyncs() -> None:
    sender, receiver = ends()
    for t in range(3):
        outgoing = sender.send(message(t, 5), t)
        frames = receiver.check(outgoing.bytes_for(8), 7, t)
        if t == 0:
            receiver.receive(frames, {"q": 10.0})
        else:
            with pytest.raises(WireError, match="cannot be" if t == 1 else "was refused"):
                receiver.receive(frames, {"q": 1.5})
        sender.acknowledged(8, t)
    sender.forget(8)
    frames = receiver.check(outgoing.bytes_for(8), 7, 2)
    assert torch.equal(receiver.receive(frames, {"q": 10.0}).message["q"].values, outgoing.own["q"].values)


@pytest.mark.parametrize("weight", [0.0, -0.5])
def test_a_push_sum_weight_that_none_can_be_is_refused(weight: float) -> None:
    parts = {"u": PartSpec(width=1, values="float64", push_sum_weight=True)}
    sender, receiver = ends(parts)
    outgoing = sender.send({"u": Part(torch.full((1, 1), weight, dtype=torch.float64))}, 0)
    with pytest.raises(WireError, match="all are above 0"):
        receiver.receive(receiver.check(outgoing.bytes_for(8), 7, 0))


def test_channels_have_sums_of_their_own() -> None:
    parts = {name: replace(spec, channels=3 if spec.cumulative else 1) for name, spec in PARTS.items()}
    sender, receiver = ends(parts)
    sums = torch.zeros(3, 1, 100)
    for t in range(9):
        sums[t % 3] += message(t, 5)["q"].values
        outgoing = sender.send(message(t, 5), t)
        assert torch.equal(outgoing.own["q"].values, sums[t % 3])
        if t not in (3, 4):  # these are lost, and missed in their own channels alone
            frames = receiver.check(outgoing.bytes_for(8), 7, t)
            assert [frame.round for frame in frames] == ([t - 3, t] if t in (6, 7) else [t])
            assert torch.equal(receiver.receive(frames).message["q"].values, sums[t % 3])
            sender.acknowledged(8, t)
    assert torch.equal(sender.own_sums["q"], sums.view(1, 300))
    sender.restart(9, sender.own_sums)
    outgoing = sender.send(message(9, 5), 9)
    (frame,) = receiver.check(outgoing.bytes_for(8), 7, 9)
    received = receiver.receive([frame]).message["q"].values
    assert torch.equal(received, sums[0] + message(9, 5)["q"].values)


def test_frames_of_another_channel_are_no_part_of_a_delivery() -> None:
    parts = {"q": replace(PARTS["q"], channels=2)}
    sender, receiver = ends(parts)
    deliveries = [sender.send({"q": message(t, 5)["q"]}, t).bytes_for(8) for t in range(2)]
    with pytest.raises(WireError, match="A delivery of round 1 holds frames of rounds"):
        receiver.check(b"".join(deliveries), 7, 1)


def test_cumulative_parts_of_a_message_have_the_same_channels() -> None:
    parts = {"a": PartSpec(cumulative=True, channels=2), "b": PartSpec(cumulative=True)}
    with pytest.raises(ValueError, match="give all the same number"):
        ends(parts)


def test_a_sender_restarted_from_an_earlier_state_is_heard_in_exchanges_that_were_heard_before() -> None:
    sender, receiver = ends()
    saved = sender.own_sums
    for t in range(5):
        outgoing = sender.send(message(t, 5), t)
        saved = sender.own_sums if t == 2 else saved
        receiver.receive(receiver.check(outgoing.bytes_for(8), 7, t))
        sender.acknowledged(8, t)
    sender.restart(3, saved)
    for t in range(3, 7):
        outgoing = sender.send(message(10 * t, 5), t)  # other messages than the first time
        received = receiver.receive(receiver.check(outgoing.bytes_for(8), 7, t)).message
        assert torch.equal(received["q"].values, outgoing.own["q"].values)
        sender.acknowledged(8, t)
