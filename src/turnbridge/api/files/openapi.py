"""The routes of files for `/openapi.json`."""

from turnbridge.api.openapi.operations import PAGE, Operation, Part
from turnbridge.api.openapi.schemas import (
    NUMBER,
    TEXT,
    a_page,
    an_object,
    constant,
    one_of,
    ref,
)
from turnbridge.turn.items import JsonObject

TAG = "Files"
UPLOAD: JsonObject = {
    "type": "object",
    "properties": {
        "file": {"type": "string", "contentMediaType": "application/octet-stream"},
        "purpose": one_of("assistants", "user_data", "vision"),
        "expires_after[anchor]": one_of("created_at"),
        "expires_after[seconds]": {"type": "integer", "minimum": 3600, "maximum": 2_592_000},
    },
    "required": ["file", "purpose"],
}


PART = Part(
    operations={
        ("POST", "/v1/files"): Operation(
            summary="Upload a file (docs/files.md).", tag=TAG, answer="File", form=UPLOAD, gives="file_id"
        ),
        ("GET", "/v1/files"): Operation(
            summary="List uploaded files.",
            tag=TAG,
            answer="FileList",
            query={**PAGE, "limit": {"type": "integer", "minimum": 1, "maximum": 10_000}, "purpose": TEXT},
        ),
        ("GET", "/v1/files/{file_id}"): Operation(summary="Describe an uploaded file.", tag=TAG, answer="File"),
        ("DELETE", "/v1/files/{file_id}"): Operation(summary="Delete an uploaded file.", tag=TAG, answer="Deleted"),
        ("GET", "/v1/files/{file_id}/content"): Operation(
            summary="Return the content of an uploaded file.", tag=TAG, binary=True
        ),
    },
    schemas={
        "File": an_object(
            "An uploaded file.",
            {
                "id": TEXT,
                "object": constant("file"),
                "bytes": NUMBER,
                "created_at": NUMBER,
                "expires_at": NUMBER,
                "filename": TEXT,
                "purpose": one_of("assistants", "user_data", "vision"),
            },
        ),
        "FileList": a_page("files", ref("File")),
    },
)
