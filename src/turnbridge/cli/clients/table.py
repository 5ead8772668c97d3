"""Every client that `turnbridge connect` knows; the tables of the documentation are generated from it.

The formats are those of each client's documentation. No key is written where the client can read it from a file.
"""

import json
import shlex

from turnbridge.cli.clients.values import Client, JsonSettings, LineSettings, OwnFile, Shown, Values, yaml_scalar
from turnbridge.turn.items import Json

PROVIDER = "turnbridge"


def _claude_code(values: Values) -> dict[tuple[str, ...], Json]:
    return {
        ("apiKeyHelper",): f"cat {shlex.quote(str(values.key_file))}",
        ("env", "ANTHROPIC_BASE_URL"): values.root,
        ("env", "ANTHROPIC_MODEL"): f"claude-{values.model.name}",
        ("env", "CLAUDE_CODE_AUTO_COMPACT_WINDOW"): str(values.model.window),
    }


def _codex(values: Values) -> str:
    # A JSON string is a TOML string.
    base_url, key_file = json.dumps(values.base_url), json.dumps(str(values.key_file))
    return f"""model = {json.dumps(values.native_model)}
model_provider = "{PROVIDER}"

[model_providers.{PROVIDER}]
name = "Turnbridge"
base_url = {base_url}
wire_api = "responses"

[model_providers.{PROVIDER}.auth]
command = "cat"
args = [{key_file}]"""


def _opencode(values: Values) -> dict[tuple[str, ...], Json]:
    model = values.model
    return {
        ("provider", PROVIDER): {
            "npm": "@ai-sdk/openai-compatible",
            "name": "Turnbridge",
            "options": {"baseURL": values.base_url, "apiKey": f"{{file:{values.key_file}}}"},
            "models": {
                model.name: {
                    "name": model.name,
                    "limit": {"context": model.window, "output": model.output},
                    "modalities": {"input": ["text", "image"], "output": ["text"]},
                }
            },
        }
    }


def _zed(values: Values) -> dict[tuple[str, ...], Json]:
    capabilities: Json = {
        "tools": True,
        "images": True,
        "parallel_tool_calls": True,
        "prompt_cache_key": True,
        "chat_completions": True,
    }
    model: Json = {
        "name": values.model.name,
        "display_name": f"{values.model.name} (Turnbridge)",
        "max_tokens": values.model.window,
        "capabilities": capabilities,
    }
    return {
        ("language_models", "openai_compatible", PROVIDER): {"api_url": values.base_url, "available_models": [model]}
    }


def _continue(values: Values) -> str:
    return f"""name: Turnbridge
version: 0.0.1
schema: v1
models:
  - name: Turnbridge {values.model.name}
    provider: openai
    model: {values.model.name}
    apiBase: {values.base_url}
    apiKey: {yaml_scalar(values.key)}
    roles: [chat, edit, apply]
    capabilities: [tool_use, image_input]"""


def _vs_code(values: Values) -> str:
    model: Json = {
        "id": values.model.name,
        "name": f"{values.model.name} (Turnbridge)",
        "url": f"{values.base_url}/responses",
        "toolCalling": True,
        "vision": True,
        "maxInputTokens": values.model.window,
        "maxOutputTokens": values.model.output,
    }
    return json.dumps({"apiType": "responses", "models": [model]}, indent=2)


def _dialog(values: Values) -> str:
    return f"Base URL  {values.base_url}\nAPI key   {values.key}\nModel     {values.model.name}"


