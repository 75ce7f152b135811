"""Every data set is read from files in its official layout: tiny ones made here, and the real ones where they are."""

import gzip
import io
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import official
from gossamer.data import (
    TASKS,
    AgNews,
    CelebA,
    Cifar10,
    Cifar100,
    Emnist,
    FashionMnist,
    Femnist,
    HuggingFace,
    ImageFolder,
    Imagenette,
    Mnist,
    MovieLens,
    Qmnist,
    SentenceLength,
    Shakespeare,
    Synthetic,
    Table,
)
from gossamer.data.arrays import Normalize, crop_and_flip
from gossamer.data.cifar import read_pickle
from gossamer.data.leaf import LETTERS, letter_numbers
from gossamer.data.movielens import within
from gossamer.data.sources import VARIABLE, DataError
from gossamer.data.text import Vocabulary
from gossamer.experiments import toml
from gossamer.experiments.recipes import RECIPES
from gossamer.graphs.topologies import RandomRegular
from gossamer.models import FemnistCnn, GnLeNet, ResNet20, StackedLstm, Transformer

REAL = os.environ.get(VARIABLE)  # before a test sets it


class Case(NamedTuple):
    """A data set."""

    task: object
    write: Callable[[Path], None]  # a tiny one
    tiny: tuple[int, int]  # training and test samples of that
    real: tuple[int, int] | None  # and of the official files, where there is one number
    classes: int
    clients: int | None = None  # of the tiny one


