"""Data sets: find, download and read images and texts."""
