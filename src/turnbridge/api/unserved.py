"""What OpenAI's API has and a gateway to Codex cannot have: whoever asks for it is told why, and what to do."""

from starlette.requests import Request
from starlette.types import ASGIApp

from turnbridge.turn.errors import NotFound

NO_MEDIA = "Codex produces text only. Ask a provider that does this."
NO_OBJECTS = "The gateway keeps responses, conversations and chat completions only."

REASONS = {
    "/completions": "Use /v1/chat/completions or /v1/responses.",
    "/responses/compact": "A history is carried as it is; send less of it.",
    "/responses/input_tokens": "Only the provider can count what the model will see; answers tell their usage.",
    "/embeddings": "Codex makes no embeddings. Ask a provider that does.",
    "/moderations": "Codex does not judge texts. Ask a provider that does.",
    "/images/generations": NO_MEDIA,
    "/images/edits": NO_MEDIA,
    "/audio/speech": NO_MEDIA,
    "/audio/transcriptions": NO_MEDIA,
    "/realtime": NO_MEDIA,
    "/files": f"{NO_OBJECTS} Send a file inside the request, as `file_data`.",
    "/uploads": f"{NO_OBJECTS} Send a file inside the request, as `file_data`.",
    "/vector_stores": NO_OBJECTS,
    "/batches": f"{NO_OBJECTS} Send the requests one by one; several may run at once.",
    "/assistants": "Use /v1/responses with `previous_response_id` or `conversation`.",
    "/threads": "Use /v1/responses with `previous_response_id` or `conversation`.",
}


async def refuse(request: Request) -> ASGIApp:
    """Say why this route is not served."""
    path = request.scope["path"]
    raise NotFound(f"{path} is not served here. {REASONS[path.removeprefix('/v1')]}")
