"""The errors that users see, with one base class.

Every message is one line: the expected value, the found value, where it was found, and what to do. The command line
prints ``str(error)`` and exits with status 2; a notebook shows the exception.
"""

import errno

from syno_lab.inputs import printable_lines

#: The most characters of a message, and the number of characters at its end that are never cut (the advice).
LONGEST, _END = 480, 180
#: Error numbers of a write without free space: on the disk, in the user's quota, or within the limit for a file.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class SynoError(Exception):
    """The base class of every error that a user's input or environment can cause."""

    def __str__(self) -> str:
        """Return the message without control characters; a long message is cut in its middle."""
        text = super().__str__()
        return printable_lines(text if len(text) <= LONGEST else f"{text[: LONGEST - _END - 3]} … {text[-_END:]}")


class ReadingWarning(UserWarning):
    """A warning in one line that an input is read as another value; the message names the two values."""


class SpecError(SynoError, ValueError):
    """A shape, a variable or a limit in a specification is malformed or contradictory."""


class UnboundError(SpecError):
    """Variables have no value; ``names`` are their names."""

    def __init__(self, said: str, names: tuple[str, ...]) -> None:
        super().__init__(said)
        self.names = names


class PrimitiveError(SynoError, ValueError):
    """A primitive was applied where Table 1 of the paper (section 5) does not allow it."""


class FormatError(SynoError, ValueError):
    """A file or a string is not in its declared format: another version, missing fields or other content."""


class SearchError(SynoError, ValueError):
    """A search received a result that it cannot learn from, or has invalid settings."""


class DataError(SynoError):
    """A data set is missing, incomplete or corrupt."""


class TrainingError(SynoError):
    """A training cannot continue, for example because the loss is not a number."""


class DiskFullError(TrainingError):
    """No free space is left to write a file. Saved data are safe, and the work can continue when there is space."""


class TuningError(SynoError):
    """A tuning failed: TVM is missing or broken, a child process died, no candidate ran."""


class TrackerError(TuningError):
    """The RPC tracker or one of its devices does not answer within the deadline."""


class CodeError(SynoError, ValueError):
    """A function of the user's own cannot be read, sent to another process, or run."""


class ExportError(SynoError):
    """A file cannot be written in this format, or the operator read back from it differs."""


class StoreError(SynoError):
    """The results store is damaged, locked or of another version."""


class JobError(SynoError):
    """A job cannot be submitted, changed or run, or the cluster that runs jobs does not answer."""


class EffortError(SynoError):
    """A computation exceeded its limit of time or memory, or was stopped."""


class StoppedError(EffortError):
    """The caller's ``should_stop`` returned True."""


class OverTimeError(EffortError):
    """The time limit has passed."""


class TooLargeError(EffortError):
    """The computation would exceed its memory limit."""
