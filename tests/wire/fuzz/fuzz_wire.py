"""Feed the decoder what a hostile peer might send.

    python tests/wire/fuzz/fuzz_wire.py --seconds 1200     coverage-guided, by atheris (pip install atheris)
    python tests/wire/fuzz/fuzz_wire.py --mutations 20     so many seeded mutations of each seed, without atheris
    python tests/wire/fuzz/fuzz_wire.py --write            the seed corpus again, after a change of the format

An input's first byte chooses a codec, its second says whether the others are a payload, which gets a right header and
checksum so that what is behind them is reached (0; with 1, of a newer minor version), or a frame as it is (2 and up).

With NUMBA_DISABLE_JIT=1 the kernels run as plain Python, in which access behind the end of memory is refused and every
branch is seen by atheris; compiled they are fast, and a wild access may go unseen. `--seconds` and the tests use the
first way.
"""

import argparse
import os
import random
import sys
import tempfile
from pathlib import Path

if __name__ == "__main__" and "--compiled" not in sys.argv:
    os.environ["NUMBA_DISABLE_JIT"] = "1"
COVERED = __name__ == "__main__" and any(word.startswith("--seconds") for word in sys.argv)
if COVERED:
    import atheris

import numpy as np  # noqa: E402
import torch  # noqa: E402

if COVERED:
    with atheris.instrument_imports(include=["gossamer"]):
        from gossamer import wire
else:
    from gossamer import wire

np.seterr(over="ignore")  # kernels count on whole numbers that wrap around, of which plain Python would warn

from gossamer.core import Part, PartSpec, Quantized  # noqa: E402
from gossamer.core.rng import philox  # noqa: E402
from gossamer.wire import frame as frames  # noqa: E402


def _checked(buffer, offset):
    first = int(offset) * buffer.itemsize
    assert 0 <= first <= buffer.nbytes - 8, "an access outside of a buffer"
    return buffer.view(np.uint8)[first : first + 8]


def _load64(buffer, offset):
    return np.uint64(int.from_bytes(_checked(buffer, offset).tobytes(), "little"))


def _store64(buffer, offset, word):
    _checked(buffer, offset)[:] = np.frombuffer(int(word).to_bytes(8, "little"), np.uint8)


INSTRUCTIONS = {
    "load64": _load64,
    "store64": _store64,
    "trailing_zeros": lambda word: (int(word) & -int(word)).bit_length() - 1 if word else 64,
    "leading_zeros": lambda word: 64 - int(word).bit_length(),
    "ones_in": lambda word: int(word).bit_count(),
}
if os.environ.get("NUMBA_DISABLE_JIT") == "1":  # numba has no plain form of these
    for name, module in list(sys.modules.items()):
        if name.startswith("gossamer.wire."):
            vars(module).update({known: INSTRUCTIONS[known] for known in INSTRUCTIONS if hasattr(module, known)})

CORPUS = Path(__file__).parent / "corpus"
RUN = 0x0123456789ABCDEF


def _drawn(streams, width):
    return streams.uniform("entries", width) < 0.5


def _codec(width, **parts):
    return wire.Codec(parts, width, seed=5, run_id=RUN)


CODECS = [
    _codec(600, x=PartSpec(sparse=True)),
    _codec(20, x=PartSpec(), u=PartSpec(width=1, values="float64")),
    _codec(30, x=PartSpec(seeded=_drawn)),
    _codec(60, x=PartSpec(sparse=True, values="int1")),
    _codec(70, x=PartSpec(sparse=True, values="int4", bucket=16), y=PartSpec(values="int3")),
    _codec(70, x=PartSpec(sparse=True, values="int8", bucket=16)),
    _codec(2000, x=PartSpec(sparse=True, values="bfloat16")),
    _codec(40, x=PartSpec(sparse=True, values="float16"), u=PartSpec(width=3, sparse=True, values="float64")),
    _codec(50, x=PartSpec(sparse=True), y=PartSpec(same_indices_as="x", values="int8")),
    _codec(3000, x=PartSpec(sparse=True, values="int6")),
]


def wrapped(codec, payload, minor=frames.MINOR):
    """A frame with a right header and checksum around any payload."""
    out = frames.start_frame(len(payload), codec.run_id, codec.schema, sender=3, round=9)
    out[3] = minor
    out[frames.HEADER.size : frames.HEADER.size + len(payload)] = np.frombuffer(bytes(payload), np.uint8)
    return frames.finish_frame(out, len(payload))


def same(a, b):
    return a.keys() == b.keys() and all(
        torch.equal(a[name].values.view(torch.uint8), b[name].values.view(torch.uint8))
        and ((a[name].sent is None and b[name].sent is None) or torch.equal(a[name].sent, b[name].sent))
        for name in a
    )


def one_input(data):
    """Decode; only a WireError may come of it, or a message that can be encoded and decoded again."""
    if len(data) < 2:
        return None
    codec, kind, rest = CODECS[data[0] % len(CODECS)], data[1], bytes(data[2:])
    try:
        sender, round, message = codec.decode(rest if kind > 1 else wrapped(codec, rest, frames.MINOR + kind))
    except wire.WireError:
        return None
    frame = codec.encode(message, sender, round)
    assert same(codec.decode(frame)[2], message), "a message changed when it was encoded again"
    assert len(frame) == codec.frame_bytes + sum(sizes.total[0] for sizes in codec.num_bytes(message).values())
    return message


