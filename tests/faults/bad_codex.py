"""A Codex that can misbehave: `debug models` and `app-server`, in the words of the real one (`recorded.json`).

`BAD_CODEX_START` says what is wrong from the start on, `BAD_CODEX_PROBE` how it answers when it is asked whether it is
alive: `refusal`, `strange answers`; or by how many MB it has grown each time: `100`. What is wrong with one turn stands
in its instructions, as JSON, so that the turns beside it are well:

    {"fault": NAME, "when": WHEN}   "thread", "items", "turn": as the call is to be answered that starts its thread,
                                    brings its history, starts the turn; "before" its first output, "after" it
    {..., "once": FILE}             only if there is no such file yet; it is then made
    {"gate": FILE}                  no fault, but the turn ends only when there is such a file

Standard library only: it starts in 20 ms, and imports nothing of what it tests.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("recorded.json").read_text(encoding="utf-8"))
THREAD = RECORDED["answers"]["thread/start"]["thread"]["id"]
TURN = RECORDED["answers"]["turn/start"]["turn"]["id"]

HUGE = 50_000_000
ENDLESS_PIECE = 1_000_000
GARBAGE = (
    b"plain words",
    b"{",
    b"[1]",
    b"null",
    b'{"id": 1.5}',
    b'{"method": 7}',
    b'{"error": "words"}',
    b'{"method": "\xff"}',
    b'{"result": ' + b"[" * 100_000,
    b"\x00\x01\x02",
)
BAD_ANSWERS: dict[str, dict[str, Any]] = {
    "refusal": {"error": {"code": -32600, "message": "unknown variant"}},
    "strange answers": {"result": "words"},
    "wrong ids": {"id": -1, "result": {}},
}
ODD_ANSWERS: dict[str, dict[str, Any]] = {
    "unknown version": {"initialize": {"userAgent": "codex/999.0.0-nightly", "surprise": [1]}},
    "odd account": {"account/read": {"account": None, "requiresOpenaiAuth": "perhaps"}},
    "odd models": {"model/list": {"data": [{"id": 5}]}},
    "odd settings": {"config/read": {"config": []}},
}
PROBE = os.environ.get("BAD_CODEX_PROBE", "")
# Somebody looks at the gate this often.
GATE_INTERVAL_S = 0.01


def memory(megabytes: int) -> dict[str, Any]:
    """Return an answer that tells so much memory."""
    return {"result": {"process": {"residentMemoryBytes": megabytes << 20}}}


class AppServer:
    """The conversation over stdin and stdout."""

    def __init__(self) -> None:
        self._writing = threading.Lock()
        self._numbers = count(1)
        self._probes = 0
        self._wishes: dict[str, dict[str, str]] = {}
        self._answered = threading.Condition()
        self._answers: dict[str, Any] = {}
        self.asked = 0
        """The id of the request that is being answered."""

    def write(self, *lines: bytes) -> None:
        with self._writing:
            sys.stdout.buffer.write(b"".join(line + b"\n" for line in lines))
            sys.stdout.buffer.flush()

    def say(self, message: dict[str, Any]) -> None:
        self.write(json.dumps(message).encode())

    def serve(self) -> None:
        for line in sys.stdin.buffer:
            message = json.loads(line)
            if "id" in message and "method" in message:
                self._answer(message["id"], message["method"], message.get("params") or {})
            elif "id" in message:
                with self._answered:
                    self._answers[message["id"]] = message.get("result")
                    self._answered.notify_all()

    def ask(self, *questions: dict[str, Any]) -> list[Any]:
        """Ask for all of this at once, and return the answers when the last one has come."""
        numbers = [question["id"] for question in questions]
        with self._answered:
            self.write(*(json.dumps(question).encode() for question in questions))
            self._answered.wait_for(lambda: self._answers.keys() >= set(numbers))
            return [self._answers.pop(number) for number in numbers]

    def _answer(self, number: int, method: str, params: dict[str, Any]) -> None:
        self.asked = number
        if method == "thread/start":
            self._start_thread(number, params)
        elif method == "server/diagnostics" and PROBE:
            self._probes += 1
            self.say({"id": number, **(BAD_ANSWERS.get(PROBE) or memory(self._probes * int(PROBE)))})
        elif method == "thread/inject_items" and self._goes_wrong(params["threadId"], "items"):
            return
        elif method == "turn/start" and not self._goes_wrong(params["threadId"], "turn"):
            threading.Thread(target=self._run, args=(number, params["threadId"]), daemon=True).start()
        elif method != "turn/start":
            self.say({"id": number, "result": RECORDED["answers"].get(method, {})})

    def _goes_wrong(self, thread: str, when: str) -> bool:
        wish = self._wishes[thread]
        return is_due(wish, when) and FAULTS[wish["fault"]](self, thread)

    def _start_thread(self, number: int, params: dict[str, Any]) -> None:
        thread = f"thread-{os.getpid()}-{next(self._numbers)}"
        self._wishes[thread] = json.loads(params["baseInstructions"] or "{}")
        if not self._goes_wrong(thread, "thread"):
            self.say(about(thread, {"id": number, "result": RECORDED["answers"]["thread/start"]}))

    def _run(self, number: int, thread: str) -> None:
        wish = self._wishes[thread]
        echo, item, *rest = RECORDED["turn"]
        for message in (echo, {"id": number, "result": RECORDED["answers"]["turn/start"]}, item):
            self.say(about(thread, message))
        if self._goes_wrong(thread, "before"):
            return
        self.say(about(thread, rest[0]))
        if self._goes_wrong(thread, "after"):
            return
        while "gate" in wish and not Path(wish["gate"]).exists():
            time.sleep(GATE_INTERVAL_S)
        for message in rest[1:]:
            self.say(about(thread, message))


def about(thread: str, message: dict[str, Any]) -> dict[str, Any]:
    """Return what was recorded as if it had been about this thread."""
    told: dict[str, Any] = json.loads(json.dumps(message).replace(THREAD, thread).replace(TURN, f"turn-of-{thread}"))
    return told


def is_due(wish: dict[str, str], when: str) -> bool:
    """Tell whether something goes wrong here, and take note of it."""
    if wish.get("when") != when:
        return False
    if "once" in wish:
        mark = Path(wish["once"])
        if mark.exists():
            return False
        mark.touch()
    return True


def garbage(server: AppServer, _thread: str) -> bool:
    server.write(*GARBAGE)
    return False


def half_lines(_server: AppServer, thread: str) -> bool:
    line = json.dumps(about(thread, {"method": "thread/invented", "params": {"threadId": THREAD}})).encode() + b"\n"
    for piece in (line[:7], line[7:]):
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
    return False


def huge_garbage(server: AppServer, _thread: str) -> bool:
    server.write(b"x" * HUGE)
    return False


def huge_notification(server: AppServer, thread: str) -> bool:
    server.say({"method": "thread/invented", "params": {"threadId": thread, "what": "x" * HUGE}})
    return False


def endless_line(server: AppServer, _thread: str) -> bool:
    with server._writing:
        while True:
            sys.stdout.buffer.write(b"x" * ENDLESS_PIECE)


def wrong_ids(server: AppServer, _thread: str) -> bool:
    for number in (0, -1, 10**15, "words", None):
        server.say({"id": number, "result": {}})
        server.say({"id": number, "error": {"code": -32600, "message": "never asked"}})
    return False


def unknown_notifications(server: AppServer, thread: str) -> bool:
    for _ in range(1000):
        server.say({"method": "thread/invented", "params": {"threadId": thread}})
    return False


def other_threads(server: AppServer, _thread: str) -> bool:
    for message in RECORDED["turn"]:
        server.say(about("nobody's", message))
    return False


def broken_notification(server: AppServer, thread: str) -> bool:
    server.say({"method": "item/agentMessage/delta", "params": {"threadId": thread, "delta": 5}})
    return False


def broken_tool_call(server: AppServer, _thread: str) -> bool:
    server.say({"id": "q", "method": "item/tool/call", "params": {"threadId": 5}})
    return False


def calls_at_once(server: AppServer, thread: str) -> bool:
    """Run a script of the model's that calls two functions at the same time."""
    cities = ("Oslo", "Bern")
    asked = {"threadId": thread, "turnId": f"turn-of-{thread}", "tool": "weather"}
    calls = [{**asked, "callId": f"exec-{city}", "arguments": {"city": city}} for city in cities]
    questions = [{"id": f"{thread} {call['callId']}", "method": "item/tool/call", "params": call} for call in calls]
    outputs = [answer["contentItems"][0]["text"] for answer in server.ask(*questions)]
    return outputs != [f"sunny in {city}" for city in cities]


