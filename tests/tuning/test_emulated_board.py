"""A board of another architecture: fetched files that are checked, a real aarch64 RPC server, and refusals."""

import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from syno_lab.codegen.library import save_library
from syno_lab.errors import TrackerError, TuningError
from syno_lab.operators import conv2d, operator_1
from syno_lab.tuning import TuningTask, tracker_summary, tune
from syno_lab.tuning import emulated_files as files
from syno_lab.tuning.checkup import run_remotely
from syno_lab.tuning.emulated import KEY, emulated_board
from syno_lab.tuning.emulated_files import boards_folder, fetch_board, find_board

SIZES = {"N": 1, "C_in": 16, "C_out": 16, "H": 8, "W": 8}


@pytest.fixture(scope="module")
def board(fetched_board):
    """One for all tests."""
    with emulated_board() as started:
        yield started


# -- the board ---------------------------------------------------------------------------------------------------------


@pytest.mark.tvm
@pytest.mark.timeout(300)
def test_it_registers_as_a_jetson(board):
    entry = tracker_summary(*board.address).get("jetson-orin-nano-cpu")
    assert (entry.free, entry.total) == (1, 1)


@pytest.mark.tvm
@pytest.mark.timeout(300)
@pytest.mark.parametrize("make", [conv2d, operator_1])
def test_an_operator_compiled_here_runs_there(board, make):
    """Code for a Cortex-A78AE cannot run on another processor: where this holds, an aarch64 ran it."""
    operator = make()
    bound = operator.complete_binding({name: SIZES.get(name, 4) for name in _wanted(operator)})
    run = run_remotely(operator.to_json(), bound, board=board, target=KEY)
    assert run.machine == "aarch64"
    assert run.error < 1e-5
    assert run.latency_ms > 0


def _wanted(operator):
    return [name for name in operator.spec.symbols.names if name not in operator.spec.defaults]


@pytest.mark.tvm
@pytest.mark.timeout(300)
def test_a_tuning_for_a_jetson(board, tmp_path):
    """Its winner's output was compared with the unscheduled program's on this machine."""
    operator = conv2d()
    task = TuningTask("conv2d", operator.to_json(), operator.complete_binding(SIZES))
    result = tune(
        task, tracker=board.address, key=KEY, target=KEY, trials=4, work_dir=tmp_path, session_s=60, deadline_s=200
    )
    assert result.verified
    assert 1 <= result.trials <= 4
    assert result.failed == 0
    assert "cortex-a78ae" in result.target
    assert "aarch64" in result.target


@pytest.mark.tvm
@pytest.mark.timeout(300)
def test_a_kernel_of_this_machine_is_refused_there(board):
    """Nothing is sent; the board goes on."""
    if os.uname().machine == "aarch64":
        pytest.skip("this machine is an aarch64")
    operator = conv2d()
    with pytest.raises(
        TuningError, match=r"is of the architecture aarch64, code for the target 'local' is for "
    ) as caught:
        run_remotely(operator.to_json(), operator.complete_binding(SIZES), board=board, target="local")
    assert "\n" not in str(caught.value)
    run = run_remotely(operator.to_json(), operator.complete_binding(SIZES), board=board, target=KEY)
    assert run.error < 1e-5


# -- the GPU of the same board: code for it comes out, but nothing here can run it ------------------------------------

CUBIN = """
import sys
from syno_lab.processes.light import import_tvm
import_tvm()
sys.path.insert(0, sys.argv[1])
from cuda_code import compile_cuda, cuda_compilers
if cuda_compilers():
    sys.stdout.buffer.write(compile_cuda(sys.stdin.read(), "sm_87"))
"""


