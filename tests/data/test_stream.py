"""Images that are decoded while a network trains: the same as those in memory, whatever the processes do."""

from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from PIL import Image
from torch import nn

from syno_lab.data.datasets import load_dataset
from syno_lab.data.image_folder import LEAST_AREA, MOST_SIDES, crop_box, find_image_folder, resized_crop
from syno_lab.data.stream import CHOICES, ImageStream, stream_of
from syno_lab.errors import DataError, TrainingError
from syno_lab.training import train
from syno_lab.training.tasks import augmentation, resized_crop_and_flip, task_of
from syno_lab.trial import TrialRequest, examples, run_trial

CPU = torch.device("cpu")


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def folder(tmp_path) -> Path:
    """Ten images each of two classes, of noise; every fifth is for tests."""
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for number in range(10):
            pixels = rng.integers(0, 256, (8, 8, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / "data" / name / f"{number}.png")
    return tmp_path / "data"


def stream(folder: Path) -> ImageStream:
    return stream_of(find_image_folder(folder), 8)


def epoch(task, seed: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    task.start_epoch(draw)
    parts = [task.train_batch(number, torch.float32, draw) for number in range(task.train_batches)]
    return torch.cat([images for images, _ in parts]), torch.cat([labels for _, labels in parts])


@pytest.mark.parametrize("augment", ["none", "crop"])
def test_streamed_batches_are_those_of_images_in_memory(folder, augment):
    children = psutil.Process().children
    before = set(children())
    here, there = (task_of(one, CPU, 5, augment) for one in (load_dataset(folder, size=8), stream(folder)))
    for seed in (3, 4):
        for held, streamed in zip(epoch(here, seed), epoch(there, seed), strict=True):
            torch.testing.assert_close(streamed, held)
    for number in range(here.test_batches):
        for held, streamed in zip(*(one.test_batch(number, torch.float32) for one in (here, there)), strict=True):
            torch.testing.assert_close(streamed, held)
    assert set(children()) - before
    there.close()
    assert not set(children()) - before
    held_out = [one.holding_out(0.25) for one in (load_dataset(folder, size=8), stream(folder))]
    assert held_out[0].test_labels.tolist() == held_out[1].test_labels.tolist()
    assert held_out[0].train_labels.tolist() == held_out[1].train_labels.tolist()


def test_what_is_seen_of_each_image_comes_from_the_seed(folder):
    found = []
    for seed in (1, 1, 2):
        task = task_of(stream(folder), CPU, 5, "resized-crop")
        images, labels = epoch(task, seed)
        task.close()
        found.append(images)
        assert images.shape == (16, 3, 8, 8)
        assert sorted(labels.tolist()) == [0] * 8 + [1] * 8
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_crops_are_parts_of_the_image():
    rng = np.random.default_rng(1)
    shares, mirrored = [], 0
    for choices in rng.random((500, CHOICES)):
        (left, top, right, bottom), mirror = crop_box(40, 30, choices)
        assert -1e-9 <= left < right <= 40 + 1e-9
        assert -1e-9 <= top < bottom <= 30 + 1e-9
        shares.append((right - left) * (bottom - top) / 1200)
        whole = right - left < 40 - 1e-9 and bottom - top < 30 - 1e-9
        assert not whole or 1 / MOST_SIDES - 1e-9 <= (right - left) / (bottom - top) <= MOST_SIDES + 1e-9
        mirrored += mirror
    assert LEAST_AREA - 1e-9 <= min(shares) < 0.2 < 0.8 < max(shares) <= 1
    assert 150 < mirrored < 350  # fails by chance once in 10^18
    image = Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8))
    for mirror in (0.9, 0.1):  # the whole image, as it is and mirrored
        found = np.asarray(resized_crop(image, (8, 8), (1.0, 0.5, 0.0, 0.0, mirror)))
        assert np.array_equal(found, np.asarray(image)[:, :: 1 if mirror > 0.5 else -1])


def test_crops_of_images_in_memory_are_those_of_files():
    """On a gradient bilinear scaling is exact but for the edges: the same rectangle has the same values."""
    size = 32
    rows, columns = np.meshgrid(np.arange(size), np.arange(size), indexing="ij")
    gradient = np.stack([4 * rows, 4 * columns, 2 * rows + 2 * columns]).astype(np.uint8)
    draw = torch.Generator().manual_seed(5)
    found = resized_crop_and_flip(torch.from_numpy(gradient).float().expand(20, 3, size, size), draw)
    choices = torch.rand((20, CHOICES), generator=torch.Generator().manual_seed(5)).numpy()
    for one, chosen in zip(found, choices, strict=True):
        want = np.asarray(resized_crop(Image.fromarray(gradient.transpose(1, 2, 0)), (size, size), chosen)).transpose(
            2, 0, 1
        )
        assert np.abs(one.numpy() - want)[:, 2:-2, 2:-2].max() < 1.5  # Pillow rounds twice


def test_a_damaged_image_ends_its_trial_alone(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(examples, "MOST_HELD", 0)
    good = find_image_folder(folder).train[7][0]
    whole = good.read_bytes()
    good.write_bytes(whole[: len(whole) // 2])
    request = TrialRequest(
        backbone="resnet20", options={"width": 4, "blocks": 1}, data=str(folder), resolution=8, epochs=2, batch_size=4
    )
    with monkeypatch.context() as less:
        less.setattr("syno_lab.data.stream.MOST_COUNTED", 4)
        failed = run_trial(request, folder=tmp_path / "bad")
    assert failed.state == "failed"
    assert failed.reason.startswith(f"{good}: expected an image, found: ")
    assert "\n" not in failed.reason
    good.write_bytes(whole)
    trained = run_trial(request, folder=tmp_path / "good")
    assert (trained.state, len(trained.curve)) == ("finished", 2)


def test_augmentations_by_their_names(folder):
    held, streamed = load_dataset(folder, size=8), stream(folder)
    assert [augmentation(held, one) for one in (None, True, False, "resized-crop")] == [
        "none", "crop", "none", "resized-crop",
    ]  # fmt: skip
    assert augmentation(streamed, None) == "resized-crop"
    with pytest.raises(TrainingError, match="augment: expected one of none, crop, resized-crop, found 'mixup'"):
        augmentation(held, "mixup")
    module = nn.Sequential(nn.Flatten(), nn.Linear(192, 2))
    assert train(module, held, epochs=1, augment="resized-crop").stopped == "finished"
    with pytest.raises(DataError, match="expected train_images as a whole number from 1 up, found 0"):
        streamed.part(0)
    mean, deviation = streamed.channel_statistics
    want = held.channel_statistics
    np.testing.assert_allclose((mean, deviation), want)
    file = Path(streamed.source) / streamed.train[0][0]
    file.unlink()
    with pytest.raises(DataError, match=f"{file}: expected an image, found: No such file"):
        _ = streamed.fingerprint
