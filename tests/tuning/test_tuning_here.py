"""Tunings of this machine: no socket, nothing for other users, each candidate in a fork, nothing left after a kill."""

import contextlib
import ctypes
import faulthandler
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from syno_lab import operators
from syno_lab.doctor import tunings
from syno_lab.errors import TrackerError, TuningError
from syno_lab.processes import alive
from syno_lab.processes.own_listener import OwnListener, owner_of, tells
from syno_lab.processes.worker import apart
from syno_lab.scratch import clear
from syno_lab.tuning import TuningTask, local_board, tracker_summary, tune, tune_queue
from syno_lab.tuning.own_tracker import main as own_tracker_main
from syno_lab.tuning.targets import LOCAL

BINDING = {"N": 1, "C_in": 4, "C_out": 4, "H": 6, "W": 6, "k_1": 3}


def task():
    return TuningTask("conv2d", operators.conv2d().to_json(), BINDING)


# -- a fork ------------------------------------------------------------------------------------------------------------


def crash():
    faulthandler.disable()  # pytest would have all stacks printed
    ctypes.string_at(0)


def never_ends(path):
    Path(path).write_text(str(os.getpid()))
    time.sleep(600)


def refuse():
    raise ValueError("the gist\n of it")


def leave():
    os._exit(3)


def test_a_call_in_a_fork(tmp_path):
    others = psutil.Process().children()  # of tests before this one
    assert apart(20, os.getpid) != os.getpid()
    with pytest.raises(TuningError, match=r"^crash: the process was killed by SIGSEGV$"):
        apart(20, crash)
    with pytest.raises(TuningError, match=r"^leave: the process was exit status 3$"):
        apart(20, leave)
    with pytest.raises(TuningError, match=r"^ValueError: of it$"):
        apart(20, refuse)
    with pytest.raises(TuningError, match=r"^never_ends: not done after 5 s, killed$"):
        apart(5, never_ends, tmp_path / "pid")
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))
    assert set(psutil.Process().children()) <= set(others)


