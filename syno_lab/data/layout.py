"""Which folders of images are the parts and which the classes, in the forms in which data sets lie about.

A part has a usual name (``train``, ``Training``, ``training_set``, ``seg_train``; ``val``, ``valid``, ``Testing``, …),
and each folder may lie in a further one, as of an unpacked archive. A form that could mean two things is refused.
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

#: The ends of images' names, in small letters.
SUFFIXES = (".jpeg", ".jpg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff",
            ".ppm", ".pgm", ".pbm", ".pnm", ".pfm")  # fmt: skip
#: Folders that systems and programs put beside the user's, in small letters; hidden ones are no classes either.
NO_CLASSES = frozenset(("__macosx", "__pycache__", "@eadir", "#recycle", "@recycle", "$recycle.bin", "lost+found"))
FORM = "class folders, or train and val with class folders in each,"

_PARTS = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "dev": "val",
          "test": "test", "testing": "test", "eval": "test", "evaluation": "test"}  # fmt: skip
_ADDED = re.compile(r"(?<=.)(set|data|dataset|images|split)?\d*$")  # test_set, test1, val2017
_REMEDY = "put each class's images into a folder of its name"
_MOST_LOOKED = 200_000  # entries that are looked at for the first image of a folder
_MOST_BYTES = 1 << 26  # of a file of annotations

#: For each class its folder, or its images where a file of annotations names them.
Classes = Mapping[str, Path | Sequence[Path]]


class Layout(NamedTuple):
    """The classes of both parts by the same names in order; ``test`` is None where no folder says which it is.

    ``parts``: the names of their folders; ``unread``: those of other folders beside parts and classes.
    """

    train: Classes
    test: Classes | None = None
    parts: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


def find_layout(path: Path) -> Layout:
    """Find the parts and the classes in ``path``; folders are read only as far as that needs.

    Raises DataError for another form, a form that could mean two things, fewer than two classes, classes that only one
    part has, and a folder that cannot be read.
    """
    try:
        root, inside = _inner(path)
        parts = _parts(root, inside)
        if not parts:
            return Layout(_classes(root, inside), unread=_beside(inside))
        train, test = _of_part(parts[0], 2), _of_part(parts[1], 1)
        unread = _beside(parts) + _beside([one for one in train.values() if isinstance(one, Path)])
        return Layout(train, _same(train, test, parts), tuple(one.name for one in parts), unread)
    except OSError as error:
        raise DataError(f"{error.filename or path}: expected images, found: {error.strerror or error}") from None


def images(folder: Path, *, is_deep: bool = False, most: int | None = None) -> Iterator[Path]:
    """The image files in ``folder`` and, if ``is_deep``, in its folders, among the first ``most`` entries (None: all).

    Links that lead back to a folder above are not followed.
    """
    seen = {one.resolve() for one in (*folder.absolute().parents, *folder.resolve().parents)}
    todo, looked = [folder], 0
    while todo:
        here = todo.pop()
        if (place := here.resolve()) in seen:
            continue
        seen.add(place)
        with os.scandir(here) as entries:
            for entry in entries:
                looked += 1
                if most is not None and looked > most:
                    return
                if _can_be_class(entry):
                    todo += [Path(entry)] if is_deep else []
                elif entry.name.lower().endswith(SUFFIXES) and not entry.name.startswith("."):
                    yield Path(entry)


def holds_images(folder: Path) -> bool:
    """Whether an image is found in ``folder`` or in its folders."""
    return _is_flat(folder) or next(images(folder, is_deep=True, most=_MOST_LOOKED), None) is not None


def _can_be_class(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir() and not entry.name.startswith(".") and entry.name.lower() not in NO_CLASSES
    except OSError:  # links in a circle
        return False


def _folders(root: Path) -> list[Path]:
    with os.scandir(root) as entries:
        return sorted(Path(entry) for entry in entries if _can_be_class(entry))


def _holding(root: Path) -> Iterator[Path]:
    """The folders in ``root`` that hold images, in order."""
    return (one for one in _folders(root) if holds_images(one))


def _beside(used: Sequence[Path]) -> tuple[str, ...]:
    """The names of the folders beside these, but for empty ones."""
    others = (one for one in _folders(used[0].parent) if one not in used) if used else ()
    return tuple(one.name for one in others if any(one.iterdir()))


def _is_flat(folder: Path) -> bool:
    return next(images(folder), None) is not None


def _inner(root: Path, *, is_part: bool = False) -> tuple[Path, list[Path]]:
    """``root`` or, where all is in folders of a single one that is no part, that one; and its folders with images."""
    inside = list(_holding(root))
    while len(inside) == 1 and not _is_flat(inside[0]) and (is_part or not _kind(inside[0], is_whole=True)):
        root, inside = inside[0], list(_holding(inside[0]))
    return root, inside


def _kind(folder: Path, *, is_whole: bool) -> str | None:
    """The part that a folder's name says as a whole, or else by one of its words."""
    words = re.split(r"[\W_]+", folder.name.lower())
    found = {_PARTS.get(_ADDED.sub("", word)) for word in (["".join(words)] if is_whole else words)} - {None}
    return found.pop() if len(found) == 1 else None


