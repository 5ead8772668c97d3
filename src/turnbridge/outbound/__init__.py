"""Connections to hosts that clients name."""
