"""``syno-lab doctor --tracker``: what is behind a tracker, in plain words."""

import json
import socket
import threading

import pytest
from command_line import refused

from syno_lab.cli import main
from syno_lab.doctor import Finding
from syno_lab.tuning import local_board
from syno_lab.tuning.checkup import _target_of, check_up
from syno_lab.tuning.tracker import DeviceInfo, host_version, request_device


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def found(capsys, *arguments):
    status = main(["doctor", *arguments, "--json", "-"])
    told = json.loads(capsys.readouterr().out)
    assert told["healthy"] == (status == 0)
    return told["healthy"], {one["name"]: Finding(**one) for one in told["findings"]}


def test_no_tracker_there(capsys):
    port = free_port()
    healthy, findings = found(capsys, "--tracker", f"127.0.0.1:{port}")
    assert not healthy
    (only,) = findings.values()
    assert f"no RPC tracker listens at 127.0.0.1:{port}" in only.found
    assert "syno-lab board" in only.advice


def test_something_that_is_no_tracker():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            connection, _ = server.accept()
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=serve, daemon=True).start()
        (only,) = check_up(f"127.0.0.1:{server.getsockname()[1]}")
    assert "it is not an RPC tracker" in only.found


def test_bad_questions(capsys):
    assert "expected --tracker HOST:PORT beside --key and --target" in refused(capsys, "doctor", "--key", "local")
    assert "expected the tracker's address as host:port" in refused(capsys, "doctor", "--tracker", "here")
    line = refused(capsys, "doctor", "--tracker", "127.0.0.1:1", "--target", "no such thing")
    assert "expected a target among local" in line


@pytest.mark.parametrize(
    ("device", "target"),
    [
        (DeviceInfo("jetson-xavier-cpu", "127.0.0.1", 1, machine="aarch64"), "jetson-xavier-cpu"),
        (DeviceInfo("mine", "10.0.0.2", 1), None),
        (DeviceInfo("mine", "127.0.0.1", 1), "local"),
        (DeviceInfo("mine", "10.0.0.2", 1, machine="riscv64"), None),
    ],
)
def test_what_a_device_is(device, target):
    assert _target_of(device.key, device) == target


@pytest.mark.tvm
def test_a_board_that_is_well(capsys):
    with local_board("bench") as board:
        address = f"{board.host}:{board.port}"
        healthy, findings = found(capsys, "--tracker", address)
        assert healthy
        assert findings[f"tracker {address}"].found == "answers, with 1 devices"
        assert findings["key bench"].found == "1 devices, 1 free, 0 busy"
        (device,) = (one for name, one in findings.items() if name.startswith("device "))
        assert f"TVM {host_version()} on " in device.found
        assert device.found.endswith(f"TVM {host_version()} here")
        kernel = findings["key bench, a kernel"]
        assert kernel.ok
        assert "ran there; largest difference from the loop nest" in kernel.found

        healthy, findings = found(capsys, "--tracker", address, "--key", "bnech")
        assert not healthy
        assert findings["key bnech"].found == "no device is registered as 'bnech'"
        assert findings["key bnech"].advice == "Registered keys: bench."

        request_device(board.host, board.port, "bench", 10)  # taken, and not used for about six seconds
        healthy, findings = found(capsys, "--tracker", address, "--key", "bench")
        assert healthy  # a busy board is no fault
        assert findings["key bench"].found == "1 devices, 0 free, 1 busy"
        assert "key bench, a kernel" not in findings
