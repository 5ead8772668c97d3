"""The Files API."""
