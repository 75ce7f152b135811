"""Tiny data sets in the official layouts, written byte by byte."""

import gzip
import struct
from pathlib import Path

import numpy as np


def pixels(number: int, *shape: int) -> np.ndarray:
    """Different images, and the same every time."""
    return np.random.default_rng(0).integers(0, 256, (number, *shape), dtype=np.uint8)


def text(value: str) -> bytes:
    return b"U" + bytes([len(value)]) + value.encode()


def cifar_pickle(images: np.ndarray, labels: list[int], key: str = "labels") -> bytes:
    """As Python 2 pickled the official files with protocol 2, instruction by instruction."""
    number = b"M" + struct.pack("<H", len(images))
    entries = b"".join(b"K" + bytes([label]) for label in labels)
    kind = b"cnumpy\ndtype\nq\x0b" + text("u1") + b"q\x0cK\x00K\x01\x87q\rRq\x0e"
    kind += b"(K\x03" + text("|") + b"q\x0fNNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq\x10b"
    array = b"cnumpy.core.multiarray\n_reconstruct\nq\x06cnumpy\nndarray\nq\x07K\x00\x85q\x08U\x01bq\t\x87q\nRq\x11"
    array += b"(K\x01" + number + b"M\x00\x0c\x86q\x12" + kind + b"\x89T" + struct.pack("<i", images.size)
    array += images.tobytes() + b"q\x13tq\x14b"
    names = b"]q\x15(" + b"".join(text(f"cat_s_{i:06}.png") + b"r" + struct.pack("<I", 300 + i) for i in range(2))
    items = text("batch_label") + b"q\x02" + text("training batch") + b"q\x03" + text(key) + b"q\x04]q\x05("
    items += entries + b"e" + text("data") + array + text("filenames") + names + b"e"
    return b"\x80\x02}q\x01(" + items + b"u."


def cifar10(root: Path) -> None:
    folder = root / "cifar-10-batches-py"
    folder.mkdir()
    for i, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        folder.joinpath(name).write_bytes(cifar_pickle(pixels(4, 3072) + np.uint8(i), [i, 9, 0, i]))


def cifar10_binary(root: Path) -> None:
    folder = root / "cifar-10-batches-bin"
    folder.mkdir()
    for i, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        labels = np.array([[i], [9], [0], [i]], np.uint8)
        folder.joinpath(f"{name}.bin").write_bytes(np.hstack([labels, pixels(4, 3072) + np.uint8(i)]).tobytes())


def cifar100(root: Path) -> None:
    folder = root / "cifar-100-python"
    folder.mkdir()
    for name in ("train", "test"):
        folder.joinpath(name).write_bytes(cifar_pickle(pixels(3, 3072), [99, 0, 42], "fine_labels"))


def cifar100_binary(root: Path) -> None:
    folder = root / "cifar-100-binary"
    folder.mkdir()
    labels = np.array([[19, 99], [0, 0], [7, 42]], np.uint8)  # coarse, fine
    for name in ("train.bin", "test.bin"):
        folder.joinpath(name).write_bytes(np.hstack([labels, pixels(3, 3072)]).tobytes())


def idx(array: np.ndarray) -> bytes:
    """The idx format: what it is, how large, and the numbers; all of it big-endian."""
    code = {"uint8": 0x08, "int32": 0x0C}[array.dtype.name]
    return (
        bytes([0, 0, code, array.ndim])
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.astype(array.dtype.newbyteorder(">")).tobytes()
    )


def _four(folder: Path, names: list[str], labels: list[int], zipped: bool) -> None:
    folder.mkdir(parents=True)
    for part in names:
        for kind, array in (
            ("images-idx3-ubyte", pixels(len(labels), 28, 28)),
            ("labels-idx1-ubyte", np.array(labels, np.uint8)),
        ):
            content = idx(array)
            if zipped:
                folder.joinpath(f"{part}-{kind}.gz").write_bytes(gzip.compress(content))
            else:
                folder.joinpath(f"{part}-{kind}").write_bytes(content)


def mnist(root: Path) -> None:
    _four(root / "mnist", ["train", "t10k"], [3, 0, 9, 1], zipped=False)


def fashion_mnist(root: Path) -> None:
    _four(root / "fashion-mnist", ["train", "t10k"], [3, 0, 9, 1], zipped=True)


def emnist(root: Path) -> None:
    _four(root / "gzip", ["emnist-letters-train", "emnist-letters-test"], [1, 26, 5], zipped=True)


RATINGS = [(user, film, (user + film) % 10 / 2 + 0.5) for user in (1, 4, 610) for film in (1, 3, 6, 47, 193609)]


def movielens(root: Path) -> None:
    folder = root / "ml-latest-small"
    folder.mkdir()
    rows = "".join(f"{user},{film},{stars},964982703\r\n" for user, film, stars in RATINGS)
    folder.joinpath("ratings.csv").write_bytes(f"userId,movieId,rating,timestamp\r\n{rows}".encode())


def movielens_100k(root: Path) -> None:
    folder = root / "ml-100k"
    folder.mkdir()
    folder.joinpath("u.data").write_text("".join(f"{u}\t{f}\t{int(s + 0.5)}\t881250949\n" for u, f, s in RATINGS))


def movielens_1m(root: Path) -> None:
    folder = root / "ml-1m"
    folder.mkdir()
    folder.joinpath("ratings.dat").write_text("".join(f"{u}::{f}::{int(s + 0.5)}::978300760\n" for u, f, s in RATINGS))
