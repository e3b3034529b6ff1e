"""Reading CIFAR: the real files, files written by the tests, damaged files and hostile ones."""

import os
import pickle
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from syno_lab.data.cifar import CIFAR_FORMATS, find_cifar, read_cifar
from syno_lab.errors import DataError

FORM = {form.folder: form for form in CIFAR_FORMATS}


def read(folder: Path):
    return read_cifar(*find_cifar(folder))


def write_binary(folder: Path, counts=(3, 1, 2, 1, 1, 2), seed=0) -> tuple[np.ndarray, np.ndarray]:
    """Write CIFAR-10's six binary files with the given numbers of records, byte by byte; return all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    form = FORM["cifar-10-batches-bin"]
    images, labels = [], []
    for name, count in zip((*form.train_files, form.test_file), counts, strict=True):
        with (folder / name).open("wb") as out:
            for _ in range(count):
                label = int(rng.integers(10))
                planes = rng.integers(0, 256, (3, 32, 32), dtype=np.uint8)
                out.write(bytes([label]))
                out.writelines(planes[channel].tobytes() for channel in range(3))
                images.append(planes)
                labels.append(label)
    return np.stack(images), np.array(labels)


def write_python_100(folder: Path, *, bytes_keys: bool) -> dict[str, tuple[np.ndarray, list[int]]]:
    """Write CIFAR-100's python form: protocol 2, one row of 3,072 bytes for each image."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(1)
    written = {}
    for name, count in (("train", 7), ("test", 4)):
        data = rng.integers(0, 256, (count, 3072), dtype=np.uint8)
        fine = [int(v) for v in rng.integers(0, 100, count)]
        content = {
            "filenames": [f"image_{i}.png" for i in range(count)],
            "batch_label": f"{name}ing batch 1 of 1",
            "fine_labels": fine,
            "coarse_labels": [v % 20 for v in fine],
            "data": data,
        }
        if bytes_keys:
            content = {key.encode(): value for key, value in content.items()}
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))
        written[name] = (data, fine)
    meta = {"fine_label_names": [f"fine {i}" for i in range(100)], "coarse_label_names": [f"c {i}" for i in range(20)]}
    (folder / "meta").write_bytes(pickle.dumps(meta, protocol=2))
    return written


def test_a_binary_file_is_read_pixel_by_pixel(tmp_path):
    images, labels = write_binary(tmp_path / "cifar-10-batches-bin")
    got = read(tmp_path / "cifar-10-batches-bin")
    assert got.train_images.shape == (8, 3, 32, 32)
    assert got.train_images.dtype == np.uint8
    np.testing.assert_array_equal(np.concatenate([got.train_images, got.test_images]), images)
    np.testing.assert_array_equal(np.concatenate([got.train_labels, got.test_labels]), labels)
    assert got.train_labels.dtype == np.int64
    assert got.classes[:2] == ("airplane", "automobile")


def test_the_real_binary_and_python_forms_hold_the_same_images(real_data):
    binary, python = read(real_data("cifar-10-batches-bin")), read(real_data("cifar-10-batches-py"))
    assert binary.train_images.shape == (5000, 3, 32, 32)
    assert binary.test_images.shape == (1000, 3, 32, 32)
    for one, other in zip(binary[:4], python[:4], strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    assert binary.classes == python.classes == FORM["cifar-10-batches-bin"].classes
    # The first image of the published data set is a frog, the next two are trucks.
    assert [binary.classes[label] for label in binary.train_labels[:3]] == ["frog", "truck", "truck"]


def test_the_real_cifar_100_has_the_fine_labels(real_data):
    folder = real_data("cifar-100-binary")
    got = read(folder)
    assert got.train_images.shape == (486, 3, 32, 32)
    assert got.test_images.shape == (916, 3, 32, 32)
    raw = (folder / "train.bin").read_bytes()
    assert got.train_labels[5] == raw[5 * 3074 + 1]
    assert got.train_images[5, 2, 31, 30] == raw[6 * 3074 - 2]
    assert got.classes == FORM["cifar-100-binary"].classes
    assert len(set(got.classes)) == 100


@pytest.mark.parametrize("bytes_keys", [False, True])
def test_cifar_100_in_the_python_form(tmp_path, bytes_keys):
    written = write_python_100(tmp_path / "cifar-100-python", bytes_keys=bytes_keys)
    got = read(tmp_path)
    for (data, fine), images, labels in (
        (written["train"], got.train_images, got.train_labels),
        (written["test"], got.test_images, got.test_labels),
    ):
        np.testing.assert_array_equal(images.reshape(len(data), 3072), data)
        assert labels.tolist() == fine
    assert got.classes == tuple(f"fine {i}" for i in range(100))


def test_a_folder_of_another_name_and_a_parent_are_recognised(tmp_path):
    write_binary(tmp_path / "my images")
    assert find_cifar(tmp_path / "my images")[1].folder == "cifar-10-batches-bin"
    shutil.copytree(tmp_path / "my images", tmp_path / "all" / "cifar-10-batches-bin")
    write_python_100(tmp_path / "all" / "cifar-100-python", bytes_keys=False)
    assert find_cifar(tmp_path / "all")[0].name == "cifar-10-batches-bin"


def test_the_class_names_may_be_absent_but_not_wrong(tmp_path):
    folder = tmp_path / "cifar-10-batches-bin"
    write_binary(folder)
    (folder / "batches.meta.txt").write_text("\n".join("abcdefghij") + "\n\n")
    assert read(folder).classes == tuple("abcdefghij")
    (folder / "batches.meta.txt").write_text("a\nb\n")
    with pytest.raises(DataError, match=r"batches\.meta\.txt: expected 10 class names, found 2"):
        read(folder)


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        (1, r"data_batch_2\.bin: expected a whole number of records of 3,073 bytes .* found 3,072 bytes, .* 0 records"),
        (3073, r"data_batch_2\.bin: .*\(at least one\), found 0 bytes"),
    ],
)
def test_half_a_record_is_refused(tmp_path, cut, message):
    folder = tmp_path / "cifar-10-batches-bin"
    write_binary(folder)
    file = folder / "data_batch_2.bin"
    file.write_bytes(file.read_bytes()[:-cut])
    with pytest.raises(DataError, match=message):
        read(folder)


