"""``syno-lab board``: every step with its commands, and what can be told of them from here."""

import ast
import json
import re
import socket
import sys
from pathlib import Path

import pytest
from command_line import answered, refused

from syno_lab.codegen.target_names import TARGETS
from syno_lab.commands.options import check_board
from syno_lab.errors import TrackerError
from syno_lab.processes import board_server
from syno_lab.tuning import checkup, local_board
from syno_lab.tuning.checkup import is_loopback, public_address, warning
from syno_lab.tuning.setup import SERVER, Plan, checked, steps
from syno_lab.tuning.tracker import parse_address, tracker_summary


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_every_step_is_printed_with_its_commands(capsys, tmp_path):
    port = free_port()
    tracker = f"127.0.0.1:{port}"
    path = tmp_path / "board.json"
    arguments = ["board", "--ssh", "me@orin", "--tracker", tracker, "--port", "9099", "--json", str(path)]
    said = answered(capsys, *arguments)
    told = json.loads(path.read_text())
    assert told["key"] == "jetson-orin-nano-cpu"
    titles = [
        "the tracker",
        "TVM on the board",
        "the server's file",
        "power mode",
        "clocks",
        "the tunnel",
        "the server",
    ]
    assert [step["title"] for step in told["steps"]] == [*titles, "a last look"]
    for step in told["steps"]:
        assert all(line in said for line in step["commands"])
    by_title = {step["title"]: step for step in told["steps"]}
    assert by_title["the tunnel"]["commands"] == [f"ssh -N -R {port}:127.0.0.1:{port} -L 9099:127.0.0.1:9099 me@orin"]
    assert f"--tracker {tracker} --key jetson-orin-nano-cpu --port 9099 --address 127.0.0.1" in said
    assert "apache-tvm==0.27" in said
    assert by_title["the tracker"]["state"] == "to do"
    assert f"no RPC tracker listens at {tracker}" in said
    assert told["warnings"] == []


def test_nothing_that_is_printed_listens_on_the_network(capsys):
    words = ["board", "--no-tunnel", "--device", "mine", "--tracker", f"192.0.2.1:{free_port()}", "--json", "-"]
    told = json.loads(answered(capsys, *words))
    assert told["key"] == "mine"
    titles = {step["title"] for step in told["steps"]}
    assert "the tunnel" in titles
    assert not {"power mode", "clocks"} & titles
    commands = [line for step in told["steps"] for line in step["commands"]]
    hosts = {line.partition("--host ")[2].partition(" ")[0] for line in commands if "--host" in line}
    assert hosts == {"127.0.0.1"}
    assert not [line for line in commands if "0.0.0.0" in line]
    assert any("user@jetson" in line for line in commands)
    assert told["warnings"][0].startswith("the tracker listens on 192.0.2.1: TVM's RPC has no password")
    assert "--no-tunnel has no effect any more" in told["warnings"][1]


@pytest.mark.parametrize(
    ("device", "first"), [("jetson_orin_nano", "jetson-orin-nano"), ("Xavier", "jetson-xavier"), ("CUDA", "cuda")]
)
def test_a_device_that_is_no_target_is_said_with_those_that_there_are(capsys, device, first):
    told = json.loads(
        answered(capsys, "board", "--device", device, "--tracker", f"127.0.0.1:{free_port()}", "--json", "-")
    )
    (line,) = told["warnings"]
    assert line.startswith(
        f"there is no target '{device}', so that a tuning on this board needs --target; there are {first}"
    )
    assert all(name in line for name in TARGETS)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "board.example", ""])
def test_a_board_s_server_listens_on_loopback_alone(host, capsys):
    with pytest.raises(SystemExit):
        board_server.main(["--tracker", "127.0.0.1:9190", "--key", "mine", "--host", host, "--facts"])
    assert f"expected --host 127.0.0.1 or ::1, found {host!r}: TVM's RPC has no password" in capsys.readouterr().err


