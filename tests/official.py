"""Tiny data sets in the official layouts, written byte by byte."""

import gzip
import io
import json
import struct
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.ipc
import pyarrow.parquet
from PIL import Image


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


def leaf(folder: Path, users: dict[str, tuple[list, list]]) -> None:
    """LEAF's JSON files: the same users in two files of data/train and one of data/test."""
    for part in ("train", "test"):
        place = folder / "data" / part
        place.mkdir(parents=True, exist_ok=True)
        for number, (name, (x, y)) in enumerate(users.items()):
            content = {"users": [name], "num_samples": [len(y)], "user_data": {name: {"x": x, "y": y}}}
            place.joinpath(f"all_data_{number}_niid_0_keep_0_{part}_9.json").write_text(json.dumps(content))


def femnist(root: Path) -> None:
    images = (pixels(5, 784) / 255).tolist()
    leaf(root / "femnist", {"f0016_39": (images[:3], [0, 61, 35]), "f3535_00": (images[3:], [10, 36])})


LINE = "To be, or not to be: that is the question: Whether 'tis nobler in the mind to suffer the slings "


def shakespeare(root: Path) -> None:
    first = ([LINE[i : i + 80] for i in range(3)], [LINE[i + 80] for i in range(3)])
    leaf(root / "shakespeare", {"HAMLET_HAMLET": first, "HAMLET_OPHELIA": ([LINE[5:85]], [LINE[85]])})


def roles(root: Path) -> None:
    folder = root / "shakespeare" / "by_play_and_character"
    folder.mkdir(parents=True)
    folder.joinpath("HAMLET_HAMLET.txt").write_text("\n".join([LINE] * 6))
    folder.joinpath("HAMLET_OPHELIA.txt").write_text("\n".join([LINE] * 5))
    folder.joinpath("HAMLET_A_GENTLEMAN.txt").write_text("She speaks much of her father.\n")  # no window in this


def _photograph(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path)


def celeba(root: Path) -> None:
    for i in range(4):
        name = f"{i + 1:06}.jpg"
        _photograph(root / "celeba" / "data" / "raw" / "img_align_celeba" / name, pixels(1, 218, 178, 3)[0])
    names = [f"{i + 1:06}.jpg" for i in range(4)]
    leaf(root / "celeba", {"2880": (names[:2], [1, 0]), "2937": (names[2:], [0, 0])})


def imagenette(root: Path) -> None:
    for part in ("train", "val"):
        for wnid in ("n01440764", "n03888257"):
            _photograph(root / "imagenette2-160" / part / wnid / f"{wnid}_10026.JPEG", pixels(1, 160, 213, 3)[0])


def image_folder(root: Path) -> None:
    for name, number in (("sparrow", 4), ("crow", 6)):
        for i in range(number):
            _photograph(root / "birds" / name / f"{i}.png", pixels(1, 40, 50, 3)[0])


def divided_image_folder(root: Path) -> None:
    for part in ("train", "val"):
        for name in ("sparrow", "crow"):
            _photograph(root / "birds" / part / name / "1.png", pixels(1, 40, 50, 3)[0])


def ag_news(root: Path) -> None:
    folder = root / "ag_news_csv"
    folder.mkdir()
    rows = ['"3","Oil ""slips"", again","Prices\\fell on Monday."', '"4","Probe lands","On Mars, softly."']
    folder.joinpath("train.csv").write_text("\n".join([*rows, '"1","Talks","They met."', ""]))
    folder.joinpath("test.csv").write_text("\n".join([*rows, ""]))


def sentence_length(root: Path) -> None:
    folder = root / "probing"
    folder.mkdir()
    lines = [f"{part}\t{label}\t{'word ' * label}here ." for part in ("tr", "va", "te") for label in range(6)]
    folder.joinpath("sentence_length.txt").write_text("\n".join([*lines, ""]))


def qmnist(root: Path) -> None:
    folder = root / "qmnist"
    folder.mkdir()
    table = np.array([[5, 0, 101, 7, 35, 1, 0, 0], [0, 0, 101, 9, 30, 2, 0, 0], [9, 1, 2599, 1, 39, 3, 0, 0]], np.int32)
    for part in ("train", "test"):
        folder.joinpath(f"qmnist-{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(pixels(3, 28, 28))))
        folder.joinpath(f"qmnist-{part}-labels-idx2-int.gz").write_bytes(gzip.compress(idx(table)))


def qmnist_archive(root: Path) -> None:
    folder = root / "mnist-by-writer"
    folder.mkdir()
    arrays = {"x_train": pixels(3, 28, 28), "y_train": np.array([5, 0, 9], np.uint8)}
    arrays |= {"x_test": pixels(3, 28, 28), "y_test": np.array([5, 0, 9], np.uint8)}
    np.savez_compressed(folder / "mnist_by_writer.npz", writer_train=np.array([101, 101, 2599], np.int16), **arrays)


COLUMNS = {
    "id": list(range(20)),
    "size": [float(i % 7) for i in range(19)] + [None],
    "colour": ["red" if i % 3 else "blue" for i in range(20)],
    "owner": [f"o{i % 4}" for i in range(20)],
    "kind": ["cat" if i % 2 else "dog" for i in range(20)],
}


def table(root: Path) -> None:
    rows = zip(*COLUMNS.values(), strict=True)
    lines = [",".join("" if value is None else str(value) for value in row) for row in rows]
    (root / "pets").mkdir()
    (root / "pets" / "pets.csv").write_text("\n".join([",".join(COLUMNS), *lines, ""]))


def parquet(root: Path) -> None:
    (root / "pets").mkdir()
    pyarrow.parquet.write_table(pyarrow.table(COLUMNS), root / "pets" / "pets.parquet")


def saved_to_disk(folder: Path, columns: dict[str, list]) -> None:
    """What `save_to_disk` of Hugging Face's datasets leaves of one split."""
    folder.mkdir(parents=True)
    rows = pyarrow.table(columns)
    with (
        pyarrow.OSFile(str(folder / "data-00000-of-00001.arrow"), "wb") as file,
        pyarrow.ipc.new_stream(file, rows.schema) as stream,
    ):
        stream.write_table(rows)
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_fingerprint": "0", "_split": "train"}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")


def hugging_face_images(root: Path) -> None:
    def png(i: int) -> dict:
        stream = io.BytesIO()
        Image.fromarray(pixels(1, 20, 30, 3)[0] + np.uint8(i)).save(stream, "PNG")
        return {"bytes": stream.getvalue(), "path": None}

    for part in ("train", "test"):
        columns = {"image": [png(i) for i in range(4)], "label": [0, 1, 2, 1], "writer": ["a", "b", "a", "b"]}
        saved_to_disk(root / "pictures" / part, columns)
    (root / "pictures" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')


def hugging_face_texts(root: Path) -> None:
    words = ["good film", "bad film", "very good", "very bad", "good"]
    saved_to_disk(root / "reviews", {"text": words, "mood": ["up", "down", "up", "down", "up"]})


def hugging_face_numbers(root: Path) -> None:
    saved_to_disk(root / "points", {"x": [[0.5, i] for i in range(10)], "y": [i % 2 for i in range(10)]})
