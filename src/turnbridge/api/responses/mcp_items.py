"""The items of MCP servers, both ways: lists of tools, calls, requests for approval and their answers.

To the model a call is one of a function in the server's namespace, with its output. The id of an item has the id of
that call in it, and tells whether it was made together with the call before it. So a history shows the model again just
what it saw.
"""

from collections.abc import Mapping, Sequence
from typing import Self, TypeAlias, assert_never

import msgspec

from turnbridge.api.shared.validation import convert
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.events import McpApprovalAsked, McpCallDone, McpCallStarted, McpToolsListed
from turnbridge.turn.items import FunctionCall, FunctionCallOutput, Json, JsonObject
from turnbridge.turn.json_schema import unreadable
from turnbridge.turn.mcp import NAMESPACE_PREFIX, ApprovedCall, McpTool, shown_result

ServerEvent: TypeAlias = McpToolsListed | McpCallStarted | McpCallDone | McpApprovalAsked

LIST_TOOLS, CALL = "mcp_list_tools", "mcp_call"
APPROVAL_REQUEST, APPROVAL_RESPONSE = "mcp_approval_request", "mcp_approval_response"

TOGETHER_PREFIX, CALL_PREFIX, REQUEST_PREFIX = "mcp_and_", "mcp_", "mcpr_"

DECLINED = "The user declined this tool call."
RESULT_UNKNOWN = "The user approved this tool call. What it gave is not known."
# The types of items that a model, or a server that it called, has produced.
SAID = frozenset({CALL, APPROVAL_REQUEST, "reasoning", "function_call", "custom_tool_call", "web_search_call"})


class _ListedTool(msgspec.Struct):
    name: str
    input_schema: JsonObject
    description: str | None = None
    annotations: JsonObject | None = None


class _ToolsItem(msgspec.Struct):
    server_label: str
    tools: list[_ListedTool]


class _CallItem(msgspec.Struct):
    id: str
    server_label: str
    name: str
    arguments: str
    output: str | None = None
    error: JsonObject | str | None = None
    approval_request_id: str | None = None


class _RequestItem(msgspec.Struct):
    id: str
    server_label: str
    name: str
    arguments: str


class _ResponseItem(msgspec.Struct):
    approval_request_id: str
    approve: bool
    reason: str | None = None


class McpHistory:
    """What all items of a request together say of MCP servers: an approval, and its call, may be far apart."""

    @classmethod
    def of(cls, placed: Sequence[tuple[str, JsonObject]]) -> Self:
        """Return what the items of a request, each with its place, say; most say nothing."""
        if not any(is_of_mcp(item.get("type")) for _, item in placed):
            return cls({})
        return cls(dict(placed))

    def __init__(self, items: Mapping[str, JsonObject]) -> None:
        """Take the items by their place."""
        self.listed: dict[str, tuple[McpTool, ...]] = {}
        self.approved: list[ApprovedCall] = []
        self._run: dict[str, _CallItem] = {}
        self._requests: dict[str, _RequestItem] = {}
        self._answers: dict[str, _ResponseItem] = {}
        last_said = ""
        answered: list[str] = []
        for param, item in items.items():
            kind = item.get("type")
            if kind == LIST_TOOLS:
                self._add_list(convert(item, _ToolsItem, param=param), param)
            elif kind == CALL:
                call = convert(item, _CallItem, param=param)
                if call.approval_request_id is not None:
                    self._run[call.approval_request_id] = call
            elif kind == APPROVAL_REQUEST:
                self._requests[str(item.get("id"))] = convert(item, _RequestItem, param=param)
            elif kind == APPROVAL_RESPONSE:
                self._add_answer(convert(item, _ResponseItem, param=param), param)
                answered.append(str(item["approval_request_id"]))
            if kind in SAID or item.get("role") == "assistant":
                last_said, answered = param, []
        self._check_answered(last_said)
        self._new = frozenset(answered)
        self.approved = [
            ApprovedCall(
                call_id=_call_id(asked.id), label=asked.server_label, name=asked.name, arguments=asked.arguments
            )
            for request_id in answered
            if (asked := self._requests[request_id]) and self._is_to_run(request_id)
        ]

    def _is_to_run(self, request_id: str) -> bool:
        return request_id in self._new and self._answers[request_id].approve and request_id not in self._run

    def _add_list(self, item: _ToolsItem, param: str) -> None:
        for index, tool in enumerate(item.tools):
            if (problem := unreadable(tool.input_schema)) is not None:
                place = f"{param}.tools[{index}].input_schema"
                raise InvalidRequest(f"Invalid value for '{place}': {problem}.", code="invalid_value", param=place)
        self.listed[item.server_label] = tuple(
            McpTool(
                name=tool.name,
                description=tool.description,
                input_schema=tool.input_schema,
                annotations=tool.annotations,
            )
            for tool in item.tools
        )

    def _add_answer(self, item: _ResponseItem, param: str) -> None:
        if item.approval_request_id not in self._requests:
            message = f"No approval request found with id '{item.approval_request_id[:64]}'."
            raise InvalidRequest(message, code="invalid_value", param=f"{param}.approval_request_id")
        if item.approval_request_id in self._answers:
            message = f"The approval request '{item.approval_request_id[:64]}' is answered twice."
            raise InvalidRequest(message, code="invalid_value", param=f"{param}.approval_request_id")
        self._answers[item.approval_request_id] = item

    def _check_answered(self, last_said: str) -> None:
        if unanswered := [request_id for request_id in self._requests if request_id not in self._answers]:
            message = f"No approval response found for mcp_approval_request '{unanswered[0][:64]}'."
            raise InvalidRequest(message, param=last_said.partition("[")[0] or "input")

    def items(self, item: JsonObject, param: str) -> tuple[FunctionCall | None, FunctionCallOutput | None]:
        """Return the call, the output, or both, as which the model is shown an item."""
        match item.get("type"):
            case "mcp_call":
                call = convert(item, _CallItem, param=param)
                if call.approval_request_id in self._answers:
                    # It stands where it was approved.
                    return None, None
                return _function_call(call), _output(call.id, call)
            case "mcp_approval_request":
                return _function_call(convert(item, _RequestItem, param=param)), None
            case "mcp_approval_response":
                given = convert(item, _ResponseItem, param=param)
                return None, self._answer(given)
            case _:
                return None, None

    def _answer(self, given: _ResponseItem) -> FunctionCallOutput:
        request_id = given.approval_request_id
        if not given.approve:
            text = f"{DECLINED} {given.reason}" if given.reason else DECLINED
            return FunctionCallOutput(call_id=_call_id(request_id), output=text)
        if (run := self._run.get(request_id)) is not None:
            return _output(request_id, run)
        # What is run for this request is filled in when it is known.
        text = "" if self._is_to_run(request_id) else RESULT_UNKNOWN
        return FunctionCallOutput(call_id=_call_id(request_id), output=text)


