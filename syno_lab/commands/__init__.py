"""The commands of ``syno-lab``, one in each file with a function ``command``."""
