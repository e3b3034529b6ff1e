"""The version of Syno Lab, stored in files and records."""

__version__ = "0.1.0"
