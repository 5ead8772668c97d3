"""A scripted model behind the real Codex: the gateway can be tried without an account, and tested."""
