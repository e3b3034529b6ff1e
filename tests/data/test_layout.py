"""Folders of images as they lie about: read where they mean one thing, else refused with what was looked for."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torch import nn

import syno_lab as sl
from syno_lab.cli import main
from syno_lab.data.datasets import load_dataset
from syno_lab.data.image_folder import find_image_folder
from syno_lab.data.layout import find_layout
from syno_lab.data.stream import stream_of
from syno_lab.errors import DataError
from syno_lab.trial import TrialRequest
from syno_lab.trial.examples import plan_of_data
from syno_lab.trial.facts import facts_of


def fill(folder: Path, number: int = 5) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(number):
        Image.fromarray(np.full((6, 6, 3), 40 * i, np.uint8)).save(folder / f"{i}.png")


def classes(root: Path, *names: str, number: int = 5) -> None:
    for name in names:
        fill(root / name, number)


def refused(root: Path, line: str) -> None:
    """Everything that reads a folder refuses it with this line, which is whole and names the folder."""
    for read in (lambda: load_dataset(root, size=4), lambda: find_image_folder(root)):
        with pytest.raises(DataError, match=line) as found:
            read()
        assert "\n" not in str(found.value)
        assert "class" in str(found.value)
        assert str(root) in str(found.value)


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ("train", "val"),
        ("train", "valid"),
        ("train", "validation"),
        ("Training", "Testing"),
        ("TRAIN", "TEST"),
        ("Train", "Val"),
        ("training_set", "test_set"),
        ("trainset", "testset"),
        ("train-images", "val-images"),
        ("train_data", "dev_data"),
        ("train2017", "val2017"),
        ("train", "test1"),
        ("seg_train/seg_train", "seg_test/seg_test"),
        ("train/train", "test/test"),
        ("data/train", "data/val"),
        ("flowers/flowers/training", "flowers/flowers/valid"),
    ],
)
def test_parts_by_their_usual_names(tmp_path, train, test):
    classes(tmp_path / train, "cat", "dog", number=4)
    classes(tmp_path / test, "cat", "dog", number=2)
    found = find_image_folder(tmp_path)
    assert found.classes == tuple(find_layout(tmp_path).train) == ("cat", "dog")
    assert {path.parent.parent for path, _ in found.train} == {tmp_path / train}
    assert {path.parent.parent for path, _ in found.test} == {tmp_path / test}
    assert (len(found.train), len(found.test)) == (8, 4)
    streamed, held = stream_of(found, 4), load_dataset(tmp_path, size=4)
    assert streamed.train_labels.tolist() == held.train_labels.tolist() == [0, 1] * 4
    request = TrialRequest(backbone="resnet20", data=str(tmp_path))
    assert facts_of(request).outputs == 2
    short, line = plan_of_data(request)
    assert short == "12 images, 6x6, 2 classes, 8/4, 1 batch an epoch"
    assert line.startswith(f"{tmp_path}: 2 classes, 8 images to train on from ")
    assert ", 4 to test on from " in line


def test_what_systems_leave_beside_the_classes_is_no_class(tmp_path):
    classes(tmp_path, "cat", "dog")
    classes(tmp_path / "__MACOSX", "cat", "dog")
    for name in ("cat", "dog"):
        (tmp_path / "__MACOSX" / name / "._0.png").write_bytes(b"\0\5\26\7" + b"\0" * 60)
        (tmp_path / name / "._0.png").write_bytes(b"\0\5\26\7")
        (tmp_path / name / "Thumbs.db").write_bytes(b"\xd0\xcf\x11\xe0")
        fill(tmp_path / name / "@eaDir")
        fill(tmp_path / name / ".ipynb_checkpoints")
    for name in ("@eaDir", ".ipynb_checkpoints", "$RECYCLE.BIN", ".hidden"):
        fill(tmp_path / name)
    (tmp_path / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
    (tmp_path / "empty").mkdir()
    (tmp_path / "of_text").mkdir()
    (tmp_path / "of_text" / "notes.txt").write_text("no image")
    assert find_image_folder(tmp_path).unread == ("of_text",)
    found = load_dataset(tmp_path, size=4)
    assert found.classes == ("cat", "dog")
    assert (len(found.train_images), len(found.test_images)) == (8, 2)
    assert facts_of(TrialRequest(backbone="resnet20", data=str(tmp_path))).outputs == 2


def test_an_empty_class_folder_of_one_part_is_said(tmp_path):
    classes(tmp_path / "train", "cat", "dog", "owl")
    classes(tmp_path / "val", "cat", "dog")
    (tmp_path / "val" / "owl").mkdir()
    refused(tmp_path, r"expected the class folders of .*train in .*val too, found owl in train only")
    classes(tmp_path / "val", "hen")
    refused(tmp_path, "found owl in train only and hen in val only")


def tiny(root: Path) -> None:
    """The form of Tiny ImageNet, with two classes."""
    for number, name in enumerate(("n02", "n01")):
        fill(root / "train" / name / "images")
        (root / "train" / name / f"{name}_boxes.txt").write_text(f"{name}_0.JPEG\t0\t0\t62\t62\n")
        for i in range(2):
            file = root / "val" / "images" / f"val_{2 * i + number}.JPEG"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (6, 6), (200 * number,) * 3).save(file)
    lines = [f"val_{i}.JPEG\tn0{2 - i % 2}\t0\t32\t44\t62\n" for i in range(4)]
    (root / "val" / "val_annotations.txt").write_text("".join(lines))
    fill(root / "test" / "images", 2)


def test_tiny_imagenet(tmp_path):
    tiny(tmp_path)
    found = load_dataset(tmp_path, size=4)
    assert found.classes == ("n01", "n02")
    assert (found.train_images.shape, found.test_labels.tolist()) == ((10, 3, 4, 4), [0, 1, 0, 1])
    assert [int(image.mean() > 100) for image in found.test_images] == [1, 0, 1, 0]  # n01 is the bright one
    assert find_image_folder(tmp_path).unread == ("test",)
    notes = tmp_path / "val" / "val_annotations.txt"
    notes.write_text(notes.read_text().replace("val_3.JPEG", "val_9.JPEG"))
    refused(tmp_path, r"expected the class of each image of .*val/images in .*val_annotations.txt, .* val_3.JPEG")
    tiny(tmp_path)
    notes.write_text(notes.read_text().replace("n01", "n07"))
    refused(tmp_path, "found n01 in train only and n07 in val only")


def test_of_three_parts_the_plan_says_which_is_used(tmp_path):
    for part, number in (("train", 4), ("val", 2), ("test", 3)):
        classes(tmp_path / part, "cat", "dog", number=number)
    assert find_image_folder(tmp_path).plan() == (
        f"{tmp_path}: 2 classes, 8 images to train on from train, 4 to test on from val; not read: test"
    )
    (tmp_path / "val").rename(tmp_path / "extra")
    assert find_image_folder(tmp_path).plan().endswith("6 to test on from test; not read: extra")


def test_names_that_differ_in_capitals_are_one_class_and_in_one_part_two(tmp_path):
    classes(tmp_path / "a" / "train", "Cat", "dog")
    classes(tmp_path / "a" / "val", "cat", "Dog")
    found = find_image_folder(tmp_path / "a")
    assert found.classes == ("Cat", "dog")
    assert [(path.parent.name, label) for path, label in found.test[:2]] == [("cat", 0), ("Dog", 1)]
    classes(tmp_path / "b", "a", "A", "b")
    assert tuple(find_layout(tmp_path / "b").train) == ("A", "a", "b")
    classes(tmp_path / "c" / "train", "cat", "Cat")
    classes(tmp_path / "c" / "val", "cat")
    refused(tmp_path / "c", "found Cat in train only")


def test_folders_in_a_class_are_of_the_class(tmp_path):
    classes(tmp_path, "cat", "dog")
    fill(tmp_path / "cat" / "more" / "still", 5)
    fill(tmp_path / "owl" / "images", 5)  # the only folder in it
    found = find_image_folder(tmp_path)
    assert found.classes == ("cat", "dog", "owl")
    assert [label for _, label in found.train].count(0) == 8


def test_links_in_a_circle_and_links_to_classes(tmp_path):
    classes(tmp_path / "data", "cat", "dog")
    fill(tmp_path / "elsewhere")
    (tmp_path / "data" / "owl").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data" / "cat" / "up").symlink_to(tmp_path / "data")
    (tmp_path / "data" / "dog" / "here").symlink_to(".")
    (tmp_path / "data" / "up").symlink_to("..")
    (tmp_path / "data" / "circle").symlink_to("circle")
    (tmp_path / "data" / "gone").symlink_to("nowhere")
    found = find_image_folder(tmp_path / "data")
    assert found.classes == ("cat", "dog", "owl")
    assert (len(found.train), len(found.test)) == (12, 3)


def test_a_class_that_is_called_like_a_part(tmp_path):
    classes(tmp_path, "bus", "car", "train")
    assert tuple(find_layout(tmp_path).train) == ("bus", "car", "train")


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (
            {"cat": 5},
            "of two classes or more in .*, found cat alone; put each class's images into a folder of its name",
        ),
        (
            {".": 5},
            "expected class folders, or train and val with class folders in each, .* found 5 images directly in it",
        ),
        ({"images": 5}, "found images alone"),
        ({"train": 5, "test1": 5}, r"found images directly in test1, train; put each class's images into"),
        ({"train": 5, "test": 5}, r"found images directly in test, train; put each class's images into"),
        (
            {"train/cat": 5, "train/dog": 5},
            "expected val or test with class folders beside train in .*, found neither with images",
        ),
        (
            {"train/cat": 5, "train/dog": 5, "test": 5},
            r"beside train in .*, found images directly in test; .* or name .*train: then every fifth image of it is",
        ),
        ({"train/cat": 5, "val/cat": 5}, "found cat alone"),
        (
            {"Train/a": 5, "Train/b": 5, "training/a": 5, "val/a": 5},
            "found Train, training for one part; move the others",
        ),
        ({"train/a": 5, "val/a": 5, "valid/b": 5}, "found val, valid for one part"),
        (
            {"animals/cat": 5, "animals/dog": 5, "plants/rose": 5, "plants/tulip": 5},
            r"found images in folders of animals \(cat, dog\), which could be classes too; name the folder",
        ),
        (
            {"cat/train": 5, "cat/val": 5, "dog/train": 5, "dog/val": 5},
            r"found images in folders of cat \(train, val\)",
        ),
        ({"a/train/x": 5, "a/val/x": 5, "b/train/x": 5, "b/val/x": 5}, r"in folders of a \(train, val\)"),
    ],
)
def test_what_could_mean_two_things_is_refused_with_the_form(tmp_path, made, line):
    for name, number in made.items():
        fill(tmp_path / name, number)
    refused(tmp_path, line)
    with pytest.raises(DataError, match=line):
        facts_of(TrialRequest(backbone="resnet20", data=str(tmp_path)))


def test_a_table_of_labels_and_many_names_are_said_shortly(tmp_path):
    fill(tmp_path / "flat", 3)
    (tmp_path / "flat" / "labels.csv").write_text("0.png,cat\n")
    refused(tmp_path / "flat", "found 3 images directly in it and labels.csv; put each class's images")
    classes(tmp_path / "many" / "train", *(f"c{i:03}\x1b[2J" for i in range(200)), number=1)
    classes(tmp_path / "many" / "val", "a", "b", number=1)
    refused(tmp_path / "many", "and 197 more in train only and a, b in val only")


def test_a_folder_without_images_is_refused_with_both_forms(tmp_path):
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "notes.txt").write_text("no image")
    with pytest.raises(DataError, match=r"or class folders of images, or train and val .* found cat; name a folder"):
        load_dataset(tmp_path)


def test_a_training_says_what_it_reads_of_a_folder(tmp_path, capsys):
    data = tmp_path / "data"
    classes(data / "Training", "cat", "dog")
    classes(data / "valid", "cat", "dog")
    for name in ("cat", "dog"):
        Image.new("RGBA", (6, 6), (0, 0, 0, 0)).save(data / "Training" / name / "clear.png")
    options = ["--resolution", "8", "--epochs", "1", "--width", "4", "--folder", str(tmp_path / "out")]
    assert main(["train", "baseline", "--data", str(data), *options]) == 0
    assert (
        f"{data}: 2 classes, 12 images to train on from Training, 10 to test on from valid; "
        "22 images have another size: they are scaled and cropped to 8x8; "
        "transparent pixels become white, as in clear.png\n"
    ) in capsys.readouterr().out


def test_a_folder_of_files_that_are_no_images_is_said_to_be_unread(tmp_path):
    for part in ("train", "val"):
        classes(tmp_path / part, "cat", "dog")
        (tmp_path / part / "owl").mkdir()
        (tmp_path / part / "owl" / "a.heic").write_bytes(b"of a telephone")
    assert find_image_folder(tmp_path).plan().endswith("; not read: owl")


class Net(nn.Module):
    """Two convolutions and a head, for images of three channels."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1), nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.b(self.a(x).relu()).relu().mean((2, 3)))


def test_the_plan_of_a_search_says_what_it_reads_of_a_folder(tmp_path):
    class PlannedError(Exception):
        pass

    def say(line: str) -> None:
        said.append(line)
        if "are replaced" in line:
            raise PlannedError

    said: list[str] = []
    classes(tmp_path / "data" / "train", "cat", "dog")
    classes(tmp_path / "data" / "test", "cat", "dog")
    Image.new("LA", (6, 6)).save(tmp_path / "data" / "train" / "cat" / "clear.png")
    with pytest.raises(PlannedError):
        sl.improve(Net, str(tmp_path / "data"), minutes=0.1, folder=tmp_path / "lab", epochs=1, batch_size=4, say=say)
    network = next(place for place, line in enumerate(said) if "FLOPs for one example" in line)
    assert said[network - 2] == "21 images, 6x6, 2 classes, 11/10, 3 batches an epoch"
    assert said[network - 1] == (  # where the machine is busy, lines of progress are said before the plan
        f"{tmp_path / 'data'}: 2 classes, 11 images to train on from train, 10 to test on from test; "
        "transparent pixels become white, as in clear.png"
    )
