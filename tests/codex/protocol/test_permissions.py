"""The operator's rules for this machine reach Codex in the words of each dialect."""

import itertools
from typing import get_args

import pytest

from tests.support.codex_schema import old_schema, pinned_schema
from tests.support.turn_requests import turn_request
from turnbridge.codex.legacy import v1
from turnbridge.codex.legacy.v2_early import early_thread_params
from turnbridge.codex.protocol.capabilities import RpcCheck, read_capabilities
from turnbridge.codex.protocol.encode import STRICT, ApprovalPolicy, HostRules, Sandbox, thread_start_params
from turnbridge.codex.protocol.tool_names import ToolNames

REQUEST = turn_request(model="gpt-5.2", items=())
NAMES = ToolNames(())
EVERY_RULE = [
    HostRules(sandbox=sandbox, approval_policy=policy)
    for sandbox, policy in itertools.product(get_args(Sandbox), get_args(ApprovalPolicy))
]


@pytest.mark.parametrize("rules", EVERY_RULE, ids=lambda rules: f"{rules.sandbox}, {rules.approval_policy}")
def test_every_dialect_takes_every_rule(rules: HostRules) -> None:
    old = RpcCheck(old_schema())
    early = early_thread_params(REQUEST, (), NAMES, read_capabilities(old_schema()), logged_in=False, rules=rules)
    begun = v1.new_conversation_params(REQUEST, (), cwd="/empty", logged_in=False, rules=rules)
    turn = v1.send_user_turn_params("c", (), REQUEST, cwd="/empty", rules=rules)
    current = thread_start_params(REQUEST, NAMES, rules)
    assert [
        RpcCheck(pinned_schema()).request_problem("thread/start", current),
        old.request_problem("thread/start", early),
        old.request_problem("newConversation", begun),
        old.request_problem("sendUserTurn", turn),
    ] == [None] * 4
    wished = (rules.approval_policy, rules.sandbox)
    assert [(each["approvalPolicy"], each["sandbox"]) for each in (current, early, begun)] == [wished] * 3
    assert (turn["approvalPolicy"], turn["sandboxPolicy"]) == (rules.approval_policy, {"type": rules.sandbox})


def test_only_the_strictest_rules_let_codex_change_nothing() -> None:
    assert [rules for rules in EVERY_RULE if rules.strict] == [STRICT]
    assert not HostRules(apply_patch=True).strict
