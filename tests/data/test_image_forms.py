"""Images of every form that Pillow reads become the colours that people see; what has no colours is refused."""

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from syno_lab.data.datasets import load_dataset
from syno_lab.data.image_folder import decode, find_image_folder
from syno_lab.data.stream import stream_of
from syno_lab.errors import DataError
from syno_lab.training.tasks import task_of

RAMP = np.linspace(0, 65535, 16 * 16).reshape(16, 16).astype(np.uint16)
GREY = np.rint(RAMP / 257)
#: Red, green, blue and white quarters of 4 x 6 pixels: each of the eight orientations looks different.
QUARTERS = np.zeros((8, 12, 3), np.uint8)
QUARTERS[:4, :6, 0] = QUARTERS[:4, 6:, 1] = QUARTERS[4:, :6, 2] = QUARTERS[4:, 6:] = 255


def read(path: Path) -> np.ndarray:
    """The pixels [H, W, 3] of a file, as whole reads and streams decode it."""
    return decode(path, lambda image: image).transpose(1, 2, 0)


def mixed(path: Path) -> Path:
    """Two classes of twenty images, of 16 bits, with transparency and turned ones among them."""
    rng = np.random.default_rng(4)
    for label, name in enumerate(("cat", "dog")):
        (path / name).mkdir(parents=True)
        for number in range(20):
            file = path / name / f"{number:02}.png"
            pixels = rng.integers(0, 256, (12, 10, 4), np.uint8)
            if number % 4 == label:
                Image.fromarray(rng.integers(0, 65536, (12, 10), np.uint16)).save(file)
            elif number % 4 == 2:
                exif = Image.Exif()
                exif[0x0112] = 6
                Image.fromarray(pixels[..., :3]).save(file, exif=exif)
            else:
                Image.fromarray(pixels).save(file)
    return path


@pytest.mark.parametrize("form", ["png", "tiff", "big-endian tiff", "pgm", "inverted tiff"])
def test_levels_of_16_bits_are_divided_by_257(tmp_path, form):
    file = tmp_path / f"ramp.{form.split()[-1]}"
    if form == "big-endian tiff":
        Image.frombytes("I;16B", (16, 16), RAMP.astype(">u2").tobytes()).save(file)
        assert file.read_bytes()[:2] == b"MM"
    elif form == "inverted tiff":
        Image.fromarray(65535 - RAMP).save(file, tiffinfo={262: 0})
    else:
        Image.fromarray(RAMP).save(file)
    assert np.abs(read(file) - GREY[..., None]).max() <= 1
    assert abs(read(file).mean() - 127.5) < 1


def test_levels_of_12_bits_are_scaled_by_their_own_range(tmp_path):
    """Pillow writes none: this is a TIFF by hand, of 2 x 2 pixels in 6 bytes."""
    packed = int("".join(f"{level:012b}" for level in (0, 4095, 2048, 1024)), 2).to_bytes(6, "big")
    tags = [(256, 2), (257, 2), (258, 12), (259, 1), (262, 1), (273, 8), (277, 1), (278, 2), (279, 6)]
    table = b"".join(struct.pack("<HHIHH", tag, 3, 1, value, 0) for tag, value in tags)
    file = tmp_path / "a.tiff"
    file.write_bytes(b"II*\0" + struct.pack("<I", 14) + packed + struct.pack("<H", len(tags)) + table + bytes(4))
    assert read(file)[..., 0].tolist() == [[0, 255], [128, 64]]


