"""A notebook on the kernel "Syno Lab" in JupyterLab: its table of jobs moves while a cell runs, its buttons steer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import short_jobs
from playwright.sync_api import Page, expect

from syno_lab import jobs
from tests.browser.conftest import Lab
from tests.browser.test_stepper import open_notebook, run_cell, wait_for_kernel

pytestmark = pytest.mark.browser

SHOW = """\
from pathlib import Path
%syno jobs"""
BUSY = """\
lab.submit("gate", {"gate": str(Path("gate").absolute())}, name="<b>mine</b>")
while not Path("stop").exists():
    pass
print("STOPPED")"""


def test_table_of_jobs(page: Page, lab: Lab, tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    path = os.pathsep.join([str(Path(short_jobs.__file__).parent), os.environ.get("PYTHONPATH", "")])
    options = ["--folder", str(folder), "--env", f"SYNO_LAB_KINDS={short_jobs.VARIABLE}", "--env", f"PYTHONPATH={path}"]
    subprocess.run(
        [sys.executable, "-m", "syno_lab.cli", "kernel", "install", "--user", *options],
        env={**os.environ, "JUPYTER_DATA_DIR": str(lab.data)},
        check=True,
        timeout=60,
    )
    book = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "syno-lab", "display_name": "Syno Lab", "language": "python"}},
        cells=[nbformat.v4.new_code_cell(source) for source in (SHOW, BUSY)],
    )
    nbformat.write(book, lab.folder / "jobs.ipynb")
    for name in ("gate", "stop"):
        (lab.folder / name).unlink(missing_ok=True)
    try:
        open_notebook(page, lab, "jobs.ipynb")
        expect(page.get_by_role("button", name="Syno Lab").first).to_be_visible()
        wait_for_kernel(page)
        run_cell(page, 0)
        table = page.locator(".syno-jobs")
        expect(table.get_by_role("status")).to_have_text("No jobs yet.")
        expect(page.locator(".syno-static")).to_be_hidden()
        run_cell(page, 1)  # it does not end before it is told to
        row = table.locator('tr[data-job="1"]')
        expect(row).to_contain_text("50 %")
        expect(row).to_contain_text("<b>mine</b>")
        expect(row).to_contain_text("<b>waiting</b>")
        expect(row.get_by_role("button", name="Retry job 1")).to_be_hidden()
        (lab.folder / "stop").write_text("")
        expect(page.locator(".jp-OutputArea-output", has_text="STOPPED")).to_be_visible()
        row.get_by_role("button", name="Log job 1").click()
        expect(table.get_by_label("Log", exact=True)).to_contain_text("waiting for gate")
        row.get_by_role("button", name="Pause job 1").press("Enter")
        expect(row).to_have_attribute("data-state", "paused")
        row.get_by_role("button", name="Resume job 1").click()
        expect(row).to_have_attribute("data-state", "running")
        row.get_by_role("button", name="Cancel job 1").click()
        expect(row).to_have_attribute("data-state", "cancelled")
        (lab.folder / "gate").write_text("open")
        row.get_by_role("button", name="Retry job 1").click()
        expect(row).to_have_attribute("data-state", "finished")
        expect(table.get_by_role("alert")).to_be_hidden()
        expect(table.get_by_role("status")).to_have_text("1 job: 1 finished.")
    finally:
        lab.stop_kernels()
        with jobs.Lab.open(folder, start=False) as ended:
            ended.shutdown()
