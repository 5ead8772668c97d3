"""What the gateway does, in neutral words. Knows ports, never the adapters behind them."""