def broken_answer(server: AppServer, _thread: str) -> bool:
    server.say({"id": server.asked, "result": "words"})
    return True


def internal_error(server: AppServer, _thread: str) -> bool:
    server.say({"id": server.asked, "error": {"code": -32603, "message": "database is locked"}})
    return True


def answer_not_utf8(server: AppServer, _thread: str) -> bool:
    server.write(b'{"id": %d, "result": {"what": "\xff"}}' % server.asked)
    return True


def delta_not_utf8(server: AppServer, thread: str) -> bool:
    params = {"threadId": thread, "turnId": f"turn-of-{thread}", "itemId": "i", "delta": "HERE"}
    line = json.dumps({"method": "item/agentMessage/delta", "params": params})
    server.write(line.encode().replace(b"HERE", b"\xff"))
    return False


def item_not_utf8(server: AppServer, thread: str) -> bool:
    params = {"threadId": thread, "turnId": f"turn-of-{thread}", "item": {"type": "other", "text": "HERE"}}
    line = json.dumps({"method": "rawResponseItem/completed", "params": params})
    server.write(line.encode().replace(b"HERE", b"\xc3\x28"))
    return False


def silence(_server: AppServer, _thread: str) -> bool:
    return True


def closed_stdout(_server: AppServer, _thread: str) -> bool:
    sys.stdout.buffer.flush()
    os.close(1)
    return True


