"""What we read of app-server's messages is what the pinned binary says that it sends."""

import msgspec
import pytest
from msgspec import inspect

from tests.codex.protocol.protocol import Protocol, Schema
from turnbridge.codex import account
from turnbridge.codex.protocol import messages as schema
from turnbridge.codex.protocol.decode import HOST_ACTIONS
from turnbridge.codex.protocol.encode import DECLINES
from turnbridge.turn.items import JsonObject

pytestmark = pytest.mark.real

# Codex describes what these notifications hold, but calls them internal and does not list the methods. The recordings
# show that it sends them.
UNLISTED_NOTIFICATIONS = {
    "rawResponseItem/completed": "RawResponseItemCompletedNotification",
    "rawResponse/completed": "RawResponseCompletedNotification",
}

OTHERS: dict[type[msgspec.Struct], str] = {
    schema.ToolCallAsked: "DynamicToolCallParams",
    schema.ThreadStartResult: "ThreadStartResponse",
    schema.TurnStartResult: "TurnStartResponse",
    schema.AccountReadResult: "GetAccountResponse",
    schema.RateLimitsReadResult: "GetAccountRateLimitsResponse",
    schema.RateLimitsUpdated: "AccountRateLimitsUpdatedNotification",
    schema.ModelListResult: "ModelListResponse",
    schema.ConfigReadResult: "ConfigReadResponse",
    schema.RawItem: "ResponseItem",
    schema.DiagnosticsResult: "ServerDiagnosticsResponse",
    account.AccountRead: "GetAccountResponse",
    account.LimitsRead: "GetAccountRateLimitsResponse",
    account.LoginStarted: "LoginAccountResponse",
    account.LoginCompleted: "AccountLoginCompletedNotification",
    account.ConfigRead: "ConfigReadResponse",
}

# Items that show nothing being done on the gateway's host.
HARMLESS_ITEMS = frozenset(
    {
        "agentMessage",
        "contextCompaction",
        "dynamicToolCall",
        "enteredReviewMode",
        "exitedReviewMode",
        "functionCallOutput",
        "hookPrompt",
        "imageGeneration",
        "plan",
        "reasoning",
        "sleep",
        "userMessage",
        "webSearch",
    }
)

# What Codex asks for that has no polite no: it is told that there is no such method.
REFUSED_REQUESTS = frozenset({"account/chatgptAuthTokens/refresh", "attestation/generate", "currentTime/read"})

# Not sent by Codex: the connection adds it.
OUR_OWN_FIELDS = {(schema.ToolCallAsked, "requestId")}
# Codex sends these parts of the configuration and of raw outputs, and does not describe them.
UNDESCRIBED_FIELDS = {
    *((schema.ConfiguredModel, name) for name in ("model_providers", "profiles", "cli_auth_credentials_store")),
    (schema.RawPart, "image_url"),
}

TAKES: dict[str, tuple[type[inspect.Type], ...]] = {
    "null": (inspect.NoneType,),
    "string": (inspect.StrType,),
    "integer": (inspect.IntType,),
    "number": (inspect.FloatType,),
    "boolean": (inspect.BoolType,),
    "array": (inspect.ListType, inspect.VarTupleType),
    "object": (inspect.StructType, inspect.DictType),
}


class Comparison:
    """Our types beside Codex's: where it may send what we do not take, and which of our fields it has."""

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol
        self.problems: set[str] = set()
        self.read: set[tuple[type[msgspec.Struct], str]] = set()
        self.sent: set[tuple[type[msgspec.Struct], str]] = set()

    def compare(self, ours: inspect.Type, theirs: Schema | bool, where: str) -> None:
        """Compare a type of ours with what Codex says may stand there."""
        options = ours.types if isinstance(ours, inspect.UnionType) else (ours,)
        if any(isinstance(option, inspect.RawType) for option in options):
            return
        for shape in self._protocol.alternatives(theirs):
            kind = "object" if shape.properties else str(shape.type or "anything")
            taken = [option for option in options if isinstance(option, TAKES.get(kind, ()))]
            if not taken:
                self.problems.add(f"{where} may be {kind}")
            for option in taken:
                if isinstance(option, inspect.StructType):
                    self._compare_fields(option, shape, where)
                elif isinstance(option, inspect.ListType | inspect.VarTupleType):
                    self.compare(option.item_type, shape.items, f"{where}[]")

    def _compare_fields(self, ours: inspect.StructType, theirs: Schema, where: str) -> None:
        for field in ours.fields:
            name = field.encode_name
            self.read.add((ours.cls, name))
            if field.required and name not in theirs.required:
                self.problems.add(f"{where}.{name} may be missing")
            if name in theirs.properties:
                self.sent.add((ours.cls, name))
                self.compare(field.type, theirs.properties[name], f"{where}.{name}")


