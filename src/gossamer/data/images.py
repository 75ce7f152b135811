"""Folders of images, one folder per class: Imagenette, or your own. They are read with Pillow."""

import io
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from gossamer.data.arrays import Arrays, Normalize, Pair, Precision, check_share, crop_and_flip, fixed_split, task_of
from gossamer.data.sources import Layout, Source, own
from gossamer.data.supervised import Supervised
from gossamer.models import Architecture, GnLeNet

_KINDS = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".ppm", ".webp"}
NORMALIZE = Normalize(mean=0.5, deviation=0.5)


def read_image(file: Path | bytes, size: int, crop: bool = True) -> Tensor:
    """(3, size, size) bytes of an image: its middle square, or all of it squeezed."""
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise ValueError("images are read with Pillow; install gossamer[images]") from error
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)  # a file of few bytes and very many pixels
        try:
            with Image.open(io.BytesIO(file) if isinstance(file, bytes) else file) as image:
                colours = image.convert("RGB")
        except (Image.DecompressionBombWarning, Image.DecompressionBombError, SyntaxError) as error:
            raise ValueError(str(error)) from error
    square = ImageOps.fit(colours, (size, size)) if crop else colours.resize((size, size))
    return torch.from_numpy(np.array(square)).permute(2, 0, 1)


def check_size(size: int) -> None:
    if not 8 <= size <= 1024:
        raise ValueError(f"size must be between 8 and 1024 pixels, {size} was given")


def _read_folder(source: Source, folder: Path, classes: list[str], size: int) -> Pair:
    """The images in a folder that has a folder for each class."""
    files = [(path, label) for label, name in enumerate(classes) for path in _images(folder / name)]
    if not files:
        raise source.damage(folder, "it has no images")
    images = torch.empty(len(files), 3, size, size, dtype=torch.uint8)
    for image, (path, _) in zip(images, files, strict=True):
        with source.reading(path):
            image.copy_(read_image(path, size))
    return images, torch.tensor([label for _, label in files])


def _images(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*") if path.suffix.lower() in _KINDS)


def _classes(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_dir())


_IMAGENETTE_FILES = ("train/n*/*.JPEG", "val/n*/*.JPEG")
IMAGENETTE = Source(
    "Imagenette",
    "https://github.com/fastai/imagenette",
    tuple(Layout(folder, _IMAGENETTE_FILES) for folder in ("imagenette2-160", "imagenette2-320", "imagenette2")),
)


@dataclass(frozen=True)
class Imagenette:
    """Imagenette: 13,394 photographs of ImageNet, 10 classes that are easily told apart."""

    size: int = 64  # pixels per side to which photographs are cropped and scaled
    model: Architecture = GnLeNet()
    precision: Precision = "float32"
    augment: bool = False  # shift and mirror training images at random
    root: str | None = None  # the directory with data sets; by default the one that --data or GOSSAMER_DATA names

    source: ClassVar[Source] = IMAGENETTE

    def __post_init__(self) -> None:
        check_size(self.size)

    def arrays(self) -> Arrays:
        folder = self.source.find(self.root).folder
        classes = _classes(folder / "train")
        train, test = (_read_folder(self.source, folder / part, classes, self.size) for part in ("train", "val"))
        return Arrays(train, test, (3, self.size, self.size), len(classes))

    def load(self) -> Supervised:
        return task_of(self, self.arrays(), prepare=NORMALIZE, augment=crop_and_flip if self.augment else None)


@dataclass(frozen=True)
class ImageFolder:
    """Your own images: one folder per class, inside folders train and test or all in one, which is then divided."""

    folder: str  # inside the directory with data
    size: int = 32  # pixels per side to which images are cropped and scaled
    test_share: float = 0.2  # if there are no folders train and test; which images is fixed
    model: Architecture = GnLeNet()
    precision: Precision = "float32"
    augment: bool = False  # shift and mirror training images at random
    root: str | None = None  # the directory with data sets; by default the one that --data or GOSSAMER_DATA names

    def __post_init__(self) -> None:
        own(self.folder)
        check_size(self.size)
        check_share(self.test_share)

    @property
    def source(self) -> Source:
        return own(self.folder, "*/*")

    def arrays(self) -> Arrays:
        folder = self.source.find(self.root).folder
        parts = [folder / name for name in ("train", "test", "val") if (folder / name).is_dir()][:2]
        divided = len(parts) == 2
        classes = _classes(parts[0] if divided else folder)
        if divided:
            train, test = (_read_folder(self.source, part, classes, self.size) for part in parts)
        else:
            images, labels = _read_folder(self.source, folder, classes, self.size)
            with self.source.reading(folder):
                kept, held = fixed_split(len(labels), self.test_share)
            train, test = (images[kept], labels[kept]), (images[held], labels[held])
        return Arrays(train, test, (3, self.size, self.size), len(classes))

    def load(self) -> Supervised:
        return task_of(self, self.arrays(), prepare=NORMALIZE, augment=crop_and_flip if self.augment else None)
