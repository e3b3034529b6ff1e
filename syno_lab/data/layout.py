"""Find the folders of the parts and of the classes in a folder of images, for the usual forms of data sets.

A part has a usual name (``train``, ``Training``, ``training_set``, ``seg_train``; ``val``, ``valid``, ``Testing``, …).
Each folder may be inside one more folder, as in an unpacked archive. A folder that can be read in two ways is refused.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from syno_lab.errors import DataError
from syno_lab.inputs import printable, read_text

#: The suffixes of image files, in lower case.
SUFFIXES = (".jpeg", ".jpg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff",
            ".ppm", ".pgm", ".pbm", ".pnm", ".pfm")  # fmt: skip
#: Names of folders that systems and programs add, in lower case; such folders and hidden folders are no classes.
NO_CLASSES = frozenset(("__macosx", "__pycache__", "@eadir", "#recycle", "@recycle", "$recycle.bin", "lost+found"))
FORM = "class folders, or train and val with class folders in each,"

_PARTS = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "dev": "val",
          "test": "test", "testing": "test", "eval": "test", "evaluation": "test"}  # fmt: skip
_ADDED = re.compile(r"(?<=.)(set|data|dataset|images|split)?\d*$")  # test_set, test1, val2017
_REMEDY = "put each class's images into a folder of its name"
_MOST_LOOKED = 200_000  # The most entries that are checked for a folder's first image.
_MOST_BYTES = 1 << 26  # The largest size of a file of annotations, in bytes.

#: The folder of each class, or the images of each class where a file of annotations names them.
Classes = Mapping[str, Path | Sequence[Path]]


class Layout(NamedTuple):
    """The classes of the two parts, with the same names in the same order; ``test`` is None without a test folder.

    ``parts``: the names of the parts' folders; ``unread``: the names of folders that are neither parts nor classes.
    """

    train: Classes
    test: Classes | None = None
    parts: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


def find_layout(path: Path) -> Layout:
    """Find the parts and the classes in ``path``; read no more directory entries than necessary.

    Raises DataError for an unknown form, an ambiguous folder, fewer than two classes, classes that only one part has,
    and a folder that cannot be read.
    """
    try:
        root, inside = _inner(path)
        parts = _parts(root, inside)
        if not parts:
            return Layout(_classes(root, inside), unread=_beside(inside))
        train, test = _of_part(parts[0], 2), _of_part(parts[1], 1)
        unread = _beside(parts) + _beside([entry for entry in train.values() if isinstance(entry, Path)])
        return Layout(train, _same(train, test, parts), tuple(part.name for part in parts), unread)
    except OSError as error:
        raise DataError(f"{error.filename or path}: expected images, found: {error.strerror or error}") from None


def images(folder: Path, *, is_deep: bool = False, most: int | None = None) -> Iterator[Path]:
    """Yield the images in ``folder``, with ``is_deep`` in subfolders too; read at most ``most`` entries (None: all).

    Links that lead to a parent folder are not followed.
    """
    visited = {parent.resolve() for parent in (*folder.absolute().parents, *folder.resolve().parents)}
    todo, looked = [folder], 0
    while todo:
        current = todo.pop()
        if (resolved := current.resolve()) in visited:
            continue
        visited.add(resolved)
        with os.scandir(current) as entries:
            for entry in entries:
                looked += 1
                if most is not None and looked > most:
                    return
                if _can_be_class(entry):
                    todo += [Path(entry)] if is_deep else []
                elif entry.name.lower().endswith(SUFFIXES) and not entry.name.startswith("."):
                    yield Path(entry)


def holds_images(folder: Path) -> bool:
    """Return whether ``folder`` or a subfolder has an image."""
    return _is_flat(folder) or next(images(folder, is_deep=True, most=_MOST_LOOKED), None) is not None


def _can_be_class(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir() and not entry.name.startswith(".") and entry.name.lower() not in NO_CLASSES
    except OSError:  # the system refuses links in a circle
        return False


def _folders(root: Path) -> list[Path]:
    with os.scandir(root) as entries:
        return sorted(Path(entry) for entry in entries if _can_be_class(entry))


def _holding(root: Path) -> Iterator[Path]:
    """Yield the folders in ``root`` that hold images, in the order of their names."""
    return (folder for folder in _folders(root) if holds_images(folder))


def _beside(used: Sequence[Path]) -> tuple[str, ...]:
    """Return the names of the folders beside the ``used`` folders, without empty folders."""
    unused = (folder for folder in _folders(used[0].parent) if folder not in used) if used else ()
    return tuple(folder.name for folder in unused if any(folder.iterdir()))


def _is_flat(folder: Path) -> bool:
    return next(images(folder), None) is not None


def _inner(root: Path, *, is_part: bool = False) -> tuple[Path, list[Path]]:
    """Return the innermost folder that contains all images and is not a part, and its folders with images."""
    inside = list(_holding(root))
    while len(inside) == 1 and not _is_flat(inside[0]) and (is_part or not _kind(inside[0], is_whole=True)):
        root, inside = inside[0], list(_holding(inside[0]))
    return root, inside


def _kind(folder: Path, *, is_whole: bool) -> str | None:
    """Return the part (training or test) that a folder's name means; ``is_whole``: read the name as a single word."""
    words = re.split(r"[\W_]+", folder.name.lower())
    parts = {_PARTS.get(_ADDED.sub("", word)) for word in (["".join(words)] if is_whole else words)} - {None}
    return parts.pop() if len(parts) == 1 else None


