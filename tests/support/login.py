"""A login file as Codex keeps it."""

import json
from base64 import urlsafe_b64encode


def chatgpt_login() -> str:
    """Return a login that nobody signed."""
    claims = {
        "email": "someone@example.test",
        "exp": 4_000_000_000,
        "https://api.openai.com/auth": {"chatgpt_plan_type": "plus", "chatgpt_account_id": "a", "user_id": "u"},
    }
    head, body = (urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in ({"alg": "x"}, claims))
    token = f"{head}.{body}.x"
    tokens = {"id_token": token, "access_token": token, "refresh_token": "x", "account_id": "a"}
    return json.dumps({"auth_mode": "chatgpt", "tokens": tokens, "last_refresh": "2099-01-01T00:00:00Z"})
