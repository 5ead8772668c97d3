"""What OpenAI's API has and a gateway to Codex cannot have: by family of routes, why, and what to do instead."""

from collections.abc import Mapping

from starlette.requests import Request
from starlette.types import ASGIApp

from turnbridge.turn.errors import NotFound
from turnbridge.web.http import OPENAI, RouteOf
from turnbridge.web.middleware.ingress import PATH_ECHO_LIMIT

NOT_SERVED = "not_served"

TEXT_ONLY = "Codex reads text, images and files, and answers in text."
OTHER_PROVIDER = "For this, point a second client at a provider that has it."
NO_AGENTS = "Nothing is run on this server for a client: declare functions, and run what the model calls."
NO_ACCOUNT = "This gateway has no organization, projects or billing. They are managed at OpenAI, with an admin key."

UNSERVED: Mapping[str, str] = {
    "/completions": "Current models have no such API. Use /v1/chat/completions or /v1/responses.",
    "/embeddings": f"Codex has no embedding models. {OTHER_PROVIDER}",
    "/moderations": f"Codex has no moderation models. {OTHER_PROVIDER}",
    "/audio": f"{TEXT_ONLY} {OTHER_PROVIDER}",
    "/images/edits": "Send the image to /v1/responses, with the tool 'image_generation'.",
    "/images/variations": "Send the image to /v1/responses, with the tool 'image_generation'.",
    "/videos": f"{TEXT_ONLY} {OTHER_PROVIDER}",
    "/realtime": f"{TEXT_ONLY} For text as it is written, use /v1/responses with `stream`.",
    "/live": f"{TEXT_ONLY} For text as it is written, use /v1/responses with `stream`.",
    "/uploads": "A file is uploaded in one request here: POST /v1/files, at most 20 MB.",
    "/vector_stores": "Files are not searched here. Send them with the question, or declare a function that searches.",
    "/batches": "Codex has no queue for batches. Send the requests one by one; several may run at once.",
    "/fine_tuning": "Codex's models cannot be trained. Use /v1/responses with `instructions` or examples.",
    "/evals": "Nothing is evaluated here. Run the requests through /v1/responses, and grade the answers yourself.",
    "/assistants": "Use /v1/responses, with `previous_response_id` or `conversation` for the state.",
    "/threads": "Use /v1/conversations for the messages, and /v1/responses with `conversation` for a run.",
    "/chatkit": "Use /v1/conversations for the messages, and /v1/responses with `conversation` for an answer.",
    "/containers": NO_AGENTS,
    "/skills": NO_AGENTS,
    "/agents": NO_AGENTS,
    "/vaults": NO_AGENTS,
    "/webhook_endpoints": "No events are sent from here. Poll a background response, or follow its stream.",
    "/webhook_event_types": "No events are sent from here. Poll a background response, or follow its stream.",
    "/decisions": f"Codex has no such models. {OTHER_PROVIDER}",
    "/content_provenance_checks": f"Codex has no such models. {OTHER_PROVIDER}",
    "/safety": "The provider keeps its cases and alerts. Read them at OpenAI.",
    "/organization": NO_ACCOUNT,
    "/projects": NO_ACCOUNT,
}


class Unserved:
    """Refuses whole families of routes."""

    dialect = OPENAI

    def routes(self) -> list[RouteOf]:
        """Return the routes of all families, whatever comes after their prefix."""
        paths = (path for prefix in UNSERVED for path in (prefix, f"{prefix}/{{rest:path}}"))
        return [RouteOf(None, path, self.refuse) for path in paths]

    async def refuse(self, request: Request) -> ASGIApp:
        """Say why a route is not served, and what is."""
        path = str(request.scope["path"])
        route = path.removeprefix("/v1")
        why = next(why for prefix, why in UNSERVED.items() if f"{route}/".startswith(f"{prefix}/"))
        raise NotFound(f"{request.method} {path[:PATH_ECHO_LIMIT]} is not served here. {why}", code=NOT_SERVED)
