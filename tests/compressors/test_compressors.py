"""Compressors: what each promises in theory, measured; and what all of them must be."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor

from gossamer.algorithms.rates import check_contraction
from gossamer.compressors import (
    COMPRESSORS,
    BFloat16,
    Chain,
    Compressor,
    DeadZone,
    LayerwiseTopK,
    NoCompression,
    Qsgd,
    Quantize,
    RandomK,
    Scaled,
    Sign,
    Threshold,
    TopK,
    count,
)
from gossamer.core import Part, Quantized, Round, row_of
from gossamer.core.rng import Streams
from gossamer.wire import Codec
from gossamer.wire.quantized import LevelCoder

SEED, ROUND = 11, 9

sparse = {
    "top-k": TopK(0.1),
    "top-all": TopK(1.0),
    "layerwise-top-k": LayerwiseTopK(0.1),
    "random-k": RandomK(0.3),
    "threshold": Threshold(0.5),
    "threshold-of-0": Threshold(0.0),
}
coarse = {
    "bfloat16": BFloat16(),
    "quantize": Quantize(),
    "quantize-to-4-bits": Quantize(bits=4, bucket=16),
    "quantize-to-2-bits": Quantize(bits=2, bucket=0),
    "stochastic": Quantize(bits=3, bucket=10, stochastic=True),
    "qsgd": Qsgd(),
    "qsgd-of-1-bit": Qsgd(bits=1, bucket=64),
    "qsgd-of-2-bits-max": Qsgd(bits=2, bucket=0, norm="max"),
    "qsgd-of-8-bits": Qsgd(bits=8, bucket=1),
    "qsgd-of-2-bits-and-a-sign": Qsgd(bits=2, count_sign=False),
    "scaled": Scaled(Qsgd(bits=1, bucket=0)),
    "scaled-stochastic": Scaled(Quantize(bits=2, bucket=100, stochastic=True)),
    "sign": Sign(),
    "sign-of-buckets": Sign(bucket=7),
}
CASES: dict[str, Compressor] = {"none": NoCompression(), "dead-zone": DeadZone(), **sparse, **coarse}
CASES |= {f"top-k, {name}": Chain(sparse["top-k"], then) for name, then in coarse.items()}
CASES |= {f"{name}, qsgd": Chain(first, Qsgd(bits=3, bucket=16)) for name, first in sparse.items()}
CASES |= {f"{name}, sign": Chain(first, Sign(bucket=7)) for name, first in sparse.items()}
every_case = pytest.mark.parametrize("compressor", CASES.values(), ids=CASES.keys())

numbers = st.floats(-1e3, 1e3, width=32) | st.sampled_from([0.0, -0.0, 0.5, 1.0, -1.0, 1e30, 1e-40])
few_rows = hnp.arrays(np.float32, st.tuples(st.integers(0, 3), st.integers(1, 70)), elements=numbers)


def layers(width: int) -> tuple[int, ...]:
    """A few layers, an empty one and one of a single entry among them, as far as the width allows."""
    return (1, 0, width // 3, width - 1 - width // 3)


def round_of(nodes: range | list[int], width: int, number: int = ROUND) -> Round:
    return Round(number, 0.1, Streams(SEED, nodes, number), layer_sizes=layers(width))


def compress(compressor: Compressor, x: Tensor, first: int = 4, number: int = ROUND) -> Part:
    """The part of nodes first, first + 1, ... whose vectors are the rows of x."""
    return compressor(x, round_of(range(first, first + len(x)), x.shape[1], number))


def assert_same(a: Part, b: Part) -> None:
    assert a.values.numpy().tobytes() == b.values.numpy().tobytes()
    assert (a.sent is None) == (b.sent is None)
    assert a.sent is None or b.sent is None or torch.equal(a.sent, b.sent)
    assert (a.quantized is None) == (b.quantized is None)
    if a.quantized and b.quantized:
        num_scales = min(a.quantized.scales.shape[1], b.quantized.scales.shape[1])  # those of no entries do not travel
        assert torch.equal(a.quantized.levels, b.quantized.levels)
        assert torch.equal(a.quantized.scales[:, :num_scales], b.quantized.scales[:, :num_scales])
        assert a.quantized.bucket == b.quantized.bucket


def assert_survives_the_wire(compressor: Compressor, part: Part, first: int = 4) -> None:
    codec = Codec({"q": compressor.spec}, part.values.shape[1], SEED)
    for row, num_bytes in enumerate(codec.num_bytes({"q": part})["q"].total.tolist()):
        one = row_of({"q": part}, row)
        frame = codec.encode(one, first + row, ROUND)
        assert len(frame) == codec.frame_bytes + num_bytes
        sender, round, found = codec.decode(frame)
        assert (sender, round) == (first + row, ROUND)
        assert_same(found["q"], one["q"])


def normal(rows: int, width: int) -> Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(width))


# -- what all of them must be ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 2, 53, 1037])
@every_case
def test_receivers_see_what_the_sender_has_bit_for_bit(compressor: Compressor, width: int) -> None:
    x = normal(3, width)
    before = x.clone()
    part = compress(compressor, x)
    assert torch.equal(x, before)
    assert part.values.dtype == torch.float32
    assert part.sent is None or (part.values[~part.sent] == 0).all()
    assert_survives_the_wire(compressor, part)


@settings(deadline=None)
@given(few_rows, st.sampled_from([*CASES.values()]))
def test_any_numbers_survive_the_wire(x: np.ndarray, compressor: Compressor) -> None:
    assert_survives_the_wire(compressor, compress(compressor, torch.from_numpy(x)))


@pytest.mark.parametrize("width", [53, 1037])
@every_case
def test_the_bits_of_a_row_do_not_depend_on_the_rows_beside_it(compressor: Compressor, width: int) -> None:
    x = normal(6, width) * torch.logspace(-3, 3, 6)[:, None]  # so that a threshold keeps none here, all there
    whole = compress(compressor, x)
    for size in (1, 4):
        for start in range(0, 6, size):
            some = compress(compressor, x[start : start + size], 4 + start)
            for row in range(len(some.values)):
                assert_same(row_of({"q": whole}, start + row)["q"], row_of({"q": some}, row)["q"])


@pytest.mark.parametrize(
    "compressor", [Sign(), Qsgd(), Qsgd(bucket=0, norm="max"), Quantize(), TopK(0.1), RandomK(0.1)]
)
def test_a_long_row_has_the_same_bits_alone(compressor: Compressor) -> None:
    """torch's own sums fail this one: from some 10,000 entries on, they are cut up to suit the shape of the block."""
    x = normal(5, 89_834)
    whole = compress(compressor, x)
    for row in range(5):
        assert_same(row_of({"q": whole}, row)["q"], compress(compressor, x[row : row + 1], 4 + row))


