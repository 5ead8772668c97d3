"""The wire trace: what goes over both wires, written down as it is, without the secrets."""
