"""The manual's pictures: ``make screenshots``.

Stills are what the browser tests leave in their folder (``--basetemp``), so what is shown is what is tested; for the
operator view and the animation, which builds conv2d, pages that stand alone are opened here. All are written beside
this file, in few colours and small.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageChops
from playwright.sync_api import sync_playwright
from syno_widgets import OperatorView, Stepper

from syno_lab import operators
from syno_lab.doctor import find_chromium

HERE = Path(__file__).parent
STILLS = ("stepper", "explorer")
WIDTH, MOST_STILL, MOST_MOVING = 1000, 150_000, 600_000
STEP_MS, LAST_MS = 1300, 3500


def reduced(picture: Image.Image, width: int = WIDTH, *, trims: bool = True) -> Image.Image:
    """Without the empty page below, at most so wide, in 128 colours."""
    picture = picture.convert("RGB")
    ground = Image.new("RGB", picture.size, picture.getpixel((0, 0)))
    seen = ImageChops.difference(picture, ground).getbbox()
    if trims and seen is not None:
        picture = picture.crop((0, 0, picture.width, min(picture.height, seen[3] + 8)))
    if picture.width > width:
        picture = picture.resize((width, round(picture.height * width / picture.width)), Image.Resampling.LANCZOS)
    return picture.quantize(128, dither=Image.Dither.NONE)


def write(path: Path, content: bytes, most: int) -> None:
    """A file that is small enough."""
    if len(content) > most:
        sys.exit(f"{path.name}: expected at most {most:,} bytes, found {len(content):,}")
    path.write_bytes(content)


def stills(folder: Path) -> None:
    """The light screenshots that the browser tests left in ``folder``."""
    for name in STILLS:
        found = sorted(folder.rglob(f"{name}-light.png"))
        if not found:
            sys.exit(f"expected {name}-light.png in {folder}, left by the browser tests; found none")
        write(HERE / f"{name}.png", png(Image.open(found[-1])), MOST_STILL)


def png(picture: Image.Image) -> bytes:
    """Reduced, as a file."""
    buffer = io.BytesIO()
    reduced(picture).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def pages() -> None:
    """``operator-view.png``, and ``building-conv2d.gif``: the stepper at every place from the output to the input."""
    frames = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1500, "height": 860}, color_scheme="light")

        def shot(widget: Stepper | OperatorView, name: str) -> Image.Image:
            file = Path(folder) / f"{name}.html"
            widget.to_html(file)
            page.goto(file.as_uri())
            page.locator("svg g.node").first.wait_for()
            return Image.open(io.BytesIO(page.screenshot()))

        view = OperatorView(operators.operator_1())
        write(HERE / "operator-view.png", png(shot(view, "view")), MOST_STILL)
        stepper = Stepper.of("conv2d")
        for place in range(len(stepper.tree)):
            stepper.place = place
            frames.append(reduced(shot(stepper, str(place)), trims=False))
        browser.close()
    buffer = io.BytesIO()
    times = [STEP_MS] * (len(frames) - 1) + [LAST_MS]
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:], duration=times, loop=0, optimize=True)
    write(HERE / "building-conv2d.gif", buffer.getvalue(), MOST_MOVING)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("python docs/pictures.py FOLDER: the --basetemp of the browser tests")
    stills(Path(sys.argv[1]))
    pages()
