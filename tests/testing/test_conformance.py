"""pGraphs and NAS-PTE pass what every system must, and the suite finds what is wrong with one that does not."""

from __future__ import annotations

import pytest
from small_system import TINY, Expression

from syno_lab import operators
from syno_lab.nas_pte.operator import nas_pte_1, nas_pte_2, nas_pte_3
from syno_lab.nas_pte.system import NAS_PTE
from syno_lab.pgraphs.system import PGRAPHS
from syno_lab.protocol import System
from syno_lab.systems import VARIABLE
from syno_lab.testing import Case, SystemConformance

IMAGE = {"N": 2, "C_in": 4, "C_out": 8, "H": 6, "W": 5}
TWO = {"N": 2, "C_in": 24, "C_out": 20, "H": 4, "W": 3}


class TestPGraphs(SystemConformance):
    @pytest.fixture
    def system(self) -> System:
        return PGRAPHS

    @pytest.fixture(
        params=[
            Case(operators.conv2d(), IMAGE, IMAGE | {"H": 7}),
            Case(operators.operator_1(), IMAGE | {"g": 2}, IMAGE | {"g": 4}),
            Case(
                operators.sum_pool(), {"N": 1, "C": 2, "H": 3, "W": 4, "s": 2}, {"N": 1, "C": 2, "H": 3, "W": 4, "s": 3}
            ),
            Case(operators.matmul(), {"M": 3, "K": 4, "N": 5}, {"M": 3, "K": 5, "N": 4}),
        ],
        ids=["conv2d", "operator_1", "sum_pool", "matmul"],
    )
    def case(self, request: pytest.FixtureRequest) -> Case:
        return request.param


class TestNasPte(SystemConformance):
    @pytest.fixture
    def system(self) -> System:
        return NAS_PTE

    @pytest.fixture(
        params=[
            Case(nas_pte_1(), IMAGE, IMAGE | {"C_in": 8}),
            Case(nas_pte_2(), TWO, TWO | {"W": 4}),
            Case(nas_pte_3(), IMAGE, IMAGE | {"H": 5}),
        ],
        ids=["nas_pte_1", "nas_pte_2", "nas_pte_3"],
    )
    def case(self, request: pytest.FixtureRequest) -> Case:
        return request.param


class TestASystemOfATest(SystemConformance):
    @pytest.fixture(autouse=True)
    def alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # A child process finds the module beside this test's own.
        monkeypatch.setenv(VARIABLE, "syno-lab-operator=;tiny=small_system:TINY")

    @pytest.fixture
    def system(self) -> System:
        return TINY

    @pytest.fixture(
        params=[
            Case(Expression(("image",)), IMAGE, IMAGE | {"H": 7}),
            Case(Expression(("columns", "rows")), IMAGE, IMAGE | {"N": 1}),
        ],
        ids=str,
    )
    def case(self, request: pytest.FixtureRequest) -> Case:
        return request.param