def test_a_label_out_of_range_is_refused(tmp_path):
    folder = tmp_path / "cifar-10-batches-bin"
    write_binary(folder)
    raw = bytearray((folder / "data_batch_1.bin").read_bytes())
    raw[2 * 3073] = 10
    (folder / "data_batch_1.bin").write_bytes(raw)
    with pytest.raises(DataError, match=r"data_batch_1\.bin: expected 'labels' from 0 to 9, found 10 in record 2"):
        read(folder)


def test_a_coarse_label_out_of_range_is_refused(tmp_path):
    for name in ("train.bin", "test.bin"):
        (tmp_path / name).write_bytes(bytes([20, 3]) + bytes(3072))
    with pytest.raises(DataError, match=r"train\.bin: expected 'coarse_labels' from 0 to 19, found 20"):
        read(tmp_path)


def test_missing_things_are_named(tmp_path):
    with pytest.raises(DataError, match=r"expected a data folder at .*nowhere, found nothing there"):
        find_cifar(tmp_path / "nowhere")
    with pytest.raises(DataError, match="found an empty folder"):
        find_cifar(tmp_path)
    (tmp_path / "notes").write_text("")
    with pytest.raises(DataError, match=r"expected one of cifar-10-batches-bin, .* found notes"):
        find_cifar(tmp_path)
    with pytest.raises(DataError, match="notes, found a file"):
        find_cifar(tmp_path / "notes")
    folder = tmp_path / "cifar-10-batches-bin"
    write_binary(folder)
    (folder / "data_batch_4.bin").unlink()
    with pytest.raises(DataError, match=r"expected .*data_batch_4\.bin, found no such file"):
        read(folder)
    (folder / "data_batch_4.bin").mkdir()
    with pytest.raises(DataError, match=r"expected a readable file .*data_batch_4\.bin"):
        read(folder)


def python_file(tmp_path: Path, content: object, protocol: int = 2) -> Path:
    """Return a CIFAR-100 python folder whose train file pickles ``content``."""
    folder = tmp_path / "cifar-100-python"
    if not folder.exists():
        write_python_100(folder, bytes_keys=False)
    raw = content if isinstance(content, bytes) else pickle.dumps(content, protocol=protocol)
    (folder / "train").write_bytes(raw)
    return folder


GOOD = {"data": np.zeros((2, 3072), np.uint8), "fine_labels": [3, 99], "coarse_labels": [0, 19]}


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_python_files_of_several_protocols_are_read(tmp_path, protocol):
    assert read(python_file(tmp_path, GOOD, protocol)).train_labels.tolist() == [3, 99]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": np.zeros((2, 3071), np.uint8)}, r"train: expected 'data' as a uint8 array \[N, 3072\].*\[2, 3071\]"),
        ({"data": np.zeros((2, 3072), np.float32)}, "another type than uint8"),
        ({"data": [1, 2]}, "found a list"),
        ({"fine_labels": [3]}, "expected one of 'fine_labels' for each of 2 images, found 1"),
        ({"fine_labels": [3, 100]}, "expected 'fine_labels' from 0 to 99, found 100 in record 1"),
        ({"fine_labels": [3, -1]}, "found -1 in record 1"),
        ({"fine_labels": [3, 2**70]}, "expected 'fine_labels' from 0 to 99"),
        ({"fine_labels": [3, "4"]}, "as a list of integers"),
        ({"coarse_labels": None}, "as a list of integers, found None"),
    ],
)
def test_wrong_contents_of_a_python_file_are_refused(tmp_path, change, message):
    with pytest.raises(DataError, match=message):
        read(python_file(tmp_path, {**GOOD, **change}))


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "train: expected a pickle"),
        (b"not a pickle at all", "train: expected a pickle"),
        (pickle.dumps(GOOD, protocol=2)[:-900], "train: expected a pickle"),
        (pickle.dumps([1, 2]), r"expected a dictionary with the key 'data', found \[1, 2\]"),
        (pickle.dumps({"x": 1}), r"the key 'data', found the keys \['x'\]"),
    ],
)
def test_junk_instead_of_a_pickle_is_refused_in_one_line(tmp_path, raw, message):
    with pytest.raises(DataError, match=message) as refusal:
        read(python_file(tmp_path, raw))
    assert "\n" not in str(refusal.value)