def test_a_fork_ends_with_its_parent(tmp_path):
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_tuning_here import apart, never_ends
apart(600, never_ends, {str(tmp_path / "pid")!r})
"""
    parent = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 60
    while not (tmp_path / "pid").is_file() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    fork = int((tmp_path / "pid").read_text())
    while alive.identity(fork) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.05)


# -- a tuning ----------------------------------------------------------------------------------------------------------


def listeners(process):
    """What a process and all below it listen on: TCP, and sockets that have a name."""
    found = []
    for one in [process, *process.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):  # a candidate's own process ends at any time
            for link in one.net_connections(kind="all"):
                is_tcp = link.type == socket.SOCK_STREAM and link.status == psutil.CONN_LISTEN
                if is_tcp or (link.family == socket.AF_UNIX and link.laddr):
                    found.append((one.cmdline(), link.laddr))
    return found


def listening_ports():
    return {where[1] for _, where in listeners(psutil.Process()) if isinstance(where, tuple)}


def kill_a_tuning(work_dir):
    """Kill the command `tune` while it measures; the folder that it leaves."""
    words = [sys.executable, "-m", "syno_lab.cli", "tune", "conv2d", "--trials", "400", "--preset", "thorough"]
    words += [word for name, size in BINDING.items() for word in ("--bind", f"{name}={size}")]
    said = work_dir / "said"
    with said.open("wb") as output:
        process = subprocess.Popen([*words, "--out", str(work_dir)], stdout=output, stderr=output)
    below = []
    try:
        deadline = time.monotonic() + 200
        while not list(work_dir.glob(".tuning-*/*")):  # a candidate was compiled
            assert time.monotonic() < deadline, said.read_text()
            assert process.poll() is None, said.read_text()
            time.sleep(0.1)
        assert clear(work_dir, ".tuning-") == [], "it lives"
        below = psutil.Process(process.pid).children(recursive=True)
    finally:
        process.kill()
        process.wait()
    assert psutil.wait_procs(below, 20)[1] == []
    (left,) = work_dir.glob(".tuning-*")
    return left


@pytest.mark.tvm
@pytest.mark.timeout(300)
def test_a_tuning_opens_no_socket_and_removes_what_a_killed_one_left(tmp_path):
    left = kill_a_tuning(tmp_path)
    before, seen, listened = listeners(psutil.Process()), [], []

    def watch(now):
        seen.append(now)
        listened.extend(one for one in listeners(psutil.Process()) if one not in before)

    mask = os.umask(0o022)
    try:
        result = tune(
            task(), target=f"{LOCAL}:1", trials=3, work_dir=tmp_path, store=tmp_path / "store", on_progress=watch,
            records=tmp_path / "database",
        )  # fmt: skip
    finally:
        os.umask(mask)
    assert result.verified
    assert (result.trials, result.failed, len(seen)) == (3, 0, 3)
    assert result.conditions == "threads=1"
    assert listened == []
    assert not left.exists()
    assert list(tmp_path.glob(".tuning-*")) == []
    (record,) = (tmp_path / "store").glob("*.jsonl")
    assert record.read_text().count('"board":"this machine"') == 3
    made = [tmp_path / "conv2d.log", *tmp_path.glob("database/*"), tmp_path / "store", *tmp_path.glob("store/*")]
    assert len(made) > 5
    assert [one for one in made if one.stat().st_mode & 0o077] == [], "the user's alone"


def fails_twice(operator, binding, dtype):
    """A matrix product: the kernel that finds the file `crash` crashes, the one that finds `hang` never ends.

    They are in a folder with the name of a variable's value, which only those processes have that measure. Whoever
    finds a file removes it.
    """
    import tvm
    from tvm import te, tirx

    def finds(name, then):
        found = tirx.call_extern("int32", "unlink", tvm.ir.StringImm(name)) == 0
        return tirx.Select(found, tirx.IntImm("int32", then), tirx.IntImm("int32", 0))

    nothing = tirx.call_extern("handle", "getenv", tvm.ir.StringImm("SYNO_NO_SUCH_VARIABLE"))
    here = tirx.call_extern("handle", "getenv", tvm.ir.StringImm("TVM_NUM_THREADS"))
    x, w = (te.placeholder((8, 8), dtype, name=name) for name in "xw")
    k = te.reduce_axis((0, 8))
    goes = tirx.call_extern("int32", "chdir", here)
    crashes = tirx.call_extern("int32", "raise", finds("crash", signal.SIGSEGV))
    waits = tirx.call_extern("int32", "poll", nothing, 0, finds("hang", 100_000_000))
    trouble = tirx.max(goes, 0) + crashes + waits
    looked = te.compute((8, 8), lambda i, j: x[i, j] + trouble.astype(dtype), name="looked")
    y = te.compute((8, 8), lambda i, j: te.sum(looked[i, k] * w[j, k], axis=k), name="y")
    return tvm.ir.IRModule({"main": te.create_prim_func([x, w, y])})


@pytest.mark.tvm
@pytest.mark.timeout(300)
def test_a_candidate_that_crashes_and_one_that_never_ends(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.delenv("TVM_NUM_THREADS", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "1").mkdir()
    for name in ("crash", "hang"):
        (tmp_path / "1" / name).touch()
    faulty = TuningTask("faulty", "{}", {}, builder="test_tuning_here:fails_twice")
    result = tune(faulty, target=f"{LOCAL}:1", trials=4, work_dir="work", store="store", session_s=5)
    assert result.verified
    assert (result.trials, result.failed) == (4, 2)
    (record,) = (tmp_path / "store").glob("*.jsonl")
    reasons = [line.partition('"reason":"')[2].partition('"')[0] for line in record.read_text().splitlines()]
    assert sorted(filter(None, reasons)) == [
        "measure: not done after 5 s, killed", "measure: the process was killed by SIGSEGV"
    ]  # fmt: skip


def looks_up(operator, binding, dtype):
    """Rows of a table by their numbers, as a network for texts begins."""
    import tvm
    from tvm import te

    table, places = te.placeholder((6, 8), dtype, name="table"), te.placeholder((4,), "int64", name="places")
    return tvm.ir.IRModule(
        {"main": te.create_prim_func([table, places, te.compute((4, 8), lambda i, j: table[places[i], j], name="y")])}
    )


def counts(operator, binding, dtype):
    """Whole numbers from whole numbers, as its masks."""
    import tvm
    from tvm import te

    x = te.placeholder((64, 64), "int8", name="x")
    y = te.compute((64, 64), lambda i, j: x[j, i] + tvm.tirx.Cast("int8", i >= j), name="y")
    return tvm.ir.IRModule({"main": te.create_prim_func([x, y])})


@pytest.mark.tvm
@pytest.mark.timeout(300)
def test_functions_of_whole_numbers_are_tuned(tmp_path, monkeypatch):
    """Numbers drawn at random would be places outside of the table, and end the process."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    tasks = [TuningTask(name, "{}", {}, builder=f"test_tuning_here:{name}") for name in ("looks_up", "counts")]
    done = tune_queue(tasks, target=f"{LOCAL}:1", trials=1, work_dir=tmp_path)
    assert done.failed == {}
    assert all(one.verified and one.failed == 0 for one in done.results.values())


