"""Finding, downloading and checking data sets. The server is a real one, on the loopback."""

import hashlib
import io
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from syno_lab.data.datasets import Dataset, download_cifar, load_dataset
from syno_lab.errors import DataError

FORM = "cifar-10-batches-bin"
FILES = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]


@pytest.fixture(autouse=True)
def _no_data_named(monkeypatch):
    monkeypatch.delenv("SYNO_LAB_DATA", raising=False)


def record(label: int) -> bytes:
    return bytes([label]) + bytes([10 * label, 20, 30]) * 1024


def write_cifar(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for number, name in enumerate(FILES):
        (folder / name).write_bytes(record(number) * 2)
    return folder


def archive(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


GOOD_MEMBERS = {f"{FORM}/{name}": record(number) * 50 for number, name in enumerate(FILES)}


class Site:
    """A web server on the loopback over one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.requests: list[str] = []
        site = self

        class Handler(SimpleHTTPRequestHandler):
            def __init__(self, *args):
                super().__init__(*args, directory=str(root))

            def log_message(self, _format, *args):
                site.requests.append(str(args[0]))

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def offer(self, name: str, content: bytes) -> str:
        (self.root / name).write_bytes(content)
        return "sha256:" + hashlib.sha256(content).hexdigest()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def site(tmp_path_factory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("site"))
    yield site
    site.close()


def everything_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_digits_are_the_default_and_can_be_asked_for(monkeypatch, tmp_path):
    digits = load_dataset()
    assert digits.name == "digits"
    assert digits.train_images.shape == (1437, 1, 8, 8)
    assert digits.test_images.shape == (360, 1, 8, 8)
    assert digits.image_shape == (1, 8, 8)
    assert digits.classes == tuple("0123456789")
    assert digits.train_images.max() == 255
    assert np.bincount(digits.test_labels).min() >= 30
    monkeypatch.setenv("SYNO_LAB_DATA", str(tmp_path / "nowhere"))
    assert load_dataset("digits").fingerprint == digits.fingerprint


def test_digits_are_scikit_learns(monkeypatch):
    from sklearn.datasets import load_digits

    bunch, ours = load_digits(), load_dataset()
    images = np.concatenate([ours.train_images, ours.test_images])[:, 0]
    np.testing.assert_array_equal(np.rint(images / 255 * 16), bunch.images)
    np.testing.assert_array_equal(np.concatenate([ours.train_labels, ours.test_labels]), bunch.target)


def test_the_environment_names_the_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("SYNO_LAB_DATA", str(write_cifar(tmp_path / FORM)))
    got = load_dataset()
    assert (got.name, got.source) == ("cifar-10", str(tmp_path / FORM))
    assert got.train_labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    monkeypatch.setenv("SYNO_LAB_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match=r"found nothing there.*environment variable SYNO_LAB_DATA"):
        load_dataset()
    monkeypatch.setenv("SYNO_LAB_DATA", "")
    assert load_dataset().name == "digits"


def test_a_data_set_cannot_be_written_to(tmp_path):
    got = load_dataset(write_cifar(tmp_path / FORM))
    with pytest.raises(ValueError, match="read-only"):
        got.train_images[0, 0, 0, 0] = 1
    with pytest.raises(AttributeError):
        got.name = "other"  # type: ignore[misc]


def test_the_fingerprint_is_of_the_images_and_labels(tmp_path):
    first = load_dataset(write_cifar(tmp_path / "a" / FORM))
    same = load_dataset(write_cifar(tmp_path / "b" / FORM))
    assert first.fingerprint == same.fingerprint
    (tmp_path / "b" / FORM / "test_batch.bin").write_bytes(record(6) * 2)
    assert load_dataset(tmp_path / "b").fingerprint != first.fingerprint


def test_the_statistics_are_those_of_the_training_pixels(real_data):
    for got in (load_dataset(), load_dataset(real_data("cifar-100-binary"))):
        mean, deviation = got.channel_statistics
        np.testing.assert_allclose(mean, (got.train_images / 255).mean(axis=(0, 2, 3)), rtol=1e-9)
        np.testing.assert_allclose(deviation, (got.train_images / 255).std(axis=(0, 2, 3)), rtol=1e-9)


def test_a_flat_channel_has_deviation_one():
    flat = np.full((2, 1, 4, 4), 7, np.uint8)
    got = Dataset("flat", "here", flat, np.array([0, 1]), flat.copy(), np.array([0, 1]), ("a", "b"))
    assert got.channel_statistics[1].tolist() == [1.0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_images": np.zeros((2, 4, 4), np.uint8)}, r"expected train_images as uint8 \[N, C, H, W\]"),
        ({"test_images": np.zeros((2, 1, 4, 4))}, "expected test_images as uint8 .*float64"),
        ({"train_labels": np.array([0, 1, 0])}, r"expected train_labels as int64 \[2\], found int64 \[3\]"),
        ({"test_labels": np.array([0, 2])}, "expected test_labels from 0 to 1, found 0 to 2"),
        ({"test_images": np.zeros((2, 1, 4, 5), np.uint8)}, "of the training images' shape"),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(change, message):
    arrays = {
        "train_images": np.zeros((2, 1, 4, 4), np.uint8),
        "train_labels": np.array([0, 1]),
        "test_images": np.zeros((2, 1, 4, 4), np.uint8),
        "test_labels": np.array([0, 1]),
    }
    with pytest.raises(DataError, match=message):
        Dataset(name="x", source="y", classes=("a", "b"), **{**arrays, **change})


def test_a_download_is_checked_unpacked_and_read(site, tmp_path):
    content = archive({**GOOD_MEMBERS, f"{FORM}/readme.html": b"<p>"})
    known = site.offer("cifar-10-binary.tar.gz", content)
    seen: list[tuple[int, int]] = []
    got = load_dataset(
        tmp_path / "new" / FORM,
        download=True,
        progress=lambda done, total: seen.append((done, total)),
        base_url=site.url,
        known_hash=known,
    )
    assert len(got.train_images) == 250
    assert got.train_labels[-1] == 4
    assert got.test_images[0].reshape(-1)[:3].tolist() == [50, 20, 30]
    assert seen[-1] == (len(content), len(content))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert everything_in(tmp_path) == {
        "new",
        f"new/{FORM}",
        f"new/{FORM}/readme.html",
        *(f"new/{m}" for m in GOOD_MEMBERS),
    }
    load_dataset(tmp_path / "new", download=True, base_url=site.url, known_hash=known)
    assert len(site.requests) == 1  # what is there is not fetched again


def test_a_download_into_a_parent_takes_the_binary_cifar_10(site, tmp_path):
    known = site.offer("cifar-10-binary.tar.gz", archive(GOOD_MEMBERS))
    (tmp_path / "my.txt").write_text("mine")
    got = load_dataset(tmp_path, download=True, base_url=site.url, known_hash=known)
    assert got.source == str(tmp_path / FORM)
    assert (tmp_path / "my.txt").read_text() == "mine"


def test_nothing_is_downloaded_unasked(site, tmp_path):
    site.offer("cifar-10-binary.tar.gz", archive(GOOD_MEMBERS))
    with pytest.raises(DataError, match="found nothing there"):
        load_dataset(tmp_path / FORM, base_url=site.url)
    assert site.requests == []


def refused(site: Site, folder: Path, message: str, known: str | None = None) -> None:
    with pytest.raises(DataError, match=message) as refusal:
        download_cifar(FORM, folder / "deep" / "er", base_url=site.url, known_hash=known, timeout_s=5)
    assert "\n" not in str(refusal.value)
    assert everything_in(folder) == set()


def test_another_file_than_the_published_is_refused(site, tmp_path):
    site.offer("cifar-10-binary.tar.gz", archive(GOOD_MEMBERS))
    refused(site, tmp_path, "expected an archive with md5:c32a1d4ab5d03f1284b67883e8d87530 .*found another file")


def test_a_missing_file_on_the_server_is_named(site, tmp_path):
    refused(site, tmp_path, r"cifar-10-binary\.tar\.gz, found the answer 404")


def test_no_server_is_one_line(site, tmp_path):
    site.close()
    refused(site, tmp_path, r"expected an answer from http://127\.0\.0\.1:.*found none .*check the network")


def test_an_answer_that_breaks_off_leaves_nothing(tmp_path):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 1000)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(DataError, match=r"found (none|another file)"):
            download_cifar(FORM, tmp_path, base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout_s=5)
        thread.join()
    assert everything_in(tmp_path) == set()


def test_an_interrupted_download_leaves_nothing(site, tmp_path):
    known = site.offer("cifar-10-binary.tar.gz", archive(GOOD_MEMBERS))

    def interrupt(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download_cifar(FORM, tmp_path / "new", base_url=site.url, known_hash=known, progress=interrupt)
    assert everything_in(tmp_path) == set()


@pytest.mark.parametrize("name", ["../evil", f"{FORM}/../../evil", "/tmp/evil", f"{FORM}/..", f"{FORM}/a/b", "evil"])
def test_an_archive_cannot_write_elsewhere(site, tmp_path, name):
    known = site.offer("cifar-10-binary.tar.gz", archive({**GOOD_MEMBERS, name: b"evil"}))
    refused(site, tmp_path, "expected only plain files in cifar-10-batches-bin/", known)


def test_a_name_that_no_disk_takes_is_refused(site, tmp_path):
    known = site.offer("cifar-10-binary.tar.gz", archive({**GOOD_MEMBERS, f"{FORM}/{'x' * 300}": b"long"}))
    refused(site, tmp_path, "cannot be unpacked to .*: File name too long", known)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_pipes_are_not_unpacked(site, tmp_path, kind):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        info = tarfile.TarInfo(f"{FORM}/link")
        info.type, info.linkname = kind, f"{FORM}/data_batch_1.bin"
        tar.addfile(info)
    known = site.offer("cifar-10-binary.tar.gz", buffer.getvalue())
    refused(site, tmp_path, "expected only plain files", known)


def test_a_cut_archive_and_no_archive_are_refused(site, tmp_path):
    whole = archive(GOOD_MEMBERS)
    for content in (whole[: len(whole) // 2], b"hello"):
        known = site.offer("cifar-10-binary.tar.gz", content)
        refused(site, tmp_path, "expected a tar archive", known)


def test_an_unknown_form_and_a_file_in_the_way_are_refused(site, tmp_path):
    with pytest.raises(DataError, match=r"expected the form to download as one of .*found 'mnist'"):
        download_cifar("mnist", tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"expected to write .*choose another folder"):
        download_cifar(FORM, tmp_path / "file", base_url=site.url)


def test_importing_the_module_loads_nothing_heavy():
    heavy = {"torch", "tvm", "pandas", "sklearn", "pooch"}
    code = f"import sys, syno_lab.data.datasets; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert done.stdout.strip() == "[]"