class Attack:
    """Pickles as a call."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_malicious_pickle_does_not_run(tmp_path, protocol):
    proof = tmp_path / "it-ran"
    attack = {**GOOD, "filenames": Attack(os.mkdir, str(proof))}
    # The attack is a real one: the ordinary reader would have run it.
    pickle.loads(pickle.dumps(attack, protocol=protocol))
    assert proof.exists()
    proof.rmdir()
    with pytest.raises(DataError, match=r"found the name posix\.mkdir, .* no code was run"):
        read(python_file(tmp_path, attack, protocol))
    assert not proof.exists()


@pytest.mark.parametrize(
    "attack",
    [
        Attack(eval, "1"),
        Attack(getattr, {}, "clear"),
        Attack(exec, "import os"),
        Attack(np.load, "x.npy"),
        Attack(sys.setrecursionlimit, 10_000),
    ],
)
def test_names_outside_of_the_list_are_refused(tmp_path, attack):
    with pytest.raises(DataError, match="which image data does not need"):
        read(python_file(tmp_path, {**GOOD, "filenames": attack}))


def test_a_forged_array_state_never_reaches_numpy(tmp_path):
    """Bytes posing as object pointers would crash numpy's own unpickling; here they are refused as another type."""
    forged = (
        b"\x80\x02}X\x04\x00\x00\x00datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R("
        b"K\x01K\x01\x85cnumpy\ndtype\nU\x01OK\x00K\x01\x87R\x89U\x08AAAAAAAAtbs."
    )
    with pytest.raises(DataError, match="an array of another type than uint8"):
        read(python_file(tmp_path, forged))


def test_a_pickle_cannot_spoil_the_reader_for_the_next_file(tmp_path):
    # BUILD with a pair sets attributes on what find_class returned, here on the stand-in for numpy.ndarray.
    spoiler = b"\x80\x02cnumpy\nndarray\nN}X\x0c\x00\x00\x00__setstate__K\x01s\x86b."
    with pytest.raises(DataError, match="train: expected"):
        read(python_file(tmp_path, spoiler))
    assert read(python_file(tmp_path, GOOD)).train_labels.tolist() == [3, 99]


def test_text_in_another_encoding_than_latin1_is_refused(tmp_path):
    raw = b"\x80\x02}X\x04\x00\x00\x00datac_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86Rs."
    with pytest.raises(DataError, match="bytes in the encoding 'rot13'"):
        read(python_file(tmp_path, raw))


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"\x80\x02}r\xff\xff\xff\x7f.", "found LONG_BINPUT 2147483647 at byte 3"),  # room for 2^31 objects: 16 GB
        (b"\x80\x05\x96" + (5).to_bytes(8, "little") + b"abcde.", "found BYTEARRAY8"),
        (b"(ios\nmkdir\n.", "found INST os mkdir"),
        (b"\x80\x02cnumpy\nndarray\n)\x81.", "found NEWOBJ"),
        (b"\x80\x02U\x05aloneQ.", "found BINPERSID"),
    ],
)
def test_what_data_does_not_need_is_refused_unread(tmp_path, raw, message):
    with pytest.raises(DataError, match=message):
        read(python_file(tmp_path, raw))


def test_a_list_that_doubles_itself_sixty_times_is_refused_at_once(tmp_path):
    nested: list[object] = []
    for _ in range(60):
        nested = [nested, nested]
    with pytest.raises(DataError, match="expected 'fine_labels' as a list of integers"):
        read(python_file(tmp_path, {**GOOD, "fine_labels": nested}))
    with pytest.raises(DataError, match="expected a dictionary with the key 'data'"):
        read(python_file(tmp_path, pickle.dumps(nested)))


def test_damaged_bytes_are_read_or_refused_but_nothing_else(tmp_path):
    rng = np.random.default_rng(3)
    whole = [pickle.dumps({**GOOD, "filenames": ["a.png", "b.png"]}, protocol=protocol) for protocol in (0, 2, 4)]
    refusals = []
    for number in range(600):
        raw = bytearray(whole[number % 3])
        # Most of the file is pixels; the structure is at its beginning and its end.
        places = np.concatenate([np.arange(200), np.arange(len(raw) - 120, len(raw))])
        for place in rng.choice(places, 2):
            raw[place] = rng.integers(256)
        try:
            read(python_file(tmp_path, bytes(raw)))
        except DataError as error:
            refusals.append(str(error))
    assert 300 < len(refusals) < 600
    assert not any("\n" in refusal for refusal in refusals)