def test_what_a_tuning_without_a_tracker_refuses(tmp_path):
    with pytest.raises(TuningError, match="expected tracker and key together, or neither"):
        tune(task(), key="local", work_dir=tmp_path)
    with pytest.raises(TuningError, match="a board runs operators in threads of its own"):
        tune(task(), tracker="127.0.0.1:1", key="local", threads=1, work_dir=tmp_path)


# -- a board on loopback -----------------------------------------------------------------------------------------------


def test_the_doctor_says_who_reaches_what():
    found = tunings().found
    assert found.startswith("on this machine nobody else: it opens no socket; ")
    assert ("`--emulate`): nobody else, and" in found) == tells()
    assert ("`--emulate`): every account of this machine, which can run any code as you, and" in found) != tells()


def test_a_listener_is_on_loopback():
    with socket.create_server(("0.0.0.0", 0)) as public, pytest.raises(ValueError, match=r"found one on 0\.0\.0\.0"):
        OwnListener(fileno=os.dup(public.fileno()))


@pytest.mark.skipif(not tells(), reason="the system does not tell whose a connection is")
@pytest.mark.parametrize("host", ["127.0.0.1", "::ffff:127.0.0.1", "::1"])
def test_whose_a_connection_is(host):
    listens = "::1" if host == "::1" else "127.0.0.1"
    try:
        server = socket.create_server((listens, 0), family=socket.AF_INET6 if ":" in listens else socket.AF_INET)
    except OSError as error:
        pytest.skip(f"no {listens} on this machine ({error})")
    with server, OwnListener(fileno=os.dup(server.fileno())) as listener:
        client = socket.create_connection((host, listener.getsockname()[1]))
        connection, _ = listener.accept()
        with connection:
            with client:
                assert owner_of(connection) == os.geteuid()
            assert owner_of(connection) is None, "an end that is closed says nothing"


ATTACK = """
import os, socket, struct, sys
os.setgid(65534)
os.setuid(65534)
for port in map(int, sys.argv[1:]):
    with socket.socket() as link:  # create_connection would load a codec, which that user may not read
        link.settimeout(20)
        link.connect(("127.0.0.1", port))
        try:
            link.sendall(struct.pack("<i", 0x2F271))
            print(len(link.recv(4)))
        except ConnectionError:
            print(0)
"""


def attack(code, *ports):
    """How many bytes each port answers to a tracker's greeting."""
    words = [sys.executable, "-c", code, *map(str, ports)]
    return subprocess.run(words, capture_output=True, check=True, timeout=60).stdout.split()


@contextlib.contextmanager
def own_tracker():
    """One that runs as its module is run; its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "syno_lab.tuning.own_tracker", "--port", str(port)]
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(TrackerError):
                tracker_summary("127.0.0.1", port, 2)
                break
        yield port
    finally:
        process.kill()
        process.wait()


@pytest.mark.tvm
@pytest.mark.timeout(300)
@pytest.mark.skipif(os.getuid() != 0, reason="tries it as another user: root only")
@pytest.mark.skipif(not tells(), reason="the system does not tell whose a connection is")
def test_another_user_gets_nothing_of_a_local_board(tmp_path):
    before = listening_ports()  # a board of the test before this one may still be ending
    with local_board("mine", threads=1) as board, own_tracker() as port:
        ports = sorted(listening_ports() - before)
        assert {board.port, port} < set(ports)
        assert len(ports) == 3, "two trackers and a server"
        ours = attack(ATTACK.replace("65534", "0"), board.port, port)
        assert ours == [b"4", b"4"], "a tracker answers its own account"
        assert set(attack(ATTACK, *ports, *ports)) == {b"0"}
        deadline = time.monotonic() + 60
        while "mine" not in tracker_summary(*board.address).registered:  # a server that refused somebody registers anew
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert tune(task(), tracker=board.address, key="mine", trials=1, work_dir=tmp_path).verified


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_tracker_of_one_s_own_listens_on_loopback_alone(host, capsys):
    with pytest.raises(SystemExit):
        own_tracker_main(["--host", host, "--port", "0"])
    assert f"cannot listen on port 0 of {host}: expected a socket on loopback" in capsys.readouterr().err
