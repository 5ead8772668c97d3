"""A turn that calls functions is decoded leg by leg: each call once, with the order and the usage of its own leg."""

import msgspec

from turnbridge.codex.protocol import messages as schema
from turnbridge.codex.protocol.decode import TurnDecoder
from turnbridge.codex.protocol.tool_names import ToolNames
from turnbridge.turn import events as ev
from turnbridge.turn.items import JsonObject
from turnbridge.turn.request import Namespace, Tool

THREAD, TURN = "thread-1", "turn-1"
COUNTED = schema.RawResponseCompleted(THREAD, TURN, schema.TokenUsage(input_tokens=3, output_tokens=2))


def whole(item: JsonObject) -> schema.RawItemCompleted:
    return schema.RawItemCompleted(THREAD, TURN, msgspec.Raw(msgspec.json.encode(item)))


def call(number: int) -> schema.RawItemCompleted:
    named: JsonObject = {"id": f"fc_{number}", "call_id": f"call_{number}", "name": "f", "arguments": "{}"}
    return whole({"type": "function_call", **named})


def asked(number: int) -> schema.ToolCallAsked:
    return schema.ToolCallAsked(THREAD, TURN, f"call_{number}", "f", msgspec.Raw(b"{}"))


def output(number: int) -> schema.RawItemCompleted:
    return whole({"type": "function_call_output", "call_id": f"call_{number}", "output": "done"})


def called(number: int) -> ev.FunctionCallDone:
    return ev.FunctionCallDone(f"fc_{number}", f"call_{number}", "f", "{}", None)


def decoder() -> TurnDecoder:
    made = TurnDecoder(ToolNames(["f"]))
    made.turn_id = TURN
    return made


def test_a_call_that_codex_also_asks_for_is_one_call() -> None:
    reader = decoder()
    assert reader.read([call(1), asked(1), COUNTED])[:-1] == [called(1)]
    assert not reader.holds_calls


def test_a_leg_after_the_outputs_has_its_own_order_and_usage() -> None:
    reader = decoder()
    usage = ev.Usage(input=3, output=2)
    assert reader.read([call(1), call(2), COUNTED])[-1] == ev.CallsAwaited(usage, ("fc_1", "fc_2"))
    reader.resume()
    assert reader.read([call(3), COUNTED]) == [called(3), ev.CallsAwaited(usage, ("fc_3",))]


def test_calls_that_are_released_before_their_response_is_counted_have_an_estimated_usage() -> None:
    reader = decoder()
    reader.read([call(1)])
    assert reader.release_calls()[-1] == ev.CallsAwaited(ev.Usage(estimated=True), ("fc_1",))


def test_calls_of_a_script_are_released_with_the_exact_usage_once_their_response_is_counted() -> None:
    reader = decoder()
    # The output of an earlier call is no beginning of another response.
    reader.read([COUNTED, output(1), asked(2)])
    *_, ending = reader.release_calls()
    assert isinstance(ending, ev.CallsAwaited)
    assert ending.usage == ev.Usage(input=3, output=2)


def test_calls_in_a_namespace_have_the_clients_names_whoever_asks_for_them() -> None:
    crm = Namespace(name="web", description="")
    tools = [Tool(name=name, description="", parameters={}, namespace=crm) for name in ("mcp", "f")]
    reader = TurnDecoder(ToolNames.of(tools))
    reader.turn_id = TURN
    made: JsonObject = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "arguments": "{}"}
    notes: list[schema.Note] = [
        whole({**made, "name": "client_mcp", "namespace": "client_web"}),
        # These are not declared.
        whole({**made, "name": "f", "call_id": "call_2"}),
        whole({**made, "name": "f", "call_id": "call_3", "namespace": "web"}),
        whole({**made, "name": "g", "call_id": "call_4", "namespace": "client_web"}),
        schema.ToolCallAsked(THREAD, TURN, "call_5", "f", msgspec.Raw(b"{}"), "client_web"),
        COUNTED,
    ]
    assert reader.read(notes)[:-1] == [
        ev.FunctionCallDone("fc_1", "call_1", "mcp", "{}", "web"),
        ev.FunctionCallDone("fc_call_5", "call_5", "f", "{}", "web"),
    ]


def test_calls_of_a_script_that_come_after_their_response_have_its_usage() -> None:
    reader = decoder()
    reader.read([output(0), whole({"type": "message", "role": "user", "content": []}), COUNTED, asked(1)])
    assert reader.release_calls()[-1].usage == ev.Usage(input=3, output=2)  # type: ignore[union-attr]