@pytest.mark.parametrize("width", [1, 40])
@every_case
def test_zeros_stay_zeros(compressor: Compressor, width: int) -> None:
    for x in (torch.zeros(2, width), -torch.zeros(2, width)):
        part = compress(compressor, x)
        assert (part.values == 0).all()
        assert part.quantized is None or (part.quantized.scales == 0).all()
        assert_survives_the_wire(compressor, part)


@every_case
def test_a_block_may_be_empty(compressor: Compressor) -> None:
    assert compress(compressor, torch.empty(0, 12)).values.shape == (0, 12)


@every_case
def test_a_view_of_other_numbers_is_compressed_like_a_copy(compressor: Compressor) -> None:
    view = normal(40, 3).T
    assert_same(compress(compressor, view), compress(compressor, view.contiguous()))


@pytest.mark.parametrize("compressor", coarse.values(), ids=coarse.keys())
def test_what_is_not_a_number_is_not_passed_off_as_one(compressor: Compressor) -> None:
    x = normal(1, 40)
    x[0, 3] = torch.nan
    assert compress(compressor, x).values[0, 3].isnan()


# -- the promises, measured --------------------------------------------------------------------------------------------


def losses(compressor: Compressor, x: Tensor) -> np.ndarray:
    """|C(x) - x|^2 / |x|^2 of each row."""
    missed = compress(compressor, x).values.double() - x.double()
    return (missed.square().sum(1) / x.double().square().sum(1)).numpy()


