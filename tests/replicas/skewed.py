"""`turnbridge` on a machine whose clock is a minute ahead."""

import time

AHEAD_S = 60.0

if __name__ == "__main__":
    _true = time.time
    time.time = lambda: _true() + AHEAD_S
    from turnbridge.cli.main import app

    app()
