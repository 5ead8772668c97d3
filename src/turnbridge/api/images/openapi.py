"""The route of images for `/openapi.json`."""

from turnbridge.api.images.routes import ImagesRequest
from turnbridge.api.openapi.operations import Operation, Part
from turnbridge.api.openapi.schemas import (
    NUMBER,
    TEXT,
    an_object,
    array,
)

PART = Part(
    operations={
        ("POST", "/v1/images/generations"): Operation(
            summary="Make images; needs a ChatGPT login.",
            tag="Images",
            answer="Images",
            body=ImagesRequest,
            required=("prompt",),
            example={"prompt": "A red cat."},
        ),
    },
    schemas={
        "Images": an_object(
            "Images, as base64.",
            {"created": NUMBER, "data": array(an_object("An image.", {"b64_json": TEXT, "revised_prompt": TEXT}))},
        ),
    },
)
