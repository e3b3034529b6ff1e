"""What is closed when a ``with`` ends: the stores and labs, which all have a ``close``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

__all__ = ["Closing"]


class Closing(ABC):
    """``with`` for whoever has a :meth:`close`: a class of its own kind, not a wrapper around one."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what is held. Closing twice is fine."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
