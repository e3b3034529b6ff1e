"""Fixtures of tests that start processes."""

import contextlib
import os
import uuid

import psutil
import pytest


@pytest.fixture
def marked(monkeypatch):
    """Returns a function that lists all processes started (however deep) since, but for this one."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv("SYNO_TEST_MARK", mark)

    def alive():
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.pid != os.getpid() and process.environ().get("SYNO_TEST_MARK") == mark:
                    found.append(process)
        return found

    return alive
