"""A data set that Hugging Face's `datasets` saved to disk, read through pyarrow alone.

`save_to_disk` leaves one folder per split, with Arrow files that its state.json names. The column of inputs can hold
images, texts, numbers or lists of numbers; that of targets, classes.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.data.arrays import Arrays, Precision, check_share, fixed_split, task_of
from gossamer.data.images import NORMALIZE, check_size, read_image
from gossamer.data.sources import Layout, Source, own
from gossamer.data.supervised import Supervised
from gossamer.data.text import Vocabulary, check_text
from gossamer.models import Architecture, Mlp


class _File(msgspec.Struct):
    filename: str


class _State(msgspec.Struct):
    files: list[_File] = msgspec.field(name="_data_files")


@dataclass(frozen=True)
class HuggingFace:
    """A data set that Hugging Face's save_to_disk wrote: images, texts or numbers, with classes."""

    folder: str  # inside the directory with data
    inputs: str = "image"  # the column to predict from
    target: str = "label"  # the column to predict
    client: str | None = None  # the column that says whose a sample is
    size: int = 32  # pixels per side to which images are cropped and scaled
    vocabulary: int = 10_000  # different words that are told apart in texts
    length: int = 64  # words of a text that are read
    test_share: float = 0.2  # if there is no split test; which samples is fixed
    model: Architecture = Mlp()
    precision: Precision = "float32"
    root: str | None = None  # the directory with data sets; by default the one that --data or GOSSAMER_DATA names

    def __post_init__(self) -> None:
        own(self.folder)
        check_size(self.size)
        check_text(self.vocabulary, self.length)
        check_share(self.test_share)

    @property
    def source(self) -> Source:
        layouts = (Layout(self.folder, ("train/state.json",)), Layout(self.folder, ("state.json",)))
        return Source(self.folder, "", layouts)

    def arrays(self) -> Arrays:
        found = self.source.find(self.root)
        folder = found.path(found.layout.files[0]).parent  # of the training samples, or of all
        divided = folder.name == "train" and (found.folder / "test" / "state.json").is_file()
        with self.source.reading(found.folder):
            columns = [self._read(part) for part in ([folder, found.folder / "test"] if divided else [folder])]
            inputs, shape = self._inputs([one["inputs"] for one in columns])
            names = sorted({value for one in columns for value in one["target"]})
            number = {value: label for label, value in enumerate(names)}
            targets = [torch.tensor([number[value] for value in one["target"]]) for one in columns]
            if divided:
                kept, held = torch.arange(len(targets[0])), torch.arange(len(targets[1]))
            else:
                kept, held = fixed_split(len(targets[0]), self.test_share)
            train, test = (inputs[0][kept], targets[0][kept]), (inputs[-1][held], targets[-1][held])
        return Arrays(train, test, shape, len(names), *self._clients(columns, kept, held))

    def _clients(
        self, columns: list[dict[str, list[Any]]], kept: Tensor, held: Tensor
    ) -> list[NDArray[np.int64] | None]:
        """Whose the training samples are, and whose the test samples."""
        if self.client is None:
            return [None, None]
        names = [str(one) for column in columns for one in column["client"]]
        numbers = np.unique(names, return_inverse=True)[1].astype(np.int64)
        behind = len(columns[0]["client"]) if len(columns) > 1 else 0
        return [numbers[kept.numpy()], numbers[held.numpy() + behind]]

    def load(self) -> Supervised:
        arrays = self.arrays()
        kind = arrays.train[0].dtype
        prepare = {torch.uint8: NORMALIZE, torch.int32: Tensor.long}.get(kind)
        return task_of(self, arrays, prepare=prepare)

    def _read(self, folder: Path) -> dict[str, list[Any]]:
        """The columns in question of one split."""
        try:
            import pyarrow
        except ImportError as error:
            raise ValueError("Arrow files are read with pyarrow; install gossamer[arrow]") from error
        state = msgspec.json.decode((folder / "state.json").read_bytes(), type=_State)
        wanted = {"inputs": self.inputs, "target": self.target} | ({"client": self.client} if self.client else {})
        columns: dict[str, list[Any]] = {role: [] for role in wanted}
        for file in state.files:
            if not re.fullmatch(r"[\w.-]+\.arrow", file.filename):
                raise ValueError(f"{file.filename!r} is not the name of an Arrow file")
            with pyarrow.memory_map(str(folder / file.filename)) as bytes_, pyarrow.ipc.open_stream(bytes_) as stream:
                table = stream.read_all()
            for role, name in wanted.items():
                if name not in table.column_names:
                    raise ValueError(f"it has no column {name!r}, only {', '.join(table.column_names)}")
                columns[role] += table[name].to_pylist()
        if not columns["target"] or any(value is None for value in columns["target"]):
            raise ValueError(f"its column {self.target!r} is empty, or has empty places")
        return columns

    def _inputs(self, parts: list[list[Any]]) -> tuple[list[Tensor], tuple[int, ...]]:
        """The inputs of every split, and what one sample is."""
        first = parts[0][0]
        if isinstance(first, dict) and isinstance(first.get("bytes"), bytes):
            images = [torch.stack([read_image(one["bytes"], self.size) for one in part]) for part in parts]
            return images, (3, self.size, self.size)
        if isinstance(first, str):
            words = Vocabulary(parts[0], self.vocabulary)
            return [words(part, self.length) for part in parts], (words.size, self.length)
        tables = [torch.from_numpy(np.array(part, np.float32)) for part in parts]
        return tables, tuple(tables[0].shape[1:]) or (1,)