def test_the_server_s_file_stands_alone(capsys, tmp_path):
    answered(capsys, "board", "--tracker", f"127.0.0.1:{free_port()}", "--save-server", str(tmp_path))
    text = (tmp_path / "board_server.py").read_text()
    assert text == Path(SERVER).read_text()
    imported = {
        name.partition(".")[0]
        for node in ast.walk(ast.parse(text))
        for name in (
            [one.name for one in node.names]
            if isinstance(node, ast.Import)
            else [node.module]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported - set(sys.stdlib_module_names) == {"tvm", "tvm_ffi"}


def test_bad_boards(capsys, tmp_path):
    assert "expected a device's name without blanks" in refused(capsys, "board", "--device", "my board")
    assert "expected the tracker's address as host:port" in refused(capsys, "board", "--tracker", "here")
    place = str(tmp_path / "no" / "where.py")
    arguments = ["board", "--tracker", f"127.0.0.1:{free_port()}", "--save-server", place]
    assert f"expected to write the board's server to {place}" in refused(capsys, *arguments)
    with pytest.raises(TrackerError, match="expected the tracker's address"):
        steps(Plan(tracker="127.0.0.1"))


def test_who_can_reach_a_tracker():
    assert is_loopback("127.0.0.1")
    assert is_loopback("::1")
    assert is_loopback("localhost")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("no.such.host.invalid")
    assert public_address("10.1.2.3", 9190, list) == "10.1.2.3"
    assert public_address("127.0.0.1", 9190, lambda: [("127.0.0.1", 9190), ("0.0.0.0", 80)]) is None
    assert public_address("127.0.0.1", 9190, lambda: [("127.0.0.1", 80), ("0.0.0.0", 9190)]) == "0.0.0.0"
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert public_address("127.0.0.1", server.getsockname()[1]) is None
    assert "\n" not in warning("0.0.0.0")
    assert re.search("listens on 0.0.0.0: TVM's RPC has no password", warning("0.0.0.0"))


@pytest.mark.tvm
def test_what_a_running_board_has_done(capsys, monkeypatch):
    with local_board("mine") as board:
        found, warnings = checked(Plan(tracker=f"{board.host}:{board.port}", key="mine"))
        check_board(f"{board.host}:{board.port}", board.key)
        assert capsys.readouterr().out == ""
        monkeypatch.setattr(checkup, "_listeners", lambda: [("0.0.0.0", board.port)])
        check_board(f"{board.host}:{board.port}", board.key)
        assert capsys.readouterr().out == f"warning: the tracker {warning('0.0.0.0')}\n"
    states = {step.title: step.state for step in found}
    for title in ("the tracker", "TVM on the board", "the server's file", "the tunnel", "the server"):
        assert states[title] == "done", title
    assert states["a last look"] == "unknown"
    assert next(step.found for step in found if step.title == "the server") == "1 devices, 1 free"
    assert warnings == []
    assert Path(SERVER).name == "board_server.py"


# -- emulated ----------------------------------------------------------------------------------------------------------


def test_an_emulated_board_that_was_not_fetched(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("SYNO_LAB_BOARDS", str(tmp_path))
    assert "expected an emulated board for TVM" in refused(capsys, "board", "--emulate", "--check")


def test_emulating_is_no_set_up(capsys, tmp_path):
    line = refused(capsys, "board", "--emulate", "--save-server", str(tmp_path))
    assert "--emulate: expected no set-up of a real board" in line
    for option in ("--fetch", "--check"):
        assert "expected --emulate beside --fetch and --check" in refused(capsys, "board", option)


@pytest.mark.tvm
@pytest.mark.timeout(300)
def test_an_emulated_board_runs_a_kernel_built_here(fetched_board, capsys):
    """Its server says that it is an aarch64, and the kernel's answer is that of the loop nest."""
    told = json.loads(answered(capsys, "board", "--emulate", "--check", "--json", "-"))
    assert told["healthy"]
    findings = {one["name"]: one for one in told["findings"]}
    (device,) = (one["found"] for name, one in findings.items() if name.startswith("device "))
    assert " on aarch64, threads=" in device
    kernel = findings["key jetson-orin-nano-cpu, a kernel"]
    assert kernel["ok"]
    assert kernel["found"].startswith("built here for aarch64, ran there; largest difference from the loop nest ")
    # It is gone with the command.
    with pytest.raises(TrackerError, match="no RPC tracker listens"):
        tracker_summary(*parse_address(told["tracker"]))
