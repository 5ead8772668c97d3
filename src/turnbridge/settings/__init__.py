"""Every setting: its name, type, default and where its value came from."""
