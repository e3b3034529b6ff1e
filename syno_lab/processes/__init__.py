"""Processes: children that end with their parent, file locks, and sockets for the user's own account."""
