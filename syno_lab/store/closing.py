"""The base of stores and labs: a ``with`` block closes them when it ends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

__all__ = ["Closing"]


class Closing(ABC):
    """A base class: a ``with`` block calls the :meth:`close` of the subclass when it ends."""

    @abstractmethod
    def close(self) -> None:
        """Close the files and connections. A second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