def _parts(root: Path, inside: Sequence[Path]) -> list[Path]:
    """The folders of the training part and of the test part among ``inside``; none where these are class folders."""
    for is_whole in (True, False):
        kinds = {one: kind for one in inside if (kind := _kind(one, is_whole=is_whole))}
        deep = [one for one in kinds if next(_holding(one), None) is not None]
        flat = _said(one for one in kinds if one not in deep)
        train, val, test = ([one for one in deep if kinds[one] == kind] for kind in ("train", "val", "test"))
        if train and (val or test or is_whole):
            for of in (train, val or test):
                if len(of) > 1:
                    raise DataError(f"expected {FORM} in {root}, found {_said(of)} for one part; move the others away")
            if not val and not test:
                found = f"images directly in {flat}" if flat else "neither with images"
                raise DataError(
                    f"expected val or test with class folders beside {train[0].name} in {root}, found {found}; "
                    f"{_REMEDY}, or name {train[0]}: then every fifth image of it is a test image"
                )
            return [*train, *(val or test)]
        if is_whole and {"train"} < set(kinds.values()):
            raise DataError(f"expected {FORM} in {root}, found images directly in {flat}; {_REMEDY}")
    return []


def _of_part(folder: Path, least: int) -> Classes:
    root, inside = _inner(folder, is_part=True)
    files = [one for one in root.iterdir() if one.name.endswith("annotations.txt")]
    if len(files) != 1 or len(inside) != 1:
        return _classes(root, inside, least)
    # Tiny ImageNet's form: a line begins with the name of a file and its class.
    lines = (line.split() for line in read_text(files[0], _MOST_BYTES, "replace").splitlines())
    names = {words[0]: words[1] for words in lines if len(words) > 1}
    found: dict[str, list[Path]] = {}
    for one in sorted(images(inside[0])):
        if one.name not in names:
            raise DataError(f"expected the class of each image of {inside[0]} in {files[0]}, found none for {one.name}")
        found.setdefault(names[one.name], []).append(one)
    return found


def _classes(root: Path, inside: Sequence[Path], least: int = 2) -> Classes:
    for one in inside:
        if not _is_flat(one) and len(deeper := list(_holding(one))) > 1:
            raise DataError(
                f"expected {FORM} in {root}, found images in folders of {one.name} ({_said(deeper)}), which could be "
                f"classes too; name the folder whose folders are the classes, or {_REMEDY}"
            )
    if len(inside) < least:
        found = [f"{_said(inside)} alone"] if inside else []
        found += [f"{number} images directly in it"] if (number := sum(1 for _ in images(root))) else []
        said = " and ".join((*found, *(one.name for one in sorted(root.glob("*.csv"))[:1]))) or "none"
        raise DataError(f"expected {FORM} of two classes or more in {root}, found {said}; {_REMEDY}")
    return {one.name: one for one in inside}


def _same(train: Classes, test: Classes, parts: Sequence[Path]) -> Classes:
    """The test part in the training part's order and by its names, from which its own may differ in capitals."""
    is_same = train.keys() == test.keys()

    def key(name: str) -> str:
        return name if is_same else unicodedata.normalize("NFC", name).casefold().strip()

    ours, theirs = ({key(name): name for name in of} for of in (train, test))
    if ours.keys() == theirs.keys() and len(ours) == len(train) and len(theirs) == len(test):
        return {name: test[theirs[folded]] for folded, name in ours.items()}
    only = ((train.keys() - test.keys(), parts[0].name), (test.keys() - train.keys(), parts[1].name))
    said = " and ".join(f"{_said(of)} in {where} only" for of, where in only if of)
    raise DataError(f"expected the class folders of {parts[0]} in {parts[1]} too, found {said}; add or remove images")


def _said(of: Iterable[Path | str]) -> str:
    """A few names for a message, and how many more there are."""
    found = sorted(printable(Path(one).name, 40) for one in of)
    return ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