def exit_now(_server: AppServer, _thread: str) -> bool:
    os._exit(3)


def half_a_line_and_exit(_server: AppServer, thread: str) -> bool:
    sys.stdout.buffer.write(json.dumps({"method": "turn/completed", "params": {"threadId": thread}}).encode()[:30])
    sys.stdout.buffer.flush()
    os._exit(3)


def stop(_server: AppServer, _thread: str) -> bool:
    os.kill(os.getpid(), signal.SIGSTOP)
    return True


FAULTS: dict[str, Callable[[AppServer, str], bool]] = {
    fault.__name__: fault
    for fault in (
        garbage,
        half_lines,
        huge_garbage,
        huge_notification,
        endless_line,
        wrong_ids,
        unknown_notifications,
        other_threads,
        broken_notification,
        broken_tool_call,
        calls_at_once,
        broken_answer,
        internal_error,
        answer_not_utf8,
        delta_not_utf8,
        item_not_utf8,
        silence,
        closed_stdout,
        exit_now,
        half_a_line_and_exit,
        stop,
    )
}
"""Each returns whether the turn ends with it, as far as Codex is concerned."""


def serve_badly(fault: str) -> None:
    """Do what an app-server does whose very start goes wrong."""
    if fault == "exit":
        raise SystemExit("bad codex: no disk left")
    if fault == "garbage":
        sys.stdout.buffer.write(b"\n".join(GARBAGE) + b"\n")
        sys.stdout.buffer.flush()
    if fault == "closed stdout":
        sys.stdout.buffer.flush()
        os.close(1)
    for line in sys.stdin.buffer:
        number = json.loads(line).get("id")
        if fault in BAD_ANSWERS:
            print(json.dumps({"id": number, **BAD_ANSWERS[fault]}), flush=True)


def main() -> None:
    fault = os.environ.get("BAD_CODEX_START", "")
    if sys.argv[1] == "debug":
        print("no catalogue" if fault == "no catalogue" else json.dumps(RECORDED["catalog"]))
    elif sys.argv[1] == "app-server" and fault in ODD_ANSWERS:
        RECORDED["answers"].update(ODD_ANSWERS[fault])
        AppServer().serve()
    elif sys.argv[1] == "app-server" and fault:
        serve_badly(fault)
    else:
        AppServer().serve()


if __name__ == "__main__":
    main()
