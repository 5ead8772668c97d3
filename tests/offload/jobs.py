"""Jobs for helper processes: what hostile data makes of them."""

import json
import os
import signal


def job(given: bytes) -> bytes:
    """Do what the name of the job says."""
    match given:
        case b"pid":
            return str(os.getpid()).encode()
        case b"variables":
            return json.dumps(dict(os.environ)).encode()
        case b"endless":
            # In native code, which holds the interpreter's lock and looks at no signal.
            return str(sum(range(10**12))).encode()
        case b"stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case b"crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case b"raise":
            raise ValueError
        case b"fill":
            return bytes(2**30)
        case _:
            pass
    return given
