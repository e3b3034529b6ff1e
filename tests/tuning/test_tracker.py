"""The tracker's client, and the local board: real tracker, real server, no stand-ins."""

import contextlib
import json
import math
import select
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from labs import free_port
from waiting import wait_until

from syno_lab.errors import TrackerError
from syno_lab.tuning import check_tracker, local_board, tracker_summary
from syno_lab.tuning.tracker import parse_address, request_device


@contextlib.contextmanager
def listener(serve):
    """A TCP server that treats each connection with ``serve``."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def loop():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, contextlib.suppress(OSError):
                        serve(connection)

        threading.Thread(target=loop, daemon=True).start()
        yield server.getsockname()[1]


def test_addresses():
    assert parse_address("board:9190") == ("board", 9190)
    assert parse_address("[::1]:9190") == ("::1", 9190)
    assert parse_address(("10.0.0.2", 80)) == ("10.0.0.2", 80)


@pytest.mark.parametrize("text", ["board", "board:", ":9190", "board:http", "board:0", "board:70000", ""])
def test_malformed_addresses_are_refused(text):
    with pytest.raises(TrackerError, match="as host:port, found"):
        parse_address(text)


def test_nothing_listens():
    with pytest.raises(TrackerError, match=r"no RPC tracker listens at 127\.0\.0\.1:\d+"):
        check_tracker("127.0.0.1", free_port(), "local")


def test_unknown_host():
    with pytest.raises(
        TrackerError, match=r"host 'no-such-host\.invalid' is unknown|not reachable|within the deadline"
    ):
        tracker_summary("no-such-host.invalid", 9190)


def test_something_else_listens():
    with (
        listener(lambda connection: connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")) as port,
        pytest.raises(TrackerError, match="it is not an RPC tracker"),
    ):
        tracker_summary("127.0.0.1", port)


def test_a_peer_that_hangs_up():
    with listener(lambda connection: connection.recv(1)) as port, pytest.raises(TrackerError, match="not reachable as"):
        tracker_summary("127.0.0.1", port)


def test_a_silent_peer_ends_with_the_deadline():
    with (
        listener(lambda connection: connection.recv(64) and time.sleep(5)) as port,
        pytest.raises(TrackerError, match="within the deadline"),
    ):
        tracker_summary("127.0.0.1", port, deadline_s=0.3)


def said(queue, key="bench", **server):
    """A summary as a tracker sends it."""
    servers = [{"key": f"server:{key}", "addr": ["127.0.0.1", 1]} | server]
    text = json.dumps([0, {"queue_info": {key: queue}, "server_info": servers}]).encode()
    return struct.pack("<i", len(text)) + text


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        (b"\x05\x00\x00\x00junk!", "not JSON"),
        (b"\xff\xff\xff\x7f", "message of 2147483647 bytes"),
        (b"\x06\x00\x00\x00[0, 7]", "invalid summary"),
        (struct.pack("<i", 200_000) + b"[" * 200_000, "not JSON"),
        (said({"free": math.inf, "pending": 0}), "invalid summary"),
        (said({"free": 1, "pending": "9" * 5000}), "invalid summary"),
        (b"\x02\x00\x00\x00[", "does not answer"),
    ],
)
def test_a_peer_that_knows_only_the_greeting(answer, match):
    def serve(connection):
        connection.sendall(connection.recv(4))
        connection.recv(64)
        connection.sendall(answer)

    with listener(serve) as port, pytest.raises(TrackerError, match=match):
        tracker_summary("127.0.0.1", port, deadline_s=60)


def test_what_a_tracker_says_can_be_shown():
    facts = {"tvm": "0.27\x1b[2J" + "x" * 500, "threads": 10**30, "cores": 4, "power": ["15W"]}
    answer = said({"free": 1, "pending": 0}, key="\x1b[31mred\u202e" + "k" * 500, addr=["h\a" * 300, 1], syno_lab=facts)

    def serve(connection):
        connection.sendall(connection.recv(4))
        connection.recv(64)
        connection.sendall(answer)

    with listener(serve) as port:
        summary = tracker_summary("127.0.0.1", port, deadline_s=5)
    ((device,), (key,)) = summary.devices, summary.registered
    assert device.key == key == ("\ufffd[31mred\ufffd" + "k" * 500)[:199] + "…"
    assert device.host == ("h\ufffd" * 300)[:254] + "…"
    assert device.tvm == ("0.27\ufffd[2J" + "x" * 500)[:59] + "…"
    assert (device.cores, device.threads, device.power) == (4, 0, "")


def test_a_board_needs_a_key_that_the_tracker_can_carry():
    with pytest.raises(TrackerError, match="without blanks and colons"), local_board("my board"):
        pass


@pytest.mark.tvm
def test_the_board_and_its_tracker(marked):
    with local_board("bench") as board:
        summary = tracker_summary(board.host, board.port)
        assert [(entry.key, entry.free, entry.total, entry.pending) for entry in summary.keys] == [("bench", 1, 1, 0)]
        # TVM's own client is the oracle of ours.
        told = subprocess.run(
            [sys.executable, "-m", "tvm.exec.query_rpc_tracker", "--host", board.host, "--port", str(board.port)],
            capture_output=True, text=True, check=True, timeout=120,
        )  # fmt: skip
        assert "server:bench" in told.stdout

        with pytest.raises(TrackerError, match=r"no device is registered as 'bnech' .* registered keys: bench"):
            check_tracker(board.host, board.port, "bnech")
        with pytest.raises(TrackerError, match="no device is registered as 'bnech'"):
            request_device(board.host, board.port, "bnech", 5)
        # The misspelt key was never queued.
        assert [entry.key for entry in tracker_summary(board.host, board.port).keys] == ["bench"]

        request_device(board.host, board.port, "bench", 5)  # taken, and not used for about six seconds
        with pytest.raises(TrackerError, match=r"no device 'bench' .* became free within 0\.5 s \(1 registered"):
            check_tracker(board.host, board.port, "bench", 0.5)
        with pytest.raises(TrackerError, match=r"became free within 0\.5 s"):
            request_device(board.host, board.port, "bench", 0.5)
        check_tracker(board.host, board.port, "bench", 30)
        # Our abandoned request has left the queue.
        assert wait_until(lambda: tracker_summary(board.host, board.port).get("bench").pending == 0)
        assert len(marked()) == 2
    assert wait_until(lambda: not marked())
    with pytest.raises(TrackerError, match="no RPC tracker listens"):
        tracker_summary(board.host, board.port)


@pytest.mark.tvm
@pytest.mark.parametrize("lost", [1, 2])
def test_a_tracker_that_hangs_up_once(lost):
    """Killed while it greets, for one: the summary's connection or the request's is reset, and asked for again."""
    with local_board("bench") as board:
        accepted = []

        def serve(connection):
            accepted.append(connection)
            if len(accepted) == lost:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing resets
                return
            with socket.create_connection((board.host, board.port)) as tracker:
                ends = {connection: tracker, tracker: connection}
                while True:
                    for readable in select.select(list(ends), [], [])[0]:
                        if not (data := readable.recv(1 << 16)):
                            return
                        ends[readable].sendall(data)

        with listener(serve) as port:
            host, _, key = request_device("127.0.0.1", port, "bench", 10)
        assert (host, key.partition(":")[0]) == ("127.0.0.1", "bench")
        assert len(accepted) == lost + 2  # a request is a summary and the question itself


@pytest.mark.tvm
def test_a_crashing_candidate_does_not_take_the_board(marked, tmp_path):
    source = tmp_path / "crash.c"
    source.write_text("#include <stdlib.h>\n__attribute__((constructor)) static void crash(void) { abort(); }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "crash.so", source], check=True)
    client = textwrap.dedent("""
        import sys
        from tvm import rpc
        session = rpc.connect(sys.argv[1], int(sys.argv[2]), sys.argv[3], session_timeout=10)
        session.upload(sys.argv[4])
        session.load_module("crash.so")
    """)
    with local_board() as board:
        for _ in range(2):
            server, port, matchkey = request_device(board.host, board.port, board.key, 20)
            arguments = [server, str(port), matchkey, str(tmp_path / "crash.so")]
            assert subprocess.run([sys.executable, "-c", client, *arguments], capture_output=True).returncode != 0
            # The server may still be registering anew, and an unknown key is an error at once.
            assert wait_until(lambda: board.key in tracker_summary(*board.address).registered)
            check_tracker(board.host, board.port, board.key, 20)
    assert wait_until(lambda: not marked())


@pytest.mark.tvm
def test_a_killed_parent_leaves_nothing(marked):
    script = textwrap.dedent("""
        import time
        from syno_lab.tuning import local_board
        with local_board() as board:
            print(board.port, flush=True)
            time.sleep(600)
    """)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        port = int(parent.stdout.readline())
        # A session under way: the server has forked a child for it.
        server, server_port, matchkey = request_device("127.0.0.1", port, "local", 20)
        with socket.create_connection((server, server_port)) as session:
            key = f"client:{matchkey}".encode()
            session.sendall((0xFF271).to_bytes(4, "little") + len(key).to_bytes(4, "little") + key)
            assert wait_until(lambda: len(marked()) == 4)  # parent, tracker, server, session
            parent.send_signal(signal.SIGKILL)
            assert wait_until(lambda: not marked())
