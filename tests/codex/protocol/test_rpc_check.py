"""What we send is held against the binary's own schema; a violation is told by its place, without its content."""

import re

import pytest

from tests.support.codex_schema import old_schema, pinned_schema
from turnbridge.codex.protocol.capabilities import RpcCheck
from turnbridge.turn.items import Json

pytestmark = pytest.mark.real

TOOL: Json = {"type": "function", "name": "look", "description": "Looks.", "inputSchema": {}}


@pytest.fixture(scope="module")
def pinned() -> RpcCheck:
    """Return the check of the pinned binary."""
    return RpcCheck(pinned_schema())


@pytest.mark.parametrize(
    ("method", "params", "problem"),
    [
        ("thread/start", {"dynamicTools": [TOOL], "sandbox": "read-only"}, None),
        ("turn/interrupt", {"threadId": "t", "turnId": "u"}, None),
        ("account/rateLimits/read", None, None),
        ("thread/invented", {}, "there is no such method"),
        ("turn/interrupt", {"threadId": "t"}, "`` breaks .*required"),
        ("turn/interrupt", {"threadId": "t", "turnId": 5}, "`turnId` breaks .*type"),
        ("thread/start", {"dynamicTools": [TOOL, {"name": "secret"}]}, "`dynamicTools/1` breaks .*oneOf"),
        ("thread/start", {"sandbox": "readOnly"}, "`sandbox` breaks .*anyOf"),
        ("thread/start", {"snake_case": 1}, "there is no field `snake_case`"),
        ("turn/interrupt", "words", "`` breaks .*type"),
    ],
)
def test_a_request_is_as_the_binary_wants_it(pinned: RpcCheck, method: str, params: Json, problem: str | None) -> None:
    found = pinned.request_problem(method, params)
    assert found == problem if problem is None else re.fullmatch(problem, found or "")


def test_what_a_client_said_is_not_repeated(pinned: RpcCheck) -> None:
    params: Json = {"threadId": "t", "input": [{"type": "secret", "text": "secret"}]}
    found = pinned.request_problem("turn/start", params)
    assert found is not None
    assert found.startswith("`input/0` breaks ")
    assert "secret" not in found


@pytest.mark.parametrize(
    ("question", "result", "pinned_takes", "old_takes"),
    [
        ("item/tool/call", {"contentItems": [{"type": "inputText", "text": "it"}], "success": True}, True, False),
        ("item/tool/call", {"output": "it", "success": True}, False, True),
        ("item/tool/call", {"contentItems": [{"type": "text"}], "success": True}, False, False),
        ("item/commandExecution/requestApproval", {"decision": "decline"}, True, True),
        ("item/commandExecution/requestApproval", {"decision": "decline", "why": "so"}, False, False),
        ("item/invented", {}, False, False),
    ],
)
def test_an_answer_is_as_the_binary_wants_it(
    pinned: RpcCheck, question: str, result: Json, pinned_takes: bool, old_takes: bool
) -> None:
    taken = [check.reply_problem(question, result) is None for check in (pinned, RpcCheck(old_schema()))]
    assert taken == [pinned_takes, old_takes]