def test_colours_of_16_bits_keep_their_values(tmp_path):
    """Pillow writes none: this is a PNG by hand, of three 16-bit levels a pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    pixels = np.stack([RAMP, RAMP[::-1], np.full_like(RAMP, 257 * 40)], axis=-1)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", 16, 16, 16, 2, 0, 0, 0)
    file = tmp_path / "deep.png"
    file.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    )
    assert np.abs(read(file) - pixels / 257).max() <= 1


@pytest.mark.parametrize(
    ("levels", "line"),
    [
        (RAMP.astype(np.int32) * 3, "found 32 bits from 0 to 196605; save 8 bits"),
        (RAMP.astype(np.int16) - np.int16(20), "found 32 bits from -"),
        (RAMP.astype(np.float32), "found floats from 0 to 65535; save 8 bits"),
        (RAMP.astype(np.float32) / 65535 - 0.5, r"found floats from -0\.5 to 0\.5"),
        (np.full((4, 4), np.nan, np.float32), "found floats from nan to nan"),
    ],
)
def test_levels_without_a_scale_are_refused_with_their_range(tmp_path, levels, line):
    file = tmp_path / "levels.tiff"
    Image.fromarray(levels).save(file)
    with pytest.raises(DataError, match=f"levels.tiff: expected levels of 8 or 16 bits or floats from 0 to 1, {line}"):
        read(file)


def test_floats_from_0_to_1_are_scaled(tmp_path):
    Image.fromarray((RAMP / 65535).astype(np.float32)).save(tmp_path / "levels.tiff")
    assert np.abs(read(tmp_path / "levels.tiff") - GREY[..., None]).max() <= 1


def clear(mode: str) -> Image.Image:
    """An image 4 x 4 whose left half is transparent black, and whose right half is a solid grey of 80."""
    pixels = np.zeros((4, 4, 4), np.uint8)
    pixels[:, 2:] = (80, 80, 80, 255)
    whole = Image.fromarray(pixels)
    if mode != "P":
        return whole.convert(mode)
    found = Image.fromarray(np.repeat([[0, 0, 1, 1]], 4, 0).astype(np.uint8), "P")
    found.putpalette([0, 0, 0, 80, 80, 80])
    return found


@pytest.mark.parametrize(
    ("mode", "name", "options"),
    [
        ("RGBA", "a.png", {}),
        ("LA", "a.png", {}),
        ("RGBA", "a.tiff", {}),
        ("RGBA", "a.webp", {"lossless": True, "exact": True}),
        ("P", "a.png", {"transparency": 0}),
        ("P", "a.png", {"transparency": b"\0\xff"}),
        ("P", "a.gif", {"transparency": 0}),
        ("RGB", "a.png", {"transparency": (0, 0, 0)}),
        ("L", "a.png", {"transparency": 0}),
    ],
)
def test_transparent_pixels_are_white(tmp_path, mode, name, options):
    clear(mode).save(tmp_path / name, **options)
    found = read(tmp_path / name)
    assert (found[:, :2] == 255).all()
    assert (found[:, 2:] == 80).all()


def test_transparent_levels_of_16_bits_are_white_and_half_of_it_is_half_white(tmp_path):
    Image.fromarray(RAMP).save(tmp_path / "a.png", transparency=0)
    assert read(tmp_path / "a.png")[0, :3, 0].tolist() == [255, 1, 2]
    Image.new("RGBA", (2, 2), (0, 0, 0, 102)).save(tmp_path / "b.png")
    assert (read(tmp_path / "b.png") == 153).all()


@pytest.mark.parametrize("mode", ["1", "L", "P", "CMYK", "YCbCr", "RGBX"])
def test_the_other_modes_have_the_same_colours(tmp_path, mode):
    image = Image.fromarray(QUARTERS)
    if mode in ("1", "L"):
        image = Image.fromarray(QUARTERS[..., 0]).convert(mode)
    want = np.asarray(image.convert("RGB"))
    image.convert(mode).save(tmp_path / "a.tiff")
    assert np.abs(read(tmp_path / "a.tiff").astype(int) - want).max() <= 2


@pytest.mark.parametrize("name", ["a.gif", "a.webp", "a.png", "a.tiff"])
def test_of_an_animation_the_first_image_is_read(tmp_path, name):
    frames = [Image.new("RGB", (6, 6), colour) for colour in ((255, 0, 0), (0, 255, 0))]
    frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:])
    assert np.abs(read(tmp_path / name).astype(int) - (255, 0, 0)).max() <= 3


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.webp", "a.tiff"])
def test_every_orientation_of_a_camera_is_turned_upright(tmp_path, name):
    """What the tag says that a viewer does is undone before the file is written (EXIF 2.3, table of orientations)."""
    turns = {
        1: lambda p: p,
        2: lambda p: p[:, ::-1],
        3: lambda p: p[::-1, ::-1],
        4: lambda p: p[::-1],
        5: lambda p: p.transpose(1, 0, 2),
        6: lambda p: np.rot90(p),  # a viewer turns it clockwise
        7: lambda p: np.rot90(p, 2).transpose(1, 0, 2),
        8: lambda p: np.rot90(p, -1),
    }
    for tag, turn in turns.items():
        exif = Image.Exif()
        exif[0x0112] = tag
        options = {"lossless": True} if name.endswith("webp") else {"quality": 100} if name.endswith("jpg") else {}
        Image.fromarray(np.ascontiguousarray(turn(QUARTERS))).save(tmp_path / name, exif=exif, **options)
        found = read(tmp_path / name).astype(int)
        assert found.shape == QUARTERS.shape, tag
        assert np.abs(found - QUARTERS)[[1, 1, -2, -2], [1, -2, 1, -2]].max() < 40, tag


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_a_turned_image_of_16_bits_and_a_damaged_note(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 3
    Image.fromarray(RAMP[::-1, ::-1].copy()).save(tmp_path / "a.png", exif=exif)
    assert np.abs(read(tmp_path / "a.png") - GREY[..., None]).max() <= 1
    Image.fromarray(QUARTERS).save(tmp_path / "b.jpg", exif=b"Exif\0\0MM\0\x2a\xff\xff\xff\xff", quality=100)
    assert read(tmp_path / "b.jpg").shape == QUARTERS.shape


def test_streams_have_the_same_images(tmp_path):
    folder = mixed(tmp_path / "data")
    found = find_image_folder(folder)
    tasks = [
        task_of(one, torch.device("cpu"), 8, "none") for one in (load_dataset(folder, size=9), stream_of(found, 9))
    ]
    for task in tasks:
        task.start_epoch(torch.Generator().manual_seed(1))
    draw = torch.Generator()
    for number in range(tasks[0].train_batches):
        held, streamed = (task.train_batch(number, torch.float32, draw) for task in tasks)
        torch.testing.assert_close(streamed, held)
    tasks[1].close()
    assert found.plan().endswith("; transparent pixels become white, as in 00.png")