def roots(protocol: Protocol) -> dict[type[msgspec.Struct], str]:
    """Return what we decode, with the protocol's name for it."""
    decoded = {**schema.NOTIFICATIONS, **schema.OLDER_NOTIFICATIONS}
    sent = protocol.methods("ServerNotification") | UNLISTED_NOTIFICATIONS
    return {shape: sent[method] for method, shape in decoded.items()} | OTHERS


@pytest.fixture(scope="module")
def comparison(protocol: Protocol) -> Comparison:
    """Return the comparison of everything that we decode."""
    made = Comparison(protocol)
    for shape, name in roots(protocol).items():
        made.compare(inspect.type_info(shape), protocol.definitions[name], name)
    return made


@pytest.mark.promise("faults.other-versions")
def test_we_can_read_whatever_codex_may_send(comparison: Comparison) -> None:
    assert comparison.problems == set()


def test_codex_knows_every_field_that_we_read(comparison: Comparison) -> None:
    assert comparison.read - comparison.sent == OUR_OWN_FIELDS | UNDESCRIBED_FIELDS


def test_every_struct_is_held_against_the_binary(comparison: Comparison) -> None:
    structs = {
        value for value in vars(schema).values() if isinstance(value, type) and issubclass(value, msgspec.Struct)
    }
    assert structs - {struct for struct, _ in comparison.read} == {
        schema.Wire,
        schema.InTurn,
        schema.ConfiguredProvider,
        schema.ConfiguredProfile,
    }


@pytest.mark.parametrize(
    ("config", "over_websocket"),
    [
        ({}, True),
        ({"model_provider": "openai"}, True),
        ({"model_provider": "mine", "model_providers": {"mine": {}}}, False),
        ({"model_provider": "mine", "model_providers": {"mine": {"supports_websockets": True}}}, True),
        ({"model_provider": "mine", "model_providers": {"mine": {"supports_websockets": None}}}, False),
        ({"model_provider": "ollama"}, False),
    ],
)
def test_the_transport_to_the_provider_follows_from_the_configuration(config: JsonObject, over_websocket: bool) -> None:
    assert msgspec.convert(config, schema.ConfiguredModel).over_websocket is over_websocket


def test_codex_sends_every_notification_that_we_read_or_decline_to_hear(protocol: Protocol) -> None:
    sent = protocol.methods("ServerNotification") | UNLISTED_NOTIFICATIONS
    assert schema.NOTIFICATIONS.keys() - sent.keys() == set()
    assert set(schema.UNWANTED_NOTIFICATIONS) - sent.keys() == set()
    assert schema.NOTIFICATIONS.keys().isdisjoint(schema.UNWANTED_NOTIFICATIONS)


@pytest.mark.promise("safety.declined")
def test_every_request_of_codex_is_declined_or_knowingly_refused(protocol: Protocol) -> None:
    assert set(protocol.methods("ServerRequest")) == DECLINES.keys() | REFUSED_REQUESTS


@pytest.mark.promise("safety.declined")
@pytest.mark.parametrize("request_method", DECLINES)
def test_codex_understands_each_decline(protocol: Protocol, request_method: str) -> None:
    assert protocol.response_problems(request_method, DECLINES[request_method]) == []


@pytest.mark.promise("safety.stopped")
def test_every_kind_of_item_is_known_to_be_an_action_on_the_host_or_not(protocol: Protocol) -> None:
    kinds = set()
    for shape in protocol.alternatives(protocol.definitions["ThreadItem"]):
        match shape.properties["type"]:
            case Schema(enum=[kind]):
                kinds.add(kind)
    assert kinds == HOST_ACTIONS | HARMLESS_ITEMS