def is_of_mcp(kind: Json) -> bool:
    """Tell whether an item is about an MCP server."""
    return kind in (LIST_TOOLS, CALL, APPROVAL_REQUEST, APPROVAL_RESPONSE)


def was_together(item: JsonObject) -> bool:
    """Tell whether a call was made at the same time as the one before it."""
    return str(item.get("id")).startswith(TOGETHER_PREFIX)


def _call_id(item_id: str) -> str:
    for prefix in (TOGETHER_PREFIX, REQUEST_PREFIX, CALL_PREFIX):
        if item_id.startswith(prefix):
            return item_id.removeprefix(prefix)
    return item_id


def _function_call(item: _CallItem | _RequestItem) -> FunctionCall:
    namespace = f"{NAMESPACE_PREFIX}{item.server_label}"
    return FunctionCall(call_id=_call_id(item.id), name=item.name, arguments=item.arguments, namespace=namespace)


def _output(item_id: str, call: _CallItem) -> FunctionCallOutput:
    error: JsonObject | None = {"message": call.error} if isinstance(call.error, str) else call.error
    return FunctionCallOutput(call_id=_call_id(item_id), output=shown_result(call.output, error))


def begun_item(event: McpToolsListed | McpCallStarted | McpApprovalAsked, response_id: str) -> JsonObject:
    """Return an item when it is added; a response has one list of tools for each label."""
    match event:
        case McpToolsListed():
            item_id = f"mcpl_{response_id.removeprefix('resp_')}_{event.label}"
            return {"type": LIST_TOOLS, "id": item_id, "server_label": event.label, "tools": [], "error": None}
        case McpCallStarted():
            return {
                "type": CALL,
                "id": f"{TOGETHER_PREFIX if event.parallel else CALL_PREFIX}{event.call_id}",
                "status": "in_progress",
                "approval_request_id": f"{REQUEST_PREFIX}{event.call_id}" if event.approved else None,
                "arguments": "",
                "error": None,
                "name": event.name,
                "output": None,
                "server_label": event.label,
            }
        case McpApprovalAsked():
            item: JsonObject = {"type": APPROVAL_REQUEST, "id": f"{REQUEST_PREFIX}{event.call_id}"}
            return {**item, "arguments": event.arguments, "name": event.name, "server_label": event.label}
        case _:
            assert_never(event)


def steps(event: ServerEvent) -> list[tuple[str, JsonObject]]:
    """Return the names of the events that tell of an item besides those that every item has, and their fields."""
    match event:
        case McpToolsListed():
            return [("mcp_list_tools.in_progress", {}), ("mcp_list_tools.completed", {})]
        case McpCallStarted(arguments=arguments):
            begun: list[tuple[str, JsonObject]] = [("mcp_call.in_progress", {})]
            if arguments:
                begun.append(("mcp_call_arguments.delta", {"delta": arguments}))
            return [*begun, ("mcp_call_arguments.done", {"arguments": arguments})]
        case McpCallDone(result=result):
            return [("mcp_call.completed" if result.error is None else "mcp_call.failed", {})]
        case McpApprovalAsked():
            return []
        case _:
            assert_never(event)


def known_fields(event: ServerEvent) -> JsonObject:
    """Return the fields of an item that are known after an event."""
    match event:
        case McpToolsListed():
            return {"tools": [_tool_object(tool) for tool in event.tools]}
        case McpCallStarted():
            return {"arguments": event.arguments}
        case McpCallDone(result=result):
            status = "completed" if result.error is None else "failed"
            return {"status": status, "output": result.output, "error": result.error}
        case McpApprovalAsked():
            return {}
        case _:
            assert_never(event)


def _tool_object(tool: McpTool) -> JsonObject:
    about: JsonObject = {"annotations": tool.annotations, "description": tool.description}
    return {**about, "input_schema": tool.input_schema, "name": tool.name}