def _message(codec, share):
    message = {}
    for name, coding in codec._parts.items():
        message[name] = _part(coding, name, share, message)
    return message


def _part(coding, name, share, earlier):
    """A part whose numbers and entries are drawn from a stream that stays the same from version to version."""
    spec, width = coding.spec, coding.width
    words = philox(1, f"{name} {share} {spec.values} {width}").random_raw(2 * width)
    stretch = width // 8 if width > 1000 else 75
    local = np.where(np.arange(width) // stretch % 2, share**0.25, share**2)  # dense and sparse
    sent = torch.from_numpy(words[:width] * 2.0**-64 < local)[None]
    if spec.seeded is not None:
        sent = _drawn(wire.codec.Streams(5, [3], 9), width)
    elif spec.same_indices_as is not None:
        sent = earlier[spec.same_indices_as].sent
    elif not spec.sparse:
        sent = None
    numbers = (words[width:] >> np.uint64(60)).astype(np.int64)[None]  # 0 .. 15
    marks = 1 if sent is None else sent.numpy()
    if spec.values.startswith("int"):
        bits = int(spec.values[3:])
        top = 1 << (bits - 1)
        levels = (numbers % 2 * 2 - 1 if bits == 1 else numbers % (2 * top) - top) * marks
        if bits == 6:  # small ones, none of them 0
            levels = (numbers % 2 * 2 - 1) * (1 + (numbers > 12)) * marks
        levels = torch.from_numpy(levels.astype(np.int16))
        scales = torch.full((1, 1 if spec.bucket == 0 else width // spec.bucket + 1), 0.5)
        return Part(levels.float() * 0.5, sent, Quantized(levels, scales, spec.bucket))
    values = ((numbers - 7.5) * 2.0 ** -(numbers % 5) * marks).astype("f8" if spec.values == "float64" else "f4")
    return Part(torch.from_numpy(values + 0.0), sent)


def seeds():
    """name -> input: for every codec messages in which nothing, little, much and all is sent, and one whole frame."""
    found = {}
    for number, codec in enumerate(CODECS):
        for share in (0.0, 0.02, 0.3, 0.5, 0.9, 1.0):
            message = _message(codec, share)
            frame = codec.encode(message, sender=3, round=9)
            payload = frame[frames.HEADER.size : -frames.CHECKSUM.size]
            found[f"{number}-{int(100 * share):03}"] = bytes([number, 0]) + payload
        found[f"{number}-frame"] = bytes([number, 2]) + frame
    return found


def mutations(data, count, seed):
    """Bytes changed, cut out, doubled, put in and swapped; many at once now and then."""
    chance = random.Random(seed)
    for _ in range(count):
        mutated = bytearray(data)
        for _ in range(chance.choice([1, 1, 1, 2, 3, 8])):
            at = chance.randrange(2, len(mutated) + 1)
            kind = chance.randrange(5)
            if kind == 0:
                mutated[at : at + 1] = bytes([chance.randrange(256)])
            elif kind == 1 and at < len(mutated):
                mutated[at] ^= 1 << chance.randrange(8)
            elif kind == 2:
                del mutated[at : at + chance.randrange(1, 9)]
            elif kind == 3:
                mutated[at:at] = mutated[at : at + chance.randrange(1, 9)]
            else:
                mutated[at : at + 4] = chance.choice([b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x80\x80\x80\x80"])
        yield bytes(mutated)


def corpus():
    return {path.stem: path.read_bytes() for path in sorted(CORPUS.glob("*.bin"))}


def run_mutations(count):
    """(messages decoded, inputs tried) over the corpus, its mutations and its truncations."""
    decoded = tried = 0
    for number, data in enumerate(corpus().values()):
        for mutated in (data, data[:-1], data[: len(data) // 2], *mutations(data, count, number)):
            decoded += one_input(mutated) is not None
            tried += 1
    return decoded, tried


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int)
    parser.add_argument("--mutations", type=int, default=20)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--compiled", action="store_true", help="with compiled kernels, not as plain Python")
    chosen = parser.parse_args()
    if chosen.write:
        for path in CORPUS.glob("*.bin"):
            path.unlink()
        for name, data in seeds().items():
            (CORPUS / f"{name}.bin").write_bytes(data)
    elif chosen.seconds:
        with tempfile.TemporaryDirectory() as found:
            flags = [f"-max_total_time={chosen.seconds}", "-max_len=3000", "-rss_limit_mb=4096", "-timeout=30"]
            atheris.Setup([sys.argv[0], *flags, found, str(CORPUS)], one_input)
            atheris.Fuzz()
    else:
        decoded, tried = run_mutations(chosen.mutations)
        print(f"{tried} inputs, {decoded} of them messages, nothing but WireError otherwise")


if __name__ == "__main__":
    main()
