"""Settings of the clients that people use with the gateway: what they are, writing them, and a test call."""