def shapes_of_vectors(width: int) -> list[Tensor]:
    random = normal(4, width)
    spike = torch.zeros(width)
    spike[width // 2] = -3
    return [random[0], random[1] ** 5, spike, torch.ones(width), random[2].sign(), torch.linspace(-1, 1, width)]


@pytest.mark.parametrize("width", [1, 5, 53, 600])
@every_case
def test_the_error_is_within_what_is_promised(compressor: Compressor, width: int) -> None:
    for vector in shapes_of_vectors(width):
        bound = 1 - compressor.delta(width)
        if not by_chance(compressor):
            assert losses(compressor, vector[None])[0] <= bound + 1e-6
        else:
            found = losses(compressor, vector.expand(30, -1))
            assert found.mean() <= bound + 5 * found.std() / math.sqrt(30) + 1e-6


def by_chance(compressor: Compressor) -> bool:
    if isinstance(compressor, Chain):
        return by_chance(compressor.first) or by_chance(compressor.then)
    return isinstance(compressor, (RandomK, Scaled)) or compressor.kind == "unbiased"


@settings(deadline=None)
@given(few_rows, st.sampled_from([c for c in CASES.values() if not by_chance(c)]))
def test_what_is_promised_without_chance_holds_for_any_numbers(x: np.ndarray, compressor: Compressor) -> None:
    part = compress(compressor, torch.from_numpy(x))
    missed = np.square(part.values.double().numpy() - x).sum(1)
    bound = (1 - compressor.delta(x.shape[1]) + 1e-6) * np.square(x.astype(float)).sum(1)
    assert (missed <= bound + 1e-75).all()  # under 1e-38, floats are no longer finer for smaller numbers


UNBIASED = {name: c for name, c in CASES.items() if c.kind == "unbiased"}


@pytest.mark.parametrize("compressor", UNBIASED.values(), ids=UNBIASED.keys())
def test_the_unbiased_are_right_on_average_and_within_their_variance(compressor: Compressor) -> None:
    nodes = 4000
    for vector in (normal(1, 53)[0], torch.linspace(-2, 3, 53)):
        found = compress(compressor, vector.expand(nodes, -1)).values.double()
        spread = found.std(0) / math.sqrt(nodes)
        assert ((found.mean(0) - vector).abs() <= 5 * spread + 1e-6).all()
        lost = (found - vector).square().sum(1).mean() / vector.double().square().sum()
        assert lost <= compressor.omega(53) * 1.05 + 1e-12
        assert compressor.delta(53) == 1 - compressor.omega(53)


@pytest.mark.parametrize(("bits", "n"), [(2, 5), (2, 200), (4, 64), (8, 512)])
def test_the_promises_of_quantization_cannot_be_bettered(bits: int, n: int) -> None:
    """The vectors for which the bounds were derived come up to them."""
    s = 2 ** (bits - 1) - 1
    halves = torch.full((1, n), 0.4999)  # in units of a level; the largest is s
    halves[0, 0] = s
    assert losses(Quantize(bits, n), halves)[0] == pytest.approx(1 - Quantize(bits, n).delta(n), rel=1e-3)
    worst = torch.full((3000, n), s / (s + math.sqrt(s * s + n - 1)))
    worst[:, 0] = s
    for compressor in (Quantize(bits, n, stochastic=True), Qsgd(bits, n, norm="max")):
        found = losses(compressor, worst)
        assert abs(found.mean() - compressor.omega(n)) <= 5 * found.std() / math.sqrt(3000)
    flat = losses(Qsgd(bits, n), torch.ones(3000, n))
    if n > 4 * s * s:
        assert abs(flat.mean() - Qsgd(bits, n).omega(n)) <= 5 * flat.std() / math.sqrt(3000)


@given(st.integers(1, 8), st.integers(1, 5000))
def test_the_variance_of_qsgd_is_within_the_bound_of_its_paper(bits: int, n: int) -> None:
    s = max(1, 2 ** (bits - 1) - 1)
    assert Qsgd(bits, bucket=0).omega(n) <= min(n / s**2, math.sqrt(n) / s)


@given(st.integers(1, 300), st.floats(0.001, 1))
def test_top_k_and_sign_lose_all_they_may_on_their_worst_vectors(width: int, fraction: float) -> None:
    flat = torch.ones(1, width)
    assert losses(TopK(fraction), flat)[0] == pytest.approx(1 - TopK(fraction).delta(width))
    spike = torch.zeros(1, width)
    spike[0, -1] = -2
    assert losses(Sign(), spike)[0] == pytest.approx(1 - Sign().delta(width), abs=1e-6)


@given(st.integers(1, 200), st.floats(0.001, 1))
def test_the_promise_of_layers_is_that_of_the_worst_layer(width: int, fraction: float) -> None:
    worst = min(count(fraction, size) / size for size in range(1, width + 1))
    assert LayerwiseTopK(fraction).delta(width) == pytest.approx(worst)


def test_the_biased_have_no_variance_to_promise() -> None:
    with pytest.raises(NotImplementedError):
        Sign().omega(10)


# -- one at a time -----------------------------------------------------------------------------------------------------


def test_top_k_sends_the_largest_of_the_row_and_layerwise_of_each_layer() -> None:
    x = torch.tensor([[9.0, -8, 7, 6, 1, -2, 0.5, 0.1]])
    round = Round(0, 0.1, Streams(0, [0], 0), layer_sizes=(4, 3, 1))
    assert TopK(0.5)(x, round).values.tolist() == [[9, -8, 7, 6, 0, 0, 0, 0]]
    layerwise = LayerwiseTopK(0.5)(x, round).values
    torch.testing.assert_close(layerwise, torch.tensor([[9.0, -8, 0, 0, 1, -2, 0, 0.1]]))


@pytest.mark.parametrize("compressor", [TopK(1e-9), RandomK(1e-9)])
def test_at_least_one_entry_is_sent(compressor: Compressor) -> None:
    part = compress(compressor, normal(5, 100))
    assert part.sent is not None
    assert part.sent.sum(1).tolist() == [1] * 5


def test_at_least_one_entry_of_each_layer_is_sent() -> None:
    sent = compress(LayerwiseTopK(1e-9), normal(5, 100)).sent
    assert sent is not None
    assert [layer.sum(1).tolist() for layer in sent.split([1, 33, 66], dim=1)] == [[1] * 5] * 3


def test_layers_that_are_not_those_of_the_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="layers of 12 entries in all cannot divide rows of 13"):
        LayerwiseTopK(0.1)(torch.zeros(1, 13), round_of([0], 12))


