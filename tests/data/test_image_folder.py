"""Images in class folders: found, scaled, dealt out in turn, and refused where they are none."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import syno_lab.data.image_folder as room
from syno_lab.data.datasets import is_class_folders, load_dataset
from syno_lab.data.image_folder import find_image_folder
from syno_lab.errors import DataError
from syno_lab.trial import TrialRequest, costs_of, run_trial

COLOURS = {"blue": (0, 0, 255), "green": (0, 255, 0), "red": (255, 0, 0)}


def painted(path: Path, colour: tuple[int, int, int], size: tuple[int, int] = (12, 8)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


@pytest.fixture
def folder(tmp_path) -> Path:
    """Six training and two test images of each of three colours."""
    for name, colour in COLOURS.items():
        for number in range(6):
            painted(tmp_path / "data" / "train" / name / f"{number}.png", colour)
        for number in range(2):
            painted(tmp_path / "data" / "val" / name / f"{number}.png", colour)
        (tmp_path / "data" / "train" / name / "notes.txt").write_text("no image")
    return tmp_path / "data"


def test_images_are_read_with_their_classes_in_turn(folder):
    data = load_dataset(folder, size=4)
    assert data.classes == ("blue", "green", "red")
    assert (data.name, data.source) == ("data", str(folder))
    assert data.train_images.shape == (18, 3, 4, 4)
    assert data.test_images.shape == (6, 3, 4, 4)
    assert data.train_labels.tolist() == [0, 1, 2] * 6
    assert data.test_labels.tolist() == [0, 1, 2] * 2
    for image, label in zip(data.train_images, data.train_labels, strict=True):
        assert (image == np.array(COLOURS[data.classes[label]], np.uint8)[:, None, None]).all()
    few = load_dataset(folder, size=4, train_images=4, test_images=3)
    assert few.train_labels.tolist() == [0, 1, 2, 0]
    assert few.test_labels.tolist() == [0, 1, 2]
    own = load_dataset(folder, train_images=1, test_images=1)
    assert own.image_shape == (3, 8, 12)
    assert (own.train_images == np.array(COLOURS["blue"], np.uint8)[:, None, None]).all()


def test_the_middle_of_the_longer_side_is_taken(tmp_path):
    pixels = np.zeros((4, 12, 3), np.uint8)
    pixels[:, 4:8] = 200  # left and right are cut off
    for name in ("a", "b"):
        for number in range(5):
            painted(tmp_path / name / f"{number}.png", (0, 0, 0))
            Image.fromarray(pixels).save(tmp_path / name / f"{number}.png")
    assert (load_dataset(tmp_path, size=4).train_images == 200).all()


def test_without_parts_every_fifth_image_is_for_tests(tmp_path):
    for name in ("a", "b"):
        for number in range(10):
            painted(tmp_path / name / f"{number}.png", (number, 0, 0))
    found = find_image_folder(tmp_path)
    assert sorted({path.name for path, _ in found.test}) == ["4.png", "9.png"]
    assert len(found.train) == 16
    assert not {path for path, _ in found.train} & {path for path, _ in found.test}


def test_other_forms_of_image_are_made_rgb(tmp_path):
    palette = Image.new("P", (6, 6), 1)
    palette.putpalette([0, 0, 0, 9, 9, 9])
    plain = Image.new("RGB", (6, 6), (9, 9, 9))
    for name, image in (("grey", plain.convert("L")), ("clear", plain.convert("RGBA")), ("palette", palette)):
        for number in range(5):
            (tmp_path / name).mkdir(exist_ok=True)
            image.save(tmp_path / name / f"{number}.png")
    assert (load_dataset(tmp_path, size=3).train_images == 9).all()


def test_a_network_learns_colours_at_another_resolution(folder, tmp_path):
    request = TrialRequest(
        backbone="resnet20", options={"width": 4, "blocks": 1}, data=str(folder), resolution=8, epochs=4, batch_size=6
    )
    outcome = run_trial(request, folder=tmp_path / "trial")
    assert outcome.state == "finished"
    assert outcome.best_accuracy == 1.0
    double = TrialRequest(
        backbone="resnet20", options={"width": 4, "blocks": 1}, data=str(folder), resolution=16, epochs=6
    )
    # The linear layer alone does not see the resolution: 2 * 16 channels * 3 classes.
    assert costs_of(double)[0] - 96 == 4 * (outcome.flops - 96)


def test_what_is_no_image_folder_is_refused(folder, tmp_path):
    (tmp_path / "empty").mkdir()
    assert not is_class_folders(tmp_path / "empty")
    assert not is_class_folders(tmp_path / "nothing")
    with pytest.raises(DataError, match=r"expected class folders, .* in .*empty, found none"):
        find_image_folder(tmp_path / "empty")
    (folder / "train" / "white").mkdir()
    painted(folder / "train" / "white" / "0.png", (255, 255, 255))
    with pytest.raises(
        DataError, match=r"expected the class folders of .*train in .*val too, found white in train only"
    ):
        load_dataset(folder, size=4)
    (folder / "val").rename(folder / "other")
    with pytest.raises(DataError, match="expected val or test with class folders beside train"):
        load_dataset(folder, size=4)
    for name in ("a", "b"):
        painted(tmp_path / "few" / name / "0.png", (0, 0, 0))
    with pytest.raises(DataError, match="expected images to test on, found none"):
        load_dataset(tmp_path / "few", size=4)


def test_a_damaged_image_and_too_many_images_are_refused(folder, monkeypatch):
    with pytest.raises(DataError, match="expected train_images as a whole number from 1 up, found 0"):
        load_dataset(folder, size=4, train_images=0)
    with pytest.raises(DataError, match="expected size as a whole number from 1 up, found -1"):
        load_dataset(folder, size=-1)
    victim = folder / "train" / "red" / "3.png"
    victim.write_bytes(victim.read_bytes()[:40])
    with pytest.raises(DataError, match=r"red/3\.png: expected an image, found: .*; remove it"):
        load_dataset(folder, size=4)
    victim.write_bytes(b"<html>")
    with pytest.raises(DataError, match=r"red/3\.png: expected an image, found: cannot identify image file; remove it"):
        load_dataset(folder, size=4)
    monkeypatch.setattr(room, "psutil", type("Machine", (), {"virtual_memory": lambda: Memory}))
    with pytest.raises(DataError, match=r"expected memory for 24 images of 8x12, 0.0 GiB, found 0.0; take fewer"):
        load_dataset(folder)


class Memory:
    available = 1000