PETS = Table("pets/pets.csv", "kind", client="owner", leave_out=("id",))
SMALL = Transformer(width=8, heads=2, layers=1)
CASES = {
    "cifar10": Case(Cifar10(), official.cifar10, (20, 4), (50_000, 10_000), 10),
    "cifar10, binary": Case(Cifar10(), official.cifar10_binary, (20, 4), (50_000, 10_000), 10),
    "cifar100": Case(Cifar100(), official.cifar100, (3, 3), (50_000, 10_000), 100),
    "cifar100, binary": Case(Cifar100("coarse"), official.cifar100_binary, (3, 3), (50_000, 10_000), 20),
    "mnist": Case(Mnist(), official.mnist, (4, 4), (60_000, 10_000), 10),
    "fashion-mnist": Case(FashionMnist(), official.fashion_mnist, (4, 4), (60_000, 10_000), 10),
    "emnist": Case(Emnist("letters"), official.emnist, (3, 3), (124_800, 20_800), 26),
    "movielens": Case(MovieLens(), official.movielens, (9, 6), (70_595, 30_241), 1, 3),
    "movielens 100k": Case(MovieLens("100k"), official.movielens_100k, (9, 6), (70_000, 30_000), 1, 3),
    "movielens 1m": Case(MovieLens("1m"), official.movielens_1m, (9, 6), (700_146, 300_063), 1, 3),
    "qmnist": Case(Qmnist(), official.qmnist, (3, 3), None, 10, 2),
    "qmnist, archive": Case(Qmnist(), official.qmnist_archive, (3, 3), (60_000, 10_000), 10, 2),
    "femnist": Case(Femnist(FemnistCnn(hidden=8)), official.femnist, (5, 5), None, 62, 2),
    "celeba": Case(CelebA(), official.celeba, (4, 4), None, 2, 2),
    "shakespeare": Case(Shakespeare(model=StackedLstm(hidden=8)), official.shakespeare, (4, 4), None, 80, 2),
    "shakespeare, texts": Case(Shakespeare(model=StackedLstm(hidden=8)), official.roles, (684, 52), None, 80, 2),
    "imagenette": Case(Imagenette(size=16), official.imagenette, (2, 2), (9_469, 3_925), 2),
    "ag-news": Case(AgNews(model=SMALL), official.ag_news, (3, 2), (120_000, 7_600), 4),
    "sentence-length": Case(SentenceLength(model=SMALL), official.sentence_length, (6, 6), None, 6),
    "image-folder": Case(ImageFolder("birds"), official.image_folder, (8, 2), None, 2),
    "image-folder, divided": Case(ImageFolder("birds"), official.divided_image_folder, (2, 2), None, 2),
    "table": Case(
        Table("pets/pets.csv", "kind", client="owner", leave_out=("id",)), official.table, (16, 4), None, 2, 4
    ),
    "table, parquet": Case(Table("pets/pets.parquet", "kind", client="owner"), official.parquet, (16, 4), None, 2, 4),
    "hugging-face": Case(HuggingFace("pictures", client="writer"), official.hugging_face_images, (4, 4), None, 3, 2),
    "hugging-face, texts": Case(
        HuggingFace("reviews", "text", "mood", model=SMALL), official.hugging_face_texts, (4, 1), None, 2
    ),
    "hugging-face, numbers": Case(HuggingFace("points", "x", "y"), official.hugging_face_numbers, (8, 2), None, 2),
}
OWN = [name for name in CASES if name.startswith(("image-folder", "table", "hugging-face"))]  # no official ones
OFFICIAL = [name for name in CASES if name not in OWN]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As in a simulation: several are slower on a machine with other work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory for data, named as a user would."""
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    return tmp_path


def check(case: Case, number: tuple[int, int] | None) -> None:
    task = case.task.load()
    assert number is None or (task.num_samples, task.num_test_samples) == number
    if task.train[0].ndim == 4:
        assert task.train[0].dtype == torch.uint8  # pixels stay bytes
    few = np.arange(min(2, task.num_test_samples))
    losses, gradients = task.gradient(task.initial_model(0)[None], [few], [0])
    assert torch.isfinite(losses).all()
    assert gradients.abs().sum() > 0
    loss, score = task.evaluate(task.initial_model(0), few)
    assert loss > 0
    assert 0 <= score <= 1
    if case.classes > 1:
        assert 0 <= task.labels.min() <= task.labels.max() < case.classes
    if case.clients is not None:
        assert task.clients.shape == (task.num_samples,)


@pytest.mark.parametrize("name", CASES)
def test_a_data_set_is_read_from_its_official_files(name: str, root: Path) -> None:
    case = CASES[name]
    case.write(root)
    check(case, case.tiny)
    arrays = case.task.arrays()
    assert arrays.outputs == case.classes
    assert (None if arrays.clients is None else len(set(arrays.clients.tolist()))) == case.clients
    if arrays.test_clients is not None:
        assert len(arrays.test_clients) == len(arrays.test[1])
        assert {*arrays.test_clients.tolist()} <= {-1, *arrays.clients.tolist()}


@pytest.mark.parametrize("name", [name for name in OFFICIAL if name != "shakespeare, texts"])
def test_the_directory_can_be_the_data_sets_own_folder(name: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    case.write(root)
    (folder,) = root.iterdir()
    monkeypatch.setenv(VARIABLE, str(folder))
    assert len(case.task.arrays().train[0]) == case.tiny[0]


@pytest.mark.skipif(REAL is None, reason=f"{VARIABLE} names no directory with the real data sets")
@pytest.mark.parametrize("name", OFFICIAL)
def test_the_real_files_are_read_too(name: str) -> None:
    case = CASES[name]
    if isinstance(case.task.source.look(Path(REAL)), Path):
        pytest.skip(f"{REAL} does not have {case.task.source.title}")
    check(case, case.real)


@pytest.mark.parametrize("name", CASES)
def test_a_missing_data_set_is_told_in_one_sentence_with_where_to_get_it(name: str, root: Path) -> None:
    get = "" if name in OWN else r"get it from http.* and "
    with pytest.raises(DataError, match=rf"there is no .*; {get}name the directory that holds .* with --data or GOSS"):
        CASES[name].task.load()


def test_without_a_directory_the_sentence_says_how_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(DataError, match="no directory with data is named; get it from https://"):
        Cifar10().load()
    monkeypatch.setenv(VARIABLE, "nowhere")
    with pytest.raises(DataError, match="GOSSAMER_DATA names nowhere, which is not a directory"):
        Cifar10().load()
    with pytest.raises(DataError, match="root names elsewhere, which is not a directory"):
        Cifar10(root="elsewhere").load()


@pytest.mark.parametrize("name", CASES)
def test_root_names_the_directory_before_the_environment_does(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    case.write(tmp_path)
    monkeypatch.setenv(VARIABLE, "nowhere")
    assert len(replace(case.task, root=str(tmp_path)).arrays().train[1]) == case.tiny[0]


def test_root_is_read_from_an_experiment_file_and_written_only_if_it_is_given() -> None:
    experiment = toml.read({"task": {"name": "cifar10", "root": "~/data"}})
    assert experiment.task.root == "~/data"
    assert toml.write(experiment)["task"]["root"] == "~/data"
    assert "root" not in toml.write(toml.read({"task": "cifar10"}))["task"]


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("table", "shakespeare, texts")])  # any text
@pytest.mark.parametrize("keep", [0.0, 0.1, 0.62])
def test_a_truncated_file_is_told_in_one_sentence(name: str, keep: float, root: Path) -> None:
    case = CASES[name]
    case.write(root)
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        whole = path.read_bytes()
        path.write_bytes(whole[: int(len(whole) * keep) + 1])
    with pytest.raises(DataError, match="cannot be read as") as told:
        case.task.load()
    assert "\n" not in str(told.value)


def test_images_are_those_in_the_files(root: Path) -> None:
    official.cifar10(root)
    official.mnist(root)
    official.emnist(root)
    images, labels = Cifar10().arrays().train
    assert torch.equal(images[:4].reshape(4, -1), torch.from_numpy(official.pixels(4, 3072)))
    assert labels.tolist()[:8] == [0, 9, 0, 0, 1, 9, 0, 1]
    assert torch.equal(Mnist().arrays().test[0][:, 0], torch.from_numpy(official.pixels(4, 28, 28)))
    upright, letters = Emnist("letters").arrays().train
    assert torch.equal(upright[:, 0].mT, torch.from_numpy(official.pixels(3, 28, 28)))
    assert letters.tolist() == [0, 25, 4]


@pytest.mark.parametrize(("task", "size"), [(Cifar10, 16), (Cifar10, 8), (Cifar100, 16)])
def test_smaller_images_of_cifar_are_means_of_squares(task: type, size: int, root: Path) -> None:
    official.cifar10(root)
    official.cifar100(root)
    whole, small = task().arrays(), task(size=size).arrays()
    assert small.inputs == (3, size, size)
    for (before, labels), (after, same_labels) in zip(whole[:2], small[:2], strict=True):
        means = torch.nn.functional.avg_pool2d(before.double(), 32 // size)
        assert torch.equal(after, (means + 0.5).floor().to(torch.uint8))
        assert torch.equal(labels, same_labels)
    assert task(size=size, model=ResNet20(width=4)).load().layer_sizes


@pytest.mark.parametrize("size", [24, 16.0])
def test_cifar_has_no_other_sizes(size: Any) -> None:
    with pytest.raises(ValueError, match=f"size must be 32, 16 or 8 pixels, {size} was given"):
        Cifar10(size=size)


def test_both_versions_of_cifar_give_the_same(root: Path) -> None:
    official.cifar10(root)
    python = Cifar10().arrays()
    for path in (root / "cifar-10-batches-py").iterdir():
        path.unlink()
    official.cifar10_binary(root)
    for one, other in zip(
        (*python.train, *python.test), (*Cifar10().arrays().train, *Cifar10().arrays().test), strict=True
    ):
        assert torch.equal(one, other)


HOSTILE = {
    "runs a program": b"\x80\x02cos\nsystem\nU\x02id\x85R.",
    "names one in another way": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02id\x85R.",
    "makes an object": b"\x80\x02cnumpy\nndarray\n)\x81.",
    "inherits": b"(ios\nsystem\n.",
    "asks for a huge text": b"\x80\x02T\xff\xff\xff\x7fabc.",
    "remembers at a huge place": b"\x80\x02Nr\xff\xff\xff\xff0.",
    "takes from an empty stack": b"\x80\x020.",
    "appends to a number": b"\x80\x02K\x01K\x02a.",
    "recalls what it never knew": b"\x80\x02h\x07.",
    "ends too early": b"\x80\x02}",
    "is empty": b"",
    "is no pickle": b"GIF89a",
    "is of another extension": b"\x80\x02\x82\x01.",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_pickle_is_refused_and_nothing_is_run(what: str, root: Path) -> None:
    official.cifar10(root)
    (root / "cifar-10-batches-py" / "data_batch_3").write_bytes(HOSTILE[what])
    with pytest.raises(DataError, match="data_batch_3 cannot be read as CIFAR-10"):
        Cifar10().load()


def test_a_pickle_can_build_nothing_but_plain_values() -> None:
    assert read_pickle(b"\x80\x02}(U\x01aK\x07U\x01b](K\x01Neu.") == {"a": 7, "b": [1, None]}
    with pytest.raises(ValueError, match="'os system', which is no part of this data set"):
        read_pickle(HOSTILE["runs a program"])


@pytest.mark.parametrize("zipped", [False, True])
def test_a_header_that_promises_too_much_is_refused_before_memory_is_taken(zipped: bool, root: Path) -> None:
    official.mnist(root)
    path = root / "mnist" / "train-images-idx3-ubyte"
    content = bytes([0, 0, 8, 3]) + struct.pack(">3I", 2**31, 2**31, 2**31) + bytes(100)
    path.unlink()
    path.with_suffix(".gz" if zipped else "").write_bytes(gzip.compress(content) if zipped else content)
    with pytest.raises(DataError, match="its header promises 2147483648 x 2147483648 x 2147483648 numbers"):
        Mnist().load()


def test_labels_out_of_range_and_counts_that_differ_are_refused(root: Path) -> None:
    official.mnist(root)
    labels = root / "mnist" / "t10k-labels-idx1-ubyte"
    labels.write_bytes(official.idx(np.array([1, 2, 10, 3], np.uint8)))
    with pytest.raises(DataError, match="a label is 10, and there are only the classes 0 to 9"):
        Mnist().load()
    labels.write_bytes(official.idx(np.array([1, 2, 3], np.uint8)))
    with pytest.raises(DataError, match="there are 4 samples and 3 labels"):
        Mnist().load()


@pytest.mark.parametrize(
    ("line", "words"),
    [("1,2,6.0,3", "half stars"), ("1,2,3", "line 2 has 3 fields"), ("a,2,3.0,3", "invalid literal"),
     ("1,2,nan,3", "half stars"), (f"{10**400},2,3.0,3", "too large")],
)  # fmt: skip
def test_ratings_that_are_none_are_refused(line: str, words: str, root: Path) -> None:
    official.movielens(root)
    path = root / "ml-latest-small" / "ratings.csv"
    first, *rest = path.read_text().splitlines()
    path.write_text("\n".join([first, line, *rest, ""]))
    with pytest.raises(DataError, match=words):
        MovieLens().load()


def test_every_users_ratings_are_divided_and_always_in_the_same_way(root: Path) -> None:
    official.movielens(root)
    arrays = MovieLens().arrays()
    assert np.bincount(arrays.clients).tolist() == [3, 3, 3]
    assert arrays.train[0][:, 0].tolist() == arrays.clients.tolist()
    assert arrays.test[0][:, 0].tolist() == arrays.test_clients.tolist()
    seen = {tuple(pair) for part in (arrays.train, arrays.test) for pair in part[0].tolist()}
    assert seen == {(user, film) for user in range(3) for film in range(5)}
    assert torch.equal(arrays.train[0], MovieLens().arrays().train[0])


def test_a_rating_is_right_when_its_nearest_half_star_is() -> None:
    output, target = torch.tensor([3.74, 3.76, 7.0, -2.0, 4.4]), torch.tensor([3.5, 3.5, 5.0, 0.5, 3.5])
    assert within(0.0, output, target).tolist() == [1, 0, 1, 1, 0]
    assert within(1.0, output, target).tolist() == [1, 1, 1, 1, 1]


@pytest.mark.parametrize(("side", "reach"), [(8, 1), (16, 2), (28, 4), (40, 4)])
def test_augmented_images_are_shifted_and_mirrored_ones(side: int, reach: int) -> None:
    images = torch.from_numpy(official.pixels(40, 3, side, side))
    torch.manual_seed(1)
    changed = crop_and_flip(images)
    torch.manual_seed(1)
    assert torch.equal(changed, crop_and_flip(images))
    assert (changed.dtype, changed.shape) == (torch.uint8, images.shape)
    padded = torch.nn.functional.pad(images, (reach,) * 4)
    flips, shifts = set(), set()
    for one, source in zip(changed, padded, strict=True):
        found = [
            (mirrored, shift)
            for shift in product(range(2 * reach + 1), repeat=2)
            for mirrored in (False, True)
            if torch.equal(shifted(source, shift, side, mirrored), one)
        ]
        assert found
        flips |= {mirrored for mirrored, _ in found}
        shifts |= {along for _, shift in found for along in shift}
    assert flips == {False, True}
    assert shifts == set(range(2 * reach + 1))


def shifted(padded: torch.Tensor, shift: tuple[int, int], side: int, mirrored: bool) -> torch.Tensor:
    crop = padded[:, shift[0] : shift[0] + side, shift[1] : shift[1] + side]
    return crop.flip(-1) if mirrored else crop


def test_normalized_bytes_are_numbers_around_0() -> None:
    assert Normalize(0.5, 0.5)(torch.tensor([0, 255], dtype=torch.uint8)).tolist() == [-1, 1]
    every = torch.arange(256, dtype=torch.uint8).view(4, 64).t()  # not in one piece
    plain = ((every.float() / 255) - 0.3) / 0.2
    assert torch.equal(Normalize(0.3, 0.2)(every), plain)
    assert torch.equal(Normalize(0.3, 0.2)(every.float()), plain)


def test_the_model_of_a_data_set_can_be_chosen_and_must_fit(root: Path) -> None:
    official.mnist(root)
    assert sum(replace(Mnist(), model=GnLeNet(norm="none")).load().layer_sizes) < sum(Mnist().load().layer_sizes)
    official.movielens(root)
    with pytest.raises(ValueError, match="inputs must be an image's"):
        MovieLens(model=GnLeNet()).load()


def test_every_task_of_the_table_says_what_it_is() -> None:
    for name, task in TASKS.items():
        assert (task.__doc__ or "").strip().endswith("."), name


def test_windows_are_the_80_characters_before_the_next_and_none_is_in_training_and_test(root: Path) -> None:
    official.roles(root)
    task = Shakespeare().load()
    text = official.LINE * 6
    windows = task.prepare(task.train[0][:500])
    for i in (0, 1, 379):
        assert windows[i].tolist() == letter_numbers(text[i : i + 80]).tolist()
        assert LETTERS[task.train[1][i]] == text[i + 80]
    last_trained = task.train[0][task.clients == 0].max() + 80
    assert task.test[0].min() > last_trained
    assert task.clients.tolist() == [0] * 380 + [1] * 304


def test_a_character_that_leaf_does_not_have_counts_as_a_space() -> None:
    assert letter_numbers("a\u2014é~").tolist() == [LETTERS.index("a"), *[LETTERS.index(" ")] * 2, LETTERS.index(" ")]


def test_leafs_pixels_are_the_bytes_that_they_were(root: Path) -> None:
    official.femnist(root)
    images, labels = Femnist().arrays().train
    assert torch.equal(images.reshape(5, 784), torch.from_numpy(official.pixels(5, 784)))
    assert labels.tolist() == [0, 61, 35, 10, 36]


def test_a_leaf_user_has_one_number_in_training_and_test_whatever_the_order(root: Path) -> None:
    official.femnist(root)
    first, second = sorted((root / "femnist" / "data" / "test").iterdir())
    kept = first.read_bytes()
    first.write_bytes(second.read_bytes())  # the other order, and one whom training does not know
    second.write_bytes(kept.replace(b"f0016_39", b"f9999_99"))
    arrays = Femnist().arrays()
    assert arrays.clients.tolist() == [0, 0, 0, 1, 1]
    assert arrays.test_clients.tolist() == [1, 1, -1, -1, -1]


@pytest.mark.parametrize(
    ("users", "words"),
    [
        ({"a": ([[0.5] * 783], [1])}, "784 pixels"),
        ({"a": ([[2.0] * 784], [1])}, "between 0 and 1"),
        ({"a": ([[0.5] * 784], [62])}, "a label is 62"),
        ({"a": ([[0.5] * 784], [])}, "1 samples and 0 labels"),
        ({"a": ("x", [1])}, "Expected `array`, got `str`"),
        ({"a": ([[0.5] * 784], [10**30])}, "cannot be read as FEMNIST"),
        ({"a": ([], [])}, "it has no samples"),
    ],
)
def test_json_of_the_wrong_shape_is_refused(users: dict, words: str, root: Path) -> None:
    official.leaf(root / "femnist", users)
    with pytest.raises(DataError, match=words):
        Femnist().load()


@pytest.mark.parametrize("content", [b"[]", b"{}", b'{"users": ["a"], "user_data": {}}', b"[" * 100_000, b"\xff"])
def test_what_is_not_leafs_json_is_refused(content: bytes, root: Path) -> None:
    official.femnist(root)
    next((root / "femnist" / "data" / "train").iterdir()).write_bytes(content)
    with pytest.raises(DataError, match="cannot be read as FEMNIST"):
        Femnist().load()


@pytest.mark.parametrize("name", ["../../../../secret.jpg", "/secret.jpg", "secret", "a/b.jpg"])
def test_a_photograph_lies_among_the_photographs(name: str, root: Path) -> None:
    official.celeba(root)
    official.leaf(root / "celeba", {"2880": ([name], [1])})
    with pytest.raises(DataError, match="is not the name of a photograph"):
        CelebA().load()


@pytest.mark.parametrize("name", ["../birds", "/birds", "a/../../birds", "~/birds", "C:birds", "a\\b", ""])
def test_own_data_lie_inside_the_directory_with_data(name: str) -> None:
    for make in (ImageFolder, HuggingFace):
        with pytest.raises(ValueError, match="it must be a path inside the directory with data"):
            make(name)
    with pytest.raises(ValueError, match="it must be a path inside the directory with data"):
        Table(f"{name}/../../x.csv", "kind")


def test_an_image_with_too_many_pixels_is_refused_before_they_are_made(root: Path) -> None:
    official.image_folder(root)
    huge = struct.pack(">2I5B", 60_000, 60_000, 8, 2, 0, 0, 0)
    header = b"IHDR" + huge
    png = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))
    png += struct.pack(">I", 0) + b"IDAT" + struct.pack(">I", zlib.crc32(b"IDAT"))
    (root / "birds" / "crow" / "0.png").write_bytes(png)
    with pytest.raises(DataError, match=r"0.png cannot be read as birds: Image size \(3600000000 pixels\) exceeds"):
        ImageFolder("birds").load()


def test_an_archive_that_promises_too_much_or_holds_objects_is_refused(root: Path) -> None:
    official.qmnist_archive(root)
    path = root / "mnist-by-writer" / "mnist_by_writer.npz"
    with np.load(path) as arrays:
        whole = dict(arrays)
    np.savez(path, **(whole | {"y_train": np.array([1, "a", None], object)}))
    with pytest.raises(DataError, match="y_train is not an array of 1 dimensions of whole numbers"):
        Qmnist().load()
    np.savez(path, **whole)
    content = path.read_bytes()
    with zipfile.ZipFile(path, "w") as archive:
        for name in whole:
            data = zipfile.ZipFile(io.BytesIO(content)).read(f"{name}.npy")
            if name == "x_train":
                data = data.replace(b"(3, 28, 28)", b"(9999999999, 28, 28)")
                data = data[:8] + struct.pack("<H", struct.unpack("<H", data[8:10])[0] + 9) + data[10:]
            archive.writestr(f"{name}.npy", data)
    with pytest.raises(DataError, match="x_train promises more numbers than there are"):
        Qmnist().load()


def test_words_are_numbered_by_how_often_they_come_in_the_training_texts() -> None:
    words = Vocabulary(["the cat", "the dog!", "The cat"], 5)
    assert words.number == {"the": 2, "cat": 3, "!": 4}
    assert words(["cat the bird", "dog"], 4).tolist() == [[3, 2, 1, 0], [1, 0, 0, 0]]


def test_a_table_becomes_scaled_numbers_and_a_column_a_word(root: Path) -> None:
    official.table(root)
    arrays = PETS.arrays()
    assert arrays.inputs == (3,)  # size, blue, red
    inputs = arrays.train[0]
    assert inputs[:, 0].mean().abs() < 1e-6 + 1 / 16  # one row has no size, and gets the mean
    assert set(map(tuple, inputs[:, 1:].tolist())) == {(1, 0), (0, 1)}
    assert Table("pets/pets.csv", "size", regression=True).source.find()
    with pytest.raises(DataError, match="its column 'size' has empty places"):
        Table("pets/pets.csv", "size", regression=True).load()
    task = Table("pets/pets.csv", "id", regression=True).load()
    assert task.metric == "absolute_error"
    with pytest.raises(DataError, match=r"pets.csv has no column 'colur', only id, size, colour, owner, kind$"):
        Table("pets/pets.csv", "colur").load()
    with pytest.raises(DataError, match=r"name the directory that holds dogs.csv with --data"):
        Table("dogs.csv", "kind").load()


def test_the_dials_of_the_synthetic_task_turn() -> None:
    def common_model_fits(alpha: float, beta: float) -> float:
        """The accuracy of one linear model over all clients, by least squares."""
        arrays = Synthetic(alpha=alpha, beta=beta, num_clients=20, samples_per_client=250).arrays()
        x = torch.cat([arrays.train[0], torch.ones(len(arrays.train[0]), 1)], 1)
        w = torch.linalg.lstsq(x, torch.eye(10)[arrays.train[1]]).solution
        return ((x @ w).argmax(1) == arrays.train[1]).float().mean().item()

    alike, different = common_model_fits(0, 0), common_model_fits(2, 0)
    assert alike > different + 0.2
    for beta, differs in ((0.0, False), (1.0, True)):
        arrays = Synthetic(alpha=0, beta=beta, num_clients=2, samples_per_client=2000).arrays()
        means = [arrays.train[0][arrays.clients == client].mean(0) for client in (0, 1)]
        assert ((means[0] - means[1]).norm() > 1) == differs
    task = Synthetic().load()
    assert (task.num_samples, task.num_test_samples) == (96 * 80, 96 * 20)
    assert np.bincount(task.clients).tolist() == [80] * 96


def test_a_task_in_eight_bits_has_the_same_parameters_and_other_gradients(root: Path) -> None:
    official.mnist(root)
    exact, coarse = Mnist().load(), Mnist(precision="int8").load()
    rows = exact.initial_model(0)[None]
    assert torch.equal(rows[0], coarse.initial_model(0))
    (_, a), (_, b) = (task.gradient(rows, [np.arange(4)], [0]) for task in (exact, coarse))
    assert 0 < (a - b).norm() < 0.5 * a.norm()


def test_pixels_of_celeba_are_from_minus_one_to_one_or_bytes(root: Path) -> None:
    official.celeba(root)
    tasks = [CelebA(pixels=pixels).load() for pixels in ("centred", "bytes")]
    centred, given = (task.prepare(task.test[0][:2]) for task in tasks)
    torch.testing.assert_close(centred, given / 127.5 - 1)
    torch.testing.assert_close(given, tasks[1].test[0][:2].float())


def test_the_recipes_on_data_sets_have_the_papers_sizes(root: Path) -> None:
    names = ("cifar10", "movielens", "shakespeare", "femnist", "celeba")
    for recipe in (RECIPES[f"jwins-{name}"]() for name in names):
        assert (recipe.nodes, recipe.topology) == (96, RandomRegular(degree=4))
    ring = RECIPES["low-precision-cifar10"]()
    assert (ring.nodes, ring.rounds, ring.optimizer.schedule.at) == (8, 39_200, (19_600, 29_400))
    official.cifar10(root)
    assert sum(ring.task.load().layer_sizes) == 273_258  # as the paper's 42.85 GB are counted
    assert sum(RECIPES["jwins-cifar10"]().task.load().layer_sizes) == 89_834