def _parts(root: Path, inside: Sequence[Path]) -> list[Path]:
    """Return the folders of the training and test parts in ``inside``; an empty list if these are class folders."""
    for is_whole in (True, False):
        kinds = {folder: kind for folder in inside if (kind := _kind(folder, is_whole=is_whole))}
        deep = [folder for folder in kinds if next(_holding(folder), None) is not None]
        flat = _few(folder for folder in kinds if folder not in deep)
        train, val, test = ([folder for folder in deep if kinds[folder] == kind] for kind in ("train", "val", "test"))
        if train and (val or test or is_whole):
            for part in (train, val or test):
                if len(part) > 1:
                    raise DataError(f"expected {FORM} in {root}, found {_few(part)} for one part; move the others")
            if not val and not test:
                actual = f"images directly in {flat}" if flat else "neither with images"
                raise DataError(
                    f"expected val or test with class folders beside {train[0].name} in {root}, found {actual}; "
                    f"{_REMEDY}, or name {train[0]}: then every fifth image of it is a test image"
                )
            return [*train, *(val or test)]
        if is_whole and {"train"} < set(kinds.values()):
            raise DataError(f"expected {FORM} in {root}, found images directly in {flat}; {_REMEDY}")
    return []


def _of_part(folder: Path, least: int) -> Classes:
    root, inside = _inner(folder, is_part=True)
    files = [file for file in root.iterdir() if file.name.endswith("annotations.txt")]
    if len(files) != 1 or len(inside) != 1:
        return _classes(root, inside, least)
    # In the form of Tiny ImageNet, a line begins with the name of a file and its class.
    lines = (line.split() for line in read_text(files[0], _MOST_BYTES, "replace").splitlines())
    names = {words[0]: words[1] for words in lines if len(words) > 1}
    by_class: dict[str, list[Path]] = {}
    for img in sorted(images(inside[0])):
        if img.name not in names:
            raise DataError(f"expected the class of each image of {inside[0]} in {files[0]}, found none for {img.name}")
        by_class.setdefault(names[img.name], []).append(img)
    return by_class


def _classes(root: Path, inside: Sequence[Path], least: int = 2) -> Classes:
    for path in inside:
        if not _is_flat(path) and len(deeper := list(_holding(path))) > 1:
            raise DataError(
                f"expected {FORM} in {root}, found images in folders of {path.name} ({_few(deeper)}), which could be "
                f"classes too; name the folder whose folders are the classes, or {_REMEDY}"
            )
    if len(inside) < least:
        problems = [f"{_few(inside)} alone"] if inside else []
        problems += [f"{number} images directly in it"] if (number := sum(1 for _ in images(root))) else []
        actual = " and ".join((*problems, *(file.name for file in sorted(root.glob("*.csv"))[:1]))) or "none"
        raise DataError(f"expected {FORM} of two classes or more in {root}, found {actual}; {_REMEDY}")
    return {folder.name: folder for folder in inside}


def _same(train: Classes, test: Classes, parts: Sequence[Path]) -> Classes:
    """Return the test part with the class names and order of the training part; names may differ in capitals."""
    is_same = train.keys() == test.keys()

    def key(name: str) -> str:
        return name if is_same else unicodedata.normalize("NFC", name).casefold().strip()

    ours, theirs = ({key(name): name for name in classes} for classes in (train, test))
    if ours.keys() == theirs.keys() and len(ours) == len(train) and len(theirs) == len(test):
        return {name: test[theirs[folded]] for folded, name in ours.items()}
    only = ((train.keys() - test.keys(), parts[0].name), (test.keys() - train.keys(), parts[1].name))
    actual = " and ".join(f"{_few(names)} in {part} only" for names, part in only if names)
    raise DataError(f"expected the class folders of {parts[0]} in {parts[1]} too, found {actual}; add or remove images")


def _few(of: Iterable[Path | str]) -> str:
    """Return a few names for a message, and the number of further names."""
    names = sorted(printable(Path(path).name, 40) for path in of)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