@pytest.mark.tvm
@pytest.mark.parametrize("make", [conv2d, operator_1])
def test_the_cuda_module_for_sm_87(make, tmp_path):
    """Its kernels are there, keep to the card's limits, and belong to an aarch64; where NVRTC is, it compiles them."""
    operator = make()
    bound = operator.complete_binding({name: SIZES.get(name, 4) for name in _wanted(operator)})
    record = save_library(operator, tmp_path / "kernel.tar", bound, target="jetson-orin-nano")
    assert json.loads(record.target)["arch"] == "sm_87"
    assert (record.kind, record.machine, record.device_code) == ("cuda", "aarch64", "source")
    with tarfile.open(tmp_path / "kernel.tar") as archive:
        objects = [file.read() for file in map(archive.extractfile, archive.getmembers()) if file is not None]
    # The source lies in the host's object between two other constants.
    holding = [data for data in objects if b"__global__" in data]
    assert len(holding) == 1
    found = re.search(rb'(?:#|extern "C" __global__)[ -~\s]*__global__[ -~\s]*\}', holding[0])
    source = found.group().decode()
    names = re.findall(r'extern "C" __global__ void __launch_bounds__\((\d+)\) (\w+)\([^)]*\) \{', source)
    assert len({name for _, name in names}) == len(names) >= (2 if make is operator_1 else 1)
    assert all(1 <= int(threads) <= 1024 for threads, _ in names)
    for kernel in re.split(r'extern "C" __global__[^{]*\{', source)[1:]:
        sizes = [int(size) for size in re.findall(r"__shared__ alignas\(\d+\) float \w+\[(\d+)\]", kernel)]
        assert 4 * sum(sizes) <= 49152
    words = [sys.executable, "-c", CUBIN, str(Path(__file__).parent.parent)]
    done = subprocess.run(words, input=source.encode(), capture_output=True, check=True, timeout=120)
    if done.stdout:
        assert done.stdout[:4] == b"\x7fELF"
        machine, flags = struct.unpack_from("<H", done.stdout, 18)[0], struct.unpack_from("<I", done.stdout, 48)[0]
        assert (machine, flags >> 8 & 0xFF) == (190, 87)  # CUDA, sm_87


# -- its files ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def fetched(tmp_path, monkeypatch):
    """A small folder that was unpacked whole, as far as anyone can tell without starting it."""
    place = tmp_path / f"aarch64-tvm-{files._versions()['apache-tvm']}"
    program = place / "root" / "usr" / "bin" / "python3.11"
    program.parent.mkdir(parents=True)
    program.write_bytes(b"\x7fELF")
    (program.parent / "python3").symlink_to("python3.11")
    (place / "qemu-aarch64-static").write_bytes(b"\x7fELF")
    record = {
        "version": 1,
        "packages": files._versions(),
        "downloads": [{"name": "a.whl", "size": 3, "sha256": "0"}, {"name": "b.deb", "size": 4, "sha256": "0"}],
        "digest": files._digest(place),
    }
    (place / "board.json").write_text(json.dumps(record))
    return place


def test_a_whole_board_is_found_by_argument_and_by_variable(fetched, monkeypatch):
    found = find_board(fetched.parent)
    assert found.python == fetched / "root" / "usr" / "bin" / "python3.11"
    assert found.emulator == str(fetched / "qemu-aarch64-static")
    monkeypatch.setenv(files.FOLDER_VARIABLE, str(fetched.parent))
    assert find_board() == fetch_board() == found  # nothing is fetched where it is there
    (fetched / "root" / "__pycache__").mkdir()
    (fetched / "root" / "__pycache__" / "new.pyc").write_text("what Python compiles does not count")
    assert find_board() == found
    monkeypatch.delenv(files.FOLDER_VARIABLE)
    assert boards_folder().name == "boards"


def _flip(place):
    (place / "root" / "usr" / "bin" / "python3.11").write_bytes(b"\x7fELG")


def _add(place):
    (place / "root" / "usr" / "sitecustomize.py").write_text("print('hello')")


def _point_elsewhere(place):
    (place / "root" / "usr" / "bin" / "python3").unlink()
    (place / "root" / "usr" / "bin" / "python3").symlink_to("/bin/true")


def _remove(place):
    (place / "root" / "usr" / "bin" / "python3.11").unlink()


