"""A folder's own size: pictures are used at the most common size, and networks that need another size get it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import TensorDataset

from syno_lab.data.datasets import load_dataset
from syno_lab.data.image_folder import SIZE, find_image_folder
from syno_lab.data.stream import stream_of
from syno_lab.errors import SpecError
from syno_lab.experiments.own import choose, with_data, with_model
from syno_lab.trial import TrialRequest, run_trial
from syno_lab.trial.examples import plan_of_data
from syno_lab.trial.facts import facts_of

REQUEST = TrialRequest(backbone="", batch_size=64, epochs=1, threads=1)


def draw(folder: Path, width: int, height: int, *, classes: int = 6, each: int = 50, first: int = 0) -> Path:
    """Pictures in class folders, each a rectangle whose place is its class, on noise."""
    rng = np.random.default_rng(first)
    for label in range(classes):
        (folder / f"c{label}").mkdir(parents=True, exist_ok=True)
        for number in range(first, first + each):
            pixels = rng.integers(0, 90, (height, width, 3), np.uint8)
            pixels[: height // 2, label * width // classes : (label + 1) * width // classes] = 220
            Image.fromarray(pixels).save(folder / f"c{label}" / f"{number:03}.png")
    return folder


def net(head: int | None = None, classes: int = 6) -> nn.Module:
    """Three convolutions, with a linear layer behind a plane of ``head``, or behind its mean."""
    behind = [nn.AdaptiveAvgPool2d(1)] if head is None else []
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4)),
        *(nn.Conv2d(8, 8, 3, padding=1), *behind, nn.Flatten()),
        nn.Linear(8 if head is None else 8 * (head // 4) ** 2, classes),
    )


def test_pictures_are_used_at_their_own_size(tmp_path: Path) -> None:
    folder = draw(tmp_path / "drawn", 40, 40)
    assert load_dataset(folder).train_images.shape == (240, 3, 40, 40)
    pixels = np.asarray(Image.open(folder / "c2" / "007.png")).transpose(2, 0, 1)
    data = load_dataset(folder)
    assert (data.train_images == pixels).all((1, 2, 3)).any(), "of their own size, pixels stay as they are"
    request = with_data(with_model(REQUEST, net()), folder)  # a Path, as a text
    assert plan_of_data(request)[0] == "300 images, 40x40, 6 classes, 240/60, 4 batches an epoch"
    assert "another size" not in plan_of_data(request)[1]
    said: list[str] = []
    found = choose(request, say=said.append)
    assert (found.request.resolution, found.sites[0].height) == (None, 40)
    assert not any("scaled" in line for line in said)
    draw(folder, 30, 44, each=2, first=50)
    short, rest = plan_of_data(request)
    assert short == "312 images, 40x40, 6 classes, 252/60, 4 batches an epoch"
    assert rest.endswith("; 12 images have another size: they are scaled and cropped to 40x40")
    assert facts_of(request).size == 40


def test_oblong_pictures_stay_oblong(tmp_path: Path) -> None:
    folder = draw(tmp_path / "wide", 24, 16, classes=2, each=10)
    tall = Image.open(folder / "c0" / "000.png").transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[274] = 6  # a viewer turns it by a quarter, to 16x24
    tall.save(folder / "c0" / "turned.jpg", exif=exif)
    assert find_image_folder(folder).sizes == {(16, 24): 21}
    held, streamed = load_dataset(folder), stream_of(find_image_folder(folder))
    assert held.image_shape == streamed.image_shape == (3, 16, 24)
    request = choose(with_data(with_model(REQUEST, net(None, 2)), folder)).request
    assert plan_of_data(request)[0] == "21 images, 16x24, 2 classes, 17/4, 1 batch an epoch"
    assert run_trial(request, folder=tmp_path / "trial").state == "finished"
    lab = TrialRequest(backbone="resnet20", options={"width": 4, "blocks": 1}, data=str(folder), epochs=1)
    assert run_trial(lab, folder=tmp_path / "lab").state == "finished"


def test_photos_of_many_sizes_have_the_usual_size(tmp_path: Path) -> None:
    for number in range(3):
        draw(tmp_path / "photos", 300 + number, 260, classes=2, each=5, first=5 * number)
    assert find_image_folder(tmp_path / "photos").size == (SIZE, SIZE)
    small = tmp_path / "small"
    for number in range(3):
        draw(small, 20 + number, 20, classes=2, each=5 + number, first=10 * number)
    assert find_image_folder(small).size == (20, 22)


def test_a_network_that_needs_a_size_gets_it(tmp_path: Path) -> None:
    folder = draw(tmp_path / "drawn", 40, 40, classes=2, each=5)
    said: list[str] = []
    found = choose(with_data(with_model(REQUEST, lambda: net(64, 2)), folder), say=said.append)
    assert found.request.resolution == 64
    assert said[0].startswith("the images are scaled to 64x64, which the network needs: ")
    assert facts_of(found.request).size == 64
    with pytest.raises(SpecError, match=r"give resolution=SIZE \(--resolution SIZE\)$") as refused:
        choose(with_data(with_model(REQUEST, lambda: net(52, 2)), folder))
    assert "\n" not in str(refused.value)


def test_the_first_line_of_a_plan_of_any_data(tmp_path: Path) -> None:
    digits = TrialRequest(backbone="resnet20", data="digits", train_images=100, test_images=50)
    assert plan_of_data(digits) == ["150 images, 8x8, 10 classes, 100/50, 2 batches an epoch"]
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 100)
    (line,) = plan_of_data(TrialRequest(backbone="gpt_tiny", data=str(text), options={"context": 16}))
    assert line == "4,500 tokens of text, 256 different ones, windows of 16 tokens, 4,050/450, 100 batches an epoch"
    pairs = TensorDataset(torch.zeros(20, 16), torch.arange(20) % 4)
    own = with_data(with_model(REQUEST, nn.Linear(16, 4)), (pairs, pairs))
    assert plan_of_data(own) == ["40 examples, 16, 4 classes, 20/20, 1 batch an epoch"]
