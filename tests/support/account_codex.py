"""Run in the place of `codex`: an app-server that knows only calls about the account.

`answers.json` in its home has the answer to each method: `result` or `error`, then `notify`, or `die`. Each call is
appended to `calls.jsonl`.
"""

import json
import os
import sys
from pathlib import Path

HOME = Path(os.environ["CODEX_HOME"])


def write(message: object) -> None:
    print(json.dumps(message), flush=True)


def main() -> None:
    answers = json.loads((HOME / "answers.json").read_text())
    for line in sys.stdin:
        call = json.loads(line)
        if "id" not in call:
            continue
        with (HOME / "calls.jsonl").open("a") as calls:
            calls.write(json.dumps([call["method"], call["params"]]) + "\n")
        answer = answers.get(call["method"], {"result": {}})
        write({"id": call["id"], **{key: answer[key] for key in ("result", "error") if key in answer}})
        if "notify" in answer:
            write(answer["notify"])
        if "die" in answer:
            sys.exit(answer["die"])


main()