CLIENTS = (
    Client(
        name="claude-code",
        title="Claude Code",
        where="`env` and `apiKeyHelper` in `~/.claude/settings.json`",
        seen="2.1.197",
        settings=JsonSettings(lambda places: places.claude_home / "settings.json", _claude_code),
        api="messages",
        has_tools=True,
        then="Run `claude`.",
        notes=(
            "Every session then uses the gateway, until `--undo`.",
            "`ANTHROPIC_AUTH_TOKEN` and `ANTHROPIC_API_KEY` in the environment take precedence: unset them.",
        ),
        overriding=("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY"),
        page="claude-code.md",
    ),
    Client(
        name="codex",
        title="Codex CLI",
        where="a profile, `~/.codex/turnbridge.config.toml`",
        seen="0.163",
        settings=OwnFile(
            lambda places: places.codex_home / f"{PROVIDER}.config.toml", _codex, language="toml", has_key=False
        ),
        api="responses",
        has_tools=True,
        then=f"Run `codex --profile {PROVIDER}`.",
        notes=(
            "Your `config.toml` stays as it is: the gateway reads its provider from there, and would call itself.",
            "The model's name decides which tools Codex declares. The grammar of `apply_patch` is not enforced.",
        ),
    ),
    Client(
        name="opencode",
        title="opencode",
        where="a provider in `~/.config/opencode/opencode.json`",
        seen="1.18",
        settings=JsonSettings(lambda places: places.config / "opencode" / "opencode.json", _opencode),
        api="chat",
        has_tools=True,
        then=f"Choose the model of {PROVIDER} by `/models`.",
    ),
    Client(
        name="open-webui",
        title="Open WebUI",
        where="Admin Settings → Connections → OpenAI",
        settings=Shown(
            lambda values: (
                f"OPENAI_API_BASE_URL={shlex.quote(values.base_url)}\nOPENAI_API_KEY={shlex.quote(values.key)}"
            ),
            "sh",
        ),
        api="chat",
        then="Type both into Admin Settings → Connections → OpenAI → add, or set them in its environment.",
        notes=(
            "The models are read from `/v1/models`; other names, as `gpt-5.5-high`, go into the connection's list.",
            "There are no embeddings: use another engine for documents, or `BYPASS_EMBEDDING_AND_RETRIEVAL=true`.",
            "A container does not reach the host's 127.0.0.1 on Linux.",
        ),
    ),
    Client(
        name="obsidian-copilot",
        title="Obsidian Copilot",
        where='BYOK → add a provider; up to version 3, a custom model of "3rd party (OpenAI format)"',
        settings=Shown(_dialog, "text"),
        api="chat",
        then="Settings → Copilot → BYOK → Add a provider in OpenAI format; up to version 3, a custom model.",
        notes=("Leave the CORS switch off: Obsidian's origin is allowed, and the switch costs streaming.",),
    ),
    Client(
        name="cursor",
        title="Cursor",
        where="Settings → Models → API Keys: the key, and Override OpenAI Base URL, which must be public",
        settings=Shown(_dialog, "text"),
        api="chat",
        has_tools=True,
        then='Settings → Models → API Keys: the key, and "Override OpenAI Base URL".',
        notes=(
            "Cursor's servers make the calls, so the base URL must be a public https address of the gateway.",
            "Give the model a name of your own in `PROXY_MODEL_ALIASES`: Cursor may send OpenAI's to the wrong route.",
        ),
    ),
    Client(
        name="vscode",
        title="VS Code",
        where="Chat: Manage Language Models → Add Models → Custom Endpoint",
        settings=Shown(_vs_code, "json"),
        api="responses",
        has_tools=True,
        then="Run `Chat: Manage Language Models` → Add Models → Custom Endpoint; give the key there, and Responses as "
        "the type. Put these values into the entry of `chatLanguageModels.json` that opens.",
        notes=("VS Code keeps the key in the system's keychain, so it does not belong into the file.",),
    ),
    Client(
        name="continue",
        title="Continue",
        where="a model, `~/.continue/models/turnbridge.yaml`",
        seen="1.5, its command line",
        settings=OwnFile(
            lambda places: places.home / ".continue" / "models" / f"{PROVIDER}.yaml",
            _continue,
            language="yaml",
            has_key=True,
        ),
        api="chat",
        has_tools=True,
        then="Choose the model in Continue. Its command line takes the file: `cn --config FILE`.",
    ),
    Client(
        name="cline",
        title="Cline",
        where='Settings → API Provider "OpenAI Compatible"; or `cline auth`',
        seen="3.0, its command line",
        settings=Shown(
            lambda values: (
                f"cline auth openai-compatible --apikey {shlex.quote(values.key)} --baseurl {values.base_url} "
                f"--modelid {values.model.name}"
            ),
            "sh",
        ),
        api="chat",
        has_tools=True,
        then='This is for its command line. In the editor: Settings → API Provider "OpenAI Compatible", same values.',
        notes=("`openai-native` declares image generation, which is answered with 400.",),
    ),
    Client(
        name="zed",
        title="Zed",
        where="`language_models.openai_compatible` in `~/.config/zed/settings.json`",
        settings=JsonSettings(lambda places: places.config / "zed" / "settings.json", _zed),
        api="chat",
        has_tools=True,
        then="Give the key in Settings → AI → LLM Providers → turnbridge, or in the variable `TURNBRIDGE_API_KEY`.",
        notes=("Zed keeps the key in the system's keychain, so it does not belong into the file.",),
    ),
    Client(
        name="n8n",
        title="n8n",
        where="OpenAI credential: API key and base URL",
        settings=Shown(_dialog, "text"),
        api="responses",
        has_tools=True,
        then="Set key and base URL in an OpenAI credential, and the model, by its name, in the OpenAI Chat Model node.",
        notes=(
            '"Use Responses API" may stay on; off, token counts are exact.',
            "A container does not reach the host's 127.0.0.1 on Linux.",
        ),
    ),
    Client(
        name="aider",
        title="Aider",
        where="`~/.aider.conf.yml`, or `OPENAI_API_BASE` and `OPENAI_API_KEY`",
        settings=LineSettings(
            lambda places: places.home / ".aider.conf.yml",
            lambda values: {
                "openai-api-base": values.base_url,
                "openai-api-key": values.key,
                "model": f"openai/{values.model.name}",
                "show-model-warnings": "false",
            },
        ),
        api="chat",
        then="Run `aider`.",
        notes=("Aider strips `openai/`, and does not know the model: without the last line it warns.",),
    ),
    Client(
        name="langchain",
        title="LangChain",
        where="`ChatOpenAI(model=..., base_url=..., api_key=...)`",
        seen="langchain-openai 1.7",
        settings=Shown(
            lambda values: (
                f"""from langchain_openai import ChatOpenAI

llm = ChatOpenAI(model="{values.model.name}", base_url="{values.base_url}", api_key="{values.key}")
print(llm.invoke("Hello!").text)"""
            ),
            "python",
        ),
        api="responses",
        notes=(
            "With a name like `codex-5`, it calls `/v1/responses`, unless `use_responses_api=False`.",
            '`reasoning={"summary": "auto"}` asks for reasoning summaries, which it does not read on the chat route.',
        ),
    ),
    Client(
        name="openai-sdk",
        title="OpenAI SDK",
        where="`OPENAI_BASE_URL` and `OPENAI_API_KEY`, or `base_url`/`baseURL` and `api_key`/`apiKey`",
        seen="3.49 for Python, and for node",
        settings=Shown(
            lambda values: (
                f"export OPENAI_BASE_URL={shlex.quote(values.base_url)}\n"
                f"export OPENAI_API_KEY={shlex.quote(values.key)}"
            ),
            "sh",
        ),
        api="responses",
        then='Then `OpenAI().responses.create(model="codex-5", input="Hello!")`, in Python and in node.',
    ),
)

BY_NAME = {client.name: client for client in CLIENTS}
