"""The version of Syno Lab, which files and records name."""

__version__ = "0.1.0"
