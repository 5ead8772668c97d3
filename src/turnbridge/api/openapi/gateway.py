"""What is served beside the APIs for `/openapi.json`: the models, the usage, and how the gateway is."""

from turnbridge.api.openapi.operations import Operation, Part
from turnbridge.api.openapi.schemas import (
    ANY_OBJECT,
    FLAG,
    NUMBER,
    TEXT,
    an_object,
    array,
    constant,
    one_of,
    optional,
    ref,
)

TAG = "Gateway"
MODELS = Operation(
    summary="List the models.",
    tag="Models",
    answer="ModelList",
)
MODEL = Operation(
    summary="Return a model.",
    tag="Models",
    answer="Model",
)
USAGE = Operation(
    summary="Return the usage of this key, or of all keys to an admin's, by day or hour (docs/keys.md).",
    tag=TAG,
    answer="UsagePage",
    query={
        "start_time": {"type": "integer", "minimum": 0},
        "end_time": {"type": "integer", "minimum": 0},
        "bucket_width": one_of("1h", "1d"),
        "limit": {"type": "integer", "minimum": 1, "maximum": 31},
        "page": TEXT,
    },
)
PATH = "/openapi.json"


PART = Part(
    operations={
        ("GET", "/v1/models"): MODELS,
        ("GET", "/v1/models/{model}"): MODEL,
        ("GET", "/v1/organization/usage/completions"): USAGE,
        ("GET", "/healthz"): Operation(summary="Say that the gateway runs.", tag=TAG, answer="Alive", open=True),
        ("GET", "/livez"): Operation(summary="Say that the gateway runs.", tag=TAG, answer="Alive", open=True),
        ("GET", "/readyz"): Operation(
            summary="Say whether turns can be run.", tag=TAG, answer="Ready", or_error="NotReady", open=True
        ),
        ("GET", "/metrics"): Operation(
            summary="Return the metrics in Prometheus' format (docs/metrics.md).", tag=TAG, plain=True
        ),
        ("GET", PATH): Operation(summary="Return this document.", tag=TAG, answer="Document"),
    },
    schemas={
        "Document": ANY_OBJECT,
        "Model": an_object(
            "A model.",
            {"id": TEXT, "object": constant("model"), "created": NUMBER, "owned_by": TEXT, "display_name": TEXT},
        ),
        "ModelList": an_object("The models.", {"object": constant("list"), "data": array(ref("Model"))}),
        "UsagePage": an_object(
            "A page of usage.",
            {
                "object": constant("page"),
                "data": array(ref("UsageBucket")),
                "has_more": FLAG,
                "next_page": optional(TEXT),
            },
        ),
        "UsageBucket": an_object(
            "The usage of a day or an hour.",
            {"object": constant("bucket"), "start_time": NUMBER, "end_time": NUMBER, "results": array(ANY_OBJECT)},
        ),
        "Alive": an_object("The gateway runs.", {"status": constant("ok")}),
        "Ready": an_object(
            "Turns can be run; `degraded` says what replicas lack.",
            {"status": constant("ready"), "fidelity": TEXT, "degraded": TEXT},
            lacks=("degraded",),
        ),
        "NotReady": an_object("Turns cannot be run.", {"status": constant("not_ready"), "reason": TEXT}),
        "Error": an_object(
            "An error. docs/errors.md has every code.",
            {
                "error": an_object(
                    "What went wrong.",
                    {"message": TEXT, "type": TEXT, "param": optional(TEXT), "code": optional(TEXT)},
                )
            },
        ),
        "Deleted": an_object(
            "A deletion.", {"id": TEXT, "object": TEXT, "deleted": {"type": "boolean", "const": True}}
        ),
    },
)
