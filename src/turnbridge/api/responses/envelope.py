"""The response object before any output: every field, with the value in force."""

from turnbridge.api.responses.decode import DecodedResponses
from turnbridge.api.responses.stored_items import conversation_id
from turnbridge.api.shared.output_format import encode_format
from turnbridge.engine.ports import Model
from turnbridge.turn import events as ev
from turnbridge.turn.items import JsonObject


def usage_object(usage: ev.Usage) -> JsonObject:
    """Return the usage of a response."""
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": usage.cache_written},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.input + usage.output,
    }


def envelope(request: DecodedResponses, model: Model, *, response_id: str, created_at: int, stored: bool) -> JsonObject:
    """Return every field of the response object, with the values in force, not those that were asked for."""
    turn, body = request.turn, request.body
    summary = None if turn.spec.summary == "none" else turn.spec.summary
    conversation = conversation_id(body.conversation)
    return {
        "id": response_id,
        "object": "response",
        "created_at": created_at,
        "status": "in_progress",
        "background": bool(body.background),
        "completed_at": None,
        "error": None,
        "incomplete_details": None,
        "instructions": turn.spec.instructions,
        "max_output_tokens": turn.max_output_tokens,
        "max_tool_calls": None,
        "model": turn.spec.model,
        "output": [],
        "parallel_tool_calls": turn.parallel_calls,
        "previous_response_id": body.previous_response_id,
        "prompt_cache_key": body.prompt_cache_key,
        "reasoning": {"effort": turn.spec.effort or model.default_effort, "summary": summary},
        "safety_identifier": body.safety_identifier,
        "service_tier": turn.spec.service_tier or "default",
        "store": stored,
        "temperature": 1.0,
        "text": {"format": encode_format(turn.spec.output), "verbosity": turn.spec.verbosity or "medium"},
        "tool_choice": body.tool_choice or "auto",
        "tools": [_declared(tool) for tool in body.tools or []],
        "top_logprobs": 0,
        "top_p": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "truncation": "disabled",
        "usage": None,
        "user": body.user,
        "metadata": body.metadata or {},
        **({} if conversation is None else {"conversation": {"id": conversation}}),
    }


def _declared(tool: JsonObject) -> JsonObject:
    """Return a tool as it was declared; a function always has `description` and `strict`."""
    if tool.get("type") != "function":
        return tool
    return {"description": None, **tool, "strict": tool.get("strict") is True}