def test_random_entries_are_others_in_every_round_and_on_every_node() -> None:
    x = torch.ones(2, 200)
    first, second = compress(RandomK(0.5), x).values, compress(RandomK(0.5), x, number=ROUND + 1).values
    assert not torch.equal(first, second)
    assert not torch.equal(first[0], first[1])


def test_a_threshold_sends_what_is_over_it_and_nothing_else() -> None:
    sent = compress(Threshold(2.0), torch.tensor([[1.0, -2, 2.5, -3], [0, 0, 0, 0]])).sent
    assert sent is not None
    assert sent.tolist() == [[False, False, True, True], [False] * 4]


def test_bfloat16_rounds_to_the_nearest_and_of_two_to_the_even_one() -> None:
    step = 2.0**-7
    given = [1 + 0.4 * step, 1 + 0.5 * step, 1 + 1.5 * step, 1 + 0.6 * step, -1 - 0.6 * step, -0.0]
    expected = [1, 1, 1 + 2 * step, 1 + step, -1 - step, -0.0]
    found = compress(BFloat16(), torch.tensor([given])).values
    assert found.numpy().tobytes() == np.array([expected], np.float32).tobytes()


def sizes_of(run: np.ndarray, norm: str) -> float:
    return {"max": np.abs(run).max(), "l2": np.sqrt(np.square(run).sum()), "mean": np.abs(run).mean()}[norm]


