"""When a search ends because its operators fail for one reason."""

from __future__ import annotations

import pytest

from syno_lab.errors import SearchError
from syno_lab.trial.failures import check_failures

LINE = "the network: ValueError: shape [{}, 3] (net.py, line 12)"


def alike(count: int, reason: str = LINE) -> list[tuple[int, str, str]]:
    return [(number, "failed", reason.format(number)) for number in range(count)]


def test_five_operators_that_fail_at_one_line_are_enough() -> None:
    check_failures(alike(4))
    with pytest.raises(
        SearchError, match=r"5 operators failed alike, .*: the network: ValueError: shape \[4, 3\] \(net"
    ):
        check_failures(alike(5))
    with pytest.raises(SearchError, match="one operator failed, and none"):
        check_failures(alike(1), least=1)


@pytest.mark.parametrize(
    "others",
    [
        [(9, "finished", "")],
        [(9, "pruned", "behind")],
    ],
)
def test_one_that_is_trained_is_enough_to_go_on(others: list[tuple[int, str, str]]) -> None:
    check_failures(alike(20) + others)


def test_time_memory_and_divergence_do_not_count() -> None:
    for state in ("timeout", "oom", "diverged", "interrupted"):
        check_failures(alike(4) + [(number, state, LINE) for number in range(4, 20)])


def test_other_lines_other_exceptions_and_one_operator_on_many_seeds_are_not_alike() -> None:
    check_failures([*alike(4), (9, "failed", LINE.replace("12", "13"))])
    check_failures([*alike(4), (9, "failed", LINE.replace("ValueError", "TypeError"))])
    check_failures([(0, "failed", LINE)] * 9)
    with pytest.raises(SearchError, match="5 operators"):
        check_failures(alike(5, "its process was killed by signal {}"))
    check_failures([])
