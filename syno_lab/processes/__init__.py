"""Child processes that end with their parent, locks on files, and sockets that only the user's own account can use."""