@settings(deadline=None)
@given(few_rows, st.sampled_from(["max", "l2", "mean"]), st.integers(2, 8), st.integers(0, 30), st.booleans())
def test_a_value_is_its_level_times_the_scale_of_its_run_of_sent_entries(
    x: np.ndarray, norm: str, bits: int, bucket: int, some: bool
) -> None:
    top = 1 if norm == "mean" else 2 ** (bits - 1) - 1
    then: Compressor = Sign(bucket) if norm == "mean" else Quantize(bits, bucket)
    then = Qsgd(bits, bucket) if norm == "l2" else then
    part = compress(Chain(TopK(0.5), then) if some else then, torch.from_numpy(x))
    assert part.quantized is not None
    sent = np.ones(x.shape, bool) if part.sent is None else part.sent.numpy()
    for row in range(len(x)):
        kept, levels = x[row, sent[row]].astype(float), part.quantized.levels[row].numpy()
        values, length = part.values[row].numpy()[sent[row]], bucket or x.shape[1]
        assert not levels[~sent[row]].any()
        levels = levels[sent[row]]
        for which, start in enumerate(range(0, kept.size, length)):
            at = slice(start, start + length)
            scale = part.quantized.scales[row, which].numpy()
            assert scale == np.float32(sizes_of(kept[at], norm) / top) or norm != "max"
            np.testing.assert_allclose(scale, sizes_of(kept[at], norm) / top, rtol=1e-6, atol=2e-45)
            assert values[at].tobytes() == (levels[at].astype(np.float32) * scale).tobytes()
            assert (np.abs(levels[at]) <= top).all()
            if norm == "mean":
                assert (levels[at] == np.where(kept[at] < 0, -1, 1)).all()
            elif scale > 0:
                off = np.abs(levels[at] - np.clip(kept[at] / float(scale), -top, top))
                assert (off <= 0.5).all() if norm == "max" else (off < 1).all()
            else:
                assert not levels[at].any()


@pytest.mark.parametrize("compressor", [Quantize(), Quantize(stochastic=True), Qsgd(bits=8)])
def test_numbers_so_small_that_their_scale_is_rounded_down_do_not_pass_the_top_level(compressor: Compressor) -> None:
    part = compress(compressor, torch.tensor([[190 * 2.0**-149]]))  # 190 / 127 of the smallest float there is
    assert part.quantized is not None
    assert part.quantized.levels.item() == 127
    assert_survives_the_wire(compressor, part)


def test_one_bit_of_qsgd_is_a_sign_or_zero_and_travels_in_less_than_two() -> None:
    part = compress(Qsgd(bits=1, bucket=0), normal(1, 10_000))
    assert part.quantized is not None
    assert set(part.quantized.levels.unique().tolist()) == {-1, 0, 1}
    sizes = Codec({"q": Qsgd(bits=1, bucket=0).spec}, 10_000, SEED).num_bytes({"q": part})["q"]
    assert sizes.values < 10_000 * 1 / 8


def test_bits_without_the_sign_are_levels_up_to_a_power_of_two_less_one() -> None:
    for bits, top in ((1, 1), (2, 3), (4, 15)):
        part = compress(Qsgd(bits, bucket=1, count_sign=False), normal(1, 1000))
        assert part.quantized is not None
        assert part.quantized.levels.abs().max() == top


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_scaled_qsgd_is_no_further_off_than_nothing_where_plain_qsgd_is(bits: int) -> None:
    plain, x = Qsgd(bits, bucket=0, count_sign=False), normal(20, 10_000)
    assert losses(plain, x).mean() > 1
    assert losses(Scaled(plain), x).max() < 1
    with pytest.raises(ValueError, match="errors would add up"):
        check_contraction(plain, (10_000,))
    check_contraction(Scaled(plain), (10_000,))


def test_the_chance_of_a_chain_is_that_of_the_rank_of_an_entry_not_of_the_block() -> None:
    """A row that keeps few entries rounds them alike, alone and beside one that keeps many."""
    chain = Chain(Threshold(1.0), Qsgd(bits=3, bucket=8))
    x = normal(2, 500) * torch.tensor([[0.6], [50.0]])
    assert_same(row_of({"q": compress(chain, x)}, 0)["q"], compress(chain, x[:1]))


def test_a_chain_sends_the_entries_of_its_first_as_its_second_would() -> None:
    x = normal(2, 60)
    part, first = compress(Chain(TopK(0.25), Sign(bucket=4)), x), compress(TopK(0.25), x)
    assert part.sent is not None
    assert first.sent is not None
    assert torch.equal(part.sent, first.sent)
    kept = x[first.sent].reshape(2, 15)
    assert torch.equal(part.values[part.sent].reshape(2, 15), compress(Sign(bucket=4), kept).values)


def test_without_compression_everything_is_sent() -> None:
    x = normal(2, 9)
    assert compress(NoCompression(), x) == Part(x)
    assert (NoCompression().omega(9), NoCompression().delta(9)) == (0, 1)


# -- names and refusals ------------------------------------------------------------------------------------------------


