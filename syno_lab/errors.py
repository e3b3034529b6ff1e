"""The one family of errors that users see.

Every message is one line: what was expected, what was found and where, and what to do. Deep code raises the bare fact;
the command line prints ``str(error)`` and exits with status 2, a notebook shows the exception itself.
"""

import errno

from syno_lab.inputs import printable_lines

#: Characters of a message at most, and those at its end, where it says what to do, that a longer one keeps.
LONGEST, _END = 480, 180
#: What a write ends in where there is no room: on the disk, in the user's quota, under the process's limit of a file.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class SynoError(Exception):
    """Base of every error that a user's input or environment can cause."""

    def __str__(self) -> str:
        """The message, with nothing in it that a terminal or a notebook would obey, a long one cut in its middle."""
        said = super().__str__()
        return printable_lines(said if len(said) <= LONGEST else f"{said[: LONGEST - _END - 3]} … {said[-_END:]}")


class ReadingWarning(UserWarning):
    """Something given is read as something else, in one line: what, and as what."""


class SpecError(SynoError, ValueError):
    """A shape, a variable or a limit in a specification is malformed or contradictory."""


class UnboundError(SpecError):
    """Variables have no value. ``names`` are theirs."""

    def __init__(self, said: str, names: tuple[str, ...]) -> None:
        super().__init__(said)
        self.names = names


class PrimitiveError(SynoError, ValueError):
    """A primitive was applied where Table 1 of the paper (section 5) does not allow it."""


class FormatError(SynoError, ValueError):
    """A file or a string is not what it claims to be: other version, missing fields, junk."""


class SearchError(SynoError, ValueError):
    """A search was told something it cannot learn from, or set up with settings that make no sense."""


class DataError(SynoError):
    """A data set is missing, incomplete or corrupt."""


class TrainingError(SynoError):
    """A training cannot go on, for example because the loss is not a number."""


class DiskFullError(TrainingError):
    """There is no room to write a file; what was saved is safe, and the work goes on from it once there is room."""


class TuningError(SynoError):
    """A tuning failed: TVM is missing or broken, a child process died, no candidate ran."""


class TrackerError(TuningError):
    """The RPC tracker or a device behind it does not answer within the deadline."""


class CodeError(SynoError, ValueError):
    """A function of the user's own cannot be read, sent to another process, or run."""


class ExportError(SynoError):
    """A file cannot be written in this format, or what is read back from it is not the operator."""


class StoreError(SynoError):
    """The results store is damaged, locked or of another version."""


class JobError(SynoError):
    """A job cannot be submitted, changed or done, or the cluster that runs jobs does not answer."""


class EffortError(SynoError):
    """A computation did not end within the time or the memory that it may take, or was stopped."""


class StoppedError(EffortError):
    """The caller's ``should_stop`` said so."""


class OverTimeError(EffortError):
    """The time is over."""


class TooLargeError(EffortError):
    """It would take more memory than it may."""
