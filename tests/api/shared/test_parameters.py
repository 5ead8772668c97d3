"""Parameters that both APIs know."""

from collections.abc import Callable

import pytest
from msgspec import Struct, defstruct

from tests.api.shared.told import Told, told
from turnbridge.api.shared import parameters
from turnbridge.api.shared.parameters import Parameters
from turnbridge.api.shared.validation import one_of, within
from turnbridge.turn.errors import InvalidRequest
from turnbridge.turn.items import Json


def request(**given: Json) -> Struct:
    return defstruct("Request", list(given))(**given)


@pytest.mark.promise("parameters.bounds")
@pytest.mark.parametrize(
    ("refused", "expected"),
    [
        (
            lambda: parameters.refuse(
                request(audio=None, logprobs=True), {"audio": "No.", "logprobs": "Codex gives none."}
            ),
            Told(
                InvalidRequest,
                "Unsupported parameter: 'logprobs'. Codex gives none.",
                "unsupported_parameter",
                "logprobs",
            ),
        ),
        (
            lambda: one_of("loud", ("low", "high"), param="verbosity"),
            Told(
                InvalidRequest,
                "Invalid value: 'loud'. Supported values are: 'low' and 'high'.",
                "invalid_value",
                "verbosity",
            ),
        ),
        (
            lambda: within(15, 16, param="max_output_tokens"),
            Told(
                InvalidRequest,
                "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 15 instead.",
                "integer_below_min_value",
                "max_output_tokens",
            ),
        ),
        (
            lambda: parameters.ignored(request(temperature=-1), {"temperature": 1}),
            Told(
                InvalidRequest,
                "Invalid 'temperature': decimal below minimum value. Expected a value >= 0, but got -1 instead.",
                "decimal_below_min_value",
                "temperature",
            ),
        ),
        (
            lambda: parameters.ignored(request(top_p=1.5), {"top_p": 1}),
            Told(
                InvalidRequest,
                "Invalid 'top_p': decimal above maximum value. Expected a value <= 1, but got 1.5 instead.",
                "decimal_above_max_value",
                "top_p",
            ),
        ),
        (
            lambda: parameters.stop_sequences(["a", "b", "c", "d", "e"]),
            Told(
                InvalidRequest,
                "Invalid 'stop': array too long. Expected at most 4 sequences, but got 5.",
                "array_above_max_length",
                "stop",
            ),
        ),
        (
            lambda: parameters.stop_sequences(["a", ""]),
            Told(InvalidRequest, "Invalid 'stop': a sequence must not be empty.", "invalid_value", "stop"),
        ),
        (
            lambda: parameters.stop_sequences(["a", "b" * 1025]),
            Told(
                InvalidRequest,
                "Invalid 'stop': string too long. Expected at most 1024 characters, but got 1025.",
                "string_above_max_length",
                "stop",
            ),
        ),
        (
            lambda: parameters.check_metadata({str(number): "" for number in range(17)}),
            Told(
                InvalidRequest,
                "Invalid 'metadata': too many properties. Expected at most 16, but got 17.",
                "object_above_max_properties",
                "metadata",
            ),
        ),
        (
            lambda: parameters.check_metadata({"k": "v" * 513}),
            Told(
                InvalidRequest,
                "Invalid 'metadata.k': a key has at most 64 characters, a value at most 512.",
                "string_above_max_length",
                "metadata",
            ),
        ),
        (
            lambda: parameters.check_metadata({"k" * 65: ""}),
            Told(
                InvalidRequest,
                f"Invalid 'metadata.{'k' * 64}': a key has at most 64 characters, a value at most 512.",
                "string_above_max_length",
                "metadata",
            ),
        ),
    ],
)
def test_a_value_out_of_bounds_is_refused_in_openais_words(refused: Callable[[], object], expected: Told) -> None:
    with pytest.raises(InvalidRequest) as caught:
        refused()
    assert told(caught.value) == expected


@pytest.mark.promise("parameters.bounds")
def test_values_on_the_bounds_pass() -> None:
    metadata = {f"{number:064}": "v" * 512 for number in range(16)}
    assert parameters.check_metadata(metadata) == metadata
    assert parameters.stop_sequences(["a", "b", "c", "d"]) == ("a", "b", "c", "d")
    assert within(16, 16, param="max_output_tokens") == 16
    assert one_of("low", ("low", "high"), param="verbosity") == "low"
    given = request(temperature=2, top_p=0)
    assert parameters.ignored(given, {"temperature": 1, "top_p": 1}) == ["temperature", "top_p"]


def test_what_is_not_given_stays_so() -> None:
    assert parameters.check_metadata(None) == {}
    assert parameters.stop_sequences(None) == parameters.stop_sequences([]) == ()
    assert within(None, 16, param="max_output_tokens") is None
    assert one_of(None, ("low", "high"), param="verbosity") is None


def test_one_stop_sequence_may_stand_alone() -> None:
    assert parameters.stop_sequences("END") == ("END",)


@pytest.mark.parametrize("unset", [None, False, 0, [], {}])
def test_a_parameter_that_asks_for_nothing_is_not_refused(unset: Json) -> None:
    parameters.refuse(request(logprobs=unset), {"logprobs": "Codex gives none."})


def test_only_wishes_that_differ_from_what_happens_anyway_are_unmet() -> None:
    given = request(temperature=1.0, top_p=0.5, seed=0, store=False, penalty=None)
    defaults: dict[str, Json] = {"temperature": 1, "top_p": 1, "seed": None, "store": False, "penalty": 0}
    assert parameters.ignored(given, defaults) == ["top_p", "seed"]


@pytest.mark.promise("parameters.service-tier")
@pytest.mark.parametrize(
    ("tier", "carried", "met"),
    [
        (None, None, True),
        ("auto", None, True),
        ("default", None, True),
        ("flex", "flex", True),
        ("priority", "priority", True),
        ("fast", "priority", True),
        ("scale", None, False),
    ],
)
def test_service_tiers_are_carried_in_codexs_words(tier: str | None, carried: str | None, met: bool) -> None:
    assert parameters.CARRIED_TIERS.get(tier) == carried
    assert (tier in parameters.CARRIED_TIERS) is met


def test_identities_travel_beside_the_metadata() -> None:
    assert parameters.carried_metadata(Parameters(metadata={"team": "a"}, user="u")) == {"team": "a", "user": "u"}