def test_every_name_stands_for_a_compression() -> None:
    assert {type(c) for c in CASES.values()} == set(COMPRESSORS.values())
    assert all(issubclass(kind, Compressor) and kind.__doc__ for kind in COMPRESSORS.values())
    assert all(hash(c) == hash(c) and c.kind in ("contraction", "unbiased") for c in CASES.values())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TopK(2), "fraction must be over 0 and at most 1, 2 was given"),
        (lambda: TopK(math.nan), "fraction must be over 0 and at most 1, nan was given"),
        (lambda: LayerwiseTopK(0), "fraction must be over 0 and at most 1, 0 was given"),
        (lambda: RandomK(-0.5), "fraction must be over 0 and at most 1, -0.5 was given"),
        (lambda: Threshold(-1.0), "value must be at least 0 and finite, -1.0 was given"),
        (lambda: Threshold(math.inf), "value must be at least 0 and finite, inf was given"),
        (lambda: Quantize(bits=1), "bits must be from 2 to 8, 1 was given"),
        (lambda: Quantize(bits=9), "bits must be from 2 to 8, 9 was given"),
        (lambda: Quantize(bucket=-1), "bucket must be at least 0, -1 was given"),
        (lambda: Qsgd(bits=0), "bits must be from 1 to 8, 0 was given"),
        (lambda: Qsgd(bits=8, count_sign=False), "bits must be from 1 to 7, 8 was given"),
        (lambda: Scaled(Sign()), "inner must be unbiased, such as qsgd"),
        (lambda: Scaled(Scaled(Qsgd())), "inner must be unbiased, such as qsgd"),
        (lambda: Qsgd(bucket=-2), "bucket must be at least 0, -2 was given"),
        (lambda: Qsgd(norm="l1"), 'norm must be "l2" or "max", \'l1\' was given'),
        (lambda: Sign(bucket=-1), "bucket must be at least 0, -1 was given"),
        (lambda: Chain(Sign(), TopK(0.1)), "first must choose entries, such as top-k"),
        (lambda: Chain(Chain(TopK(0.1), Sign()), Sign()), "first must choose entries, such as top-k"),
        (lambda: TopK("0.1"), "fraction must be a number, '0.1' was given"),
        (lambda: Sign(bucket=1.5), "bucket must be a whole number, 1.5 was given"),
        (lambda: Chain("top-k", Sign()), "first must be an instance of Compressor, 'top-k' was given"),
        (lambda: Chain(TopK(0.1), TopK(0.1)), "then must coarsen: bfloat16, quantize, qsgd, scaled or sign; TopK"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match="^" + message.replace(".", r"\.")):
        make()


class Own(Compressor):
    """A user's compressor that defines nothing yet."""


def test_a_compressor_of_ones_own_is_told_what_it_lacks() -> None:
    class Indices(Own):
        def choose(self, x: Tensor, round: Round) -> Tensor:
            return x.abs().topk(2).indices

    class Unknown(Own):
        kind = "lossless"

    class Doubles(Own):
        kind = "contraction"

        def coarsen(self, x: Tensor, sent: Tensor | None, round: Round) -> Part:
            return Part(-x)

    with pytest.raises(NotImplementedError, match="Own must define spec"):
        _ = Own().spec
    with pytest.raises(ValueError, match=r"^choose must return a bool \(B, D\), here \(1, 9\); int64 \(1, 2\) was"):
        Indices()(torch.ones(1, 9), round_of([0], 9))
    with pytest.raises(ValueError, match='kind of Unknown must be "contraction" or "unbiased", \'lossless\' was given'):
        check_contraction(Unknown(), (9,))
    with pytest.raises(ValueError, match=r"Doubles was measured to be off by 4.0 times .* smaller buckets$"):
        check_contraction(Doubles(), (9,))
    with pytest.raises(ValueError, match=r'smaller buckets, norm = "max", or scaled around it$'):
        check_contraction(Qsgd(bits=1, bucket=0), (1000,))
    short = Quantized(torch.ones(1, 2, dtype=torch.int8), torch.ones(1, 1), 0)
    with pytest.raises(ValueError, match=r"Quantized.levels must be int16, int8 was given"):
        LevelCoder(8, 0).rows(Part(torch.ones(1, 2), None, short))
