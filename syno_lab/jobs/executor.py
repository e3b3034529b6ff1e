"""An executor of `concurrent.futures` whose tasks are jobs of a lab."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any

from syno_lab.errors import JobError
from syno_lab.jobs.handle import JobFuture
from syno_lab.jobs.lab import Lab


class JobExecutor(Executor):
    """``submit("train", params)`` gives a future; ``map("train", many_params)`` the results in their order.

    The lab stays open when the executor is shut down; jobs outlive both.
    """

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._futures: list[JobFuture] = []
        self._is_shut = False

    def submit(  # type: ignore[override]  # a job is a kind and plain data, not a function
        self, kind: str | Callable[..., Any], /, params: Mapping[str, Any] | None = None, **options: Any
    ) -> JobFuture:
        """Submit a job; ``options`` are those of `Lab.submit`.

        Raises:
            JobError: for a function in place of a kind, and after `shutdown`.
        """
        if self._is_shut:
            raise JobError("this executor was shut down: make another one")
        if not isinstance(kind, str):
            raise JobError(f"expected the name of a kind of job, found {type(kind).__name__}")
        future = self._lab.submit(kind, params, **options).future()
        self._futures.append(future)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more jobs; wait for those submitted here, or cancel them."""
        self._is_shut = True
        if cancel_futures:
            for future in self._futures:
                future.cancel()
        if wait:
            self._lab.wait([future.job for future in self._futures])
