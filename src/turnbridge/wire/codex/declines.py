"""What Codex is told when it asks for permission, input or a tool: always no, at once, so that nothing ever waits.

The model works for a remote client here; nobody sits at this machine to approve anything.
"""

from turnbridge.turn.items import Json

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
