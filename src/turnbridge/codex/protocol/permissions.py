"""What Codex may do on this machine: nothing. Every request for approval or input is declined."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from turnbridge.turn.items import Json

Sandbox: TypeAlias = Literal["read-only", "workspace-write", "danger-full-access"]
ApprovalPolicy: TypeAlias = Literal["untrusted", "on-request", "never"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRules:
    """The operator's choices, in Codex's own words."""

    sandbox: Sandbox = "read-only"
    approval_policy: ApprovalPolicy = "never"
    """Nobody is asked: whatever needs an approval is declined."""
    apply_patch: bool = False
    """Whether the v1 dialect asks for the tool that changes files."""
    plain_messages: bool = False
    """Whether the v1 dialect sends messages instead of turns, which carry no settings of their own."""

    @property
    def strict(self) -> bool:
        """Tell whether a tool that Codex kept against our will could change nothing here."""
        return self.sandbox == "read-only" and self.approval_policy == "never" and not self.apply_patch


STRICT = HostRules()


NOBODY = "Nobody can answer here: this model is used through an API."

DECLINES: dict[str, Json] = {
    "item/commandExecution/requestApproval": {"decision": "decline"},
    "item/fileChange/requestApproval": {"decision": "decline"},
    "item/permissions/requestApproval": {"permissions": {}},
    "item/tool/requestUserInput": {"answers": {}},
    "item/tool/call": {"contentItems": [{"type": "inputText", "text": NOBODY}], "success": False},
    "mcpServer/elicitation/request": {"action": "decline"},
    "applyPatchApproval": {"decision": {"denied": {"rejection": NOBODY}}},
    "execCommandApproval": {"decision": {"denied": {"rejection": NOBODY}}},
}
