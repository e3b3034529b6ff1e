"""Processes: children that cannot outlive their parent, locks, sockets of this account alone."""