def _change(place, **changes):
    path = place / "board.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (_flip, "has changed since it was unpacked; remove it and run"),
        (_add, "has changed since it was unpacked"),
        (_point_elsewhere, "has changed since it was unpacked"),
        (_remove, "has changed since it was unpacked"),
        (lambda place: _change(place, version=2), "has changed since it was unpacked"),
        (lambda place: _change(place, downloads=[{}]), "is incomplete"),
        (lambda place: _change(place, packages={"apache-tvm": "0.1"}), "has other versions than this machine"),
        (lambda place: (place / "board.json").write_text("{"), "cannot be read"),
        (lambda place: (place / "board.json").write_text("[]"), "is incomplete"),
        (shutil.rmtree, r"expected an emulated board for TVM .*, found none; run `syno-lab board --emulate --fetch`$"),
    ],
)
def test_a_damaged_board_is_refused(fetched, damage, match):
    damage(fetched)
    with pytest.raises(TuningError, match=match) as caught:
        find_board(fetched.parent)
    assert "\n" not in str(caught.value)
    is_there = files._record(files._target(fetched.parent)).exists()
    assert is_there == (damage is not shutil.rmtree), "tests skip where there is none, no other time"


def test_a_board_without_an_emulator(fetched, monkeypatch):
    (fetched / "qemu-aarch64-static").unlink()
    _change(fetched, digest=files._digest(fetched))
    monkeypatch.setenv("PATH", str(fetched))
    with pytest.raises(TuningError, match="expected qemu-aarch64-static or qemu-aarch64 on the PATH, found neither"):
        find_board(fetched.parent)
    program = fetched / "qemu-aarch64"  # any program of that name will do
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    _change(fetched, digest=files._digest(fetched))
    assert find_board(fetched.parent).emulator == str(program)


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_fetching_without_apt(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TuningError, match=r"expected apt-get \(Debian and its relatives\) .*, found none"):
        fetch_board(tmp_path / "boards")


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="no apt-get here")
def test_fetching_without_sources(tmp_path, monkeypatch):
    """What apt-get says is told in one line, and a later call begins anew."""
    config = tmp_path / "apt.conf"
    config.write_text('Dir::Etc::sourcelist "/dev/null";\nDir::Etc::sourceparts "/dev/null";\n')
    monkeypatch.setenv("APT_CONFIG", str(config))
    said = []
    with pytest.raises(TuningError, match=r"^cannot find python3-minimal, .* for arm64: E: Unable to locate") as caught:
        fetch_board(tmp_path / "boards", said.append)
    assert "\n" not in str(caught.value)
    assert said == ["reading Debian's package lists for arm64", "fetching Python and a linker for arm64"]
    assert not list((tmp_path / "boards").glob("aarch64-*"))


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program} here")
    with pytest.raises(TuningError, match=r"cannot fetch an emulated board into .*file"):
        fetch_board(tmp_path / "file")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"key": "a b"}, "expected a device key without blanks and colons, found 'a b'"),
        ({"tracker": "192.0.2.1:9190"}, r"registers only at a tracker on 127\.0\.0\.1, found '192\.0\.2\.1'"),
        ({"tracker": "nowhere"}, "expected the tracker's address as host:port, found 'nowhere'"),
        ({"tracker": "127.0.0.1:1"}, r"no RPC tracker listens at 127\.0\.0\.1:1"),
    ],
)
def test_a_board_that_cannot_start(fetched, options, match):
    with pytest.raises(TrackerError, match=match), emulated_board(folder=fetched.parent, **options):
        pass


@pytest.mark.tvm
def test_a_server_that_ends_at_once(fetched):
    """With an emulator that is none: what ended, how and with which words."""
    (fetched / "qemu-aarch64-static").write_text("#!/bin/sh\necho no such processor >&2\nexit 3\n")
    (fetched / "qemu-aarch64-static").chmod(0o755)
    library = fetched / "root" / "lib" / "aarch64-linux-gnu" / "libc.so.6"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"")
    _change(fetched, digest=files._digest(fetched))
    wanted = r"the emulated board's server ended \(exit status 3\): no such processor"
    with pytest.raises(TrackerError, match=wanted), emulated_board(folder=fetched.parent):
        pass
