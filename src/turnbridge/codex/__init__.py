"""Everything known about Codex: its protocol, its processes, older versions, what it adds to a request."""
