"""What hostile clients send: requests of every kind that could cost a gateway more than they cost the client. Pure."""

import base64
import json
import struct
import zlib

from soak.model import FUNCTION, Question
from turnbridge.turn.items import Json, JsonObject

MODEL = "gpt-5.5"
MB = 1024 * 1024
# Below the size at which a body is refused unread.
LARGE = 10 * MB


def _content(value: Json) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _asked(question: Question, *, more: JsonObject) -> bytes:
    return _content({"model": MODEL, "input": [{"role": "user", "content": question.text()}], **more})


def _with_schema(schema: JsonObject, mark: str = "x") -> bytes:
    form: JsonObject = {"type": "json_schema", "name": "answer", "schema": schema}
    return _asked(Question(mark=mark), more={"text": {"format": form}})


def _with_tools(tools: list[JsonObject]) -> bytes:
    return _asked(Question(mark="tools"), more={"tools": [*tools]})


def _tool(name: str, parameters: JsonObject, *, strict: bool = False) -> JsonObject:
    return {"type": "function", "name": name, "description": "Looks.", "parameters": parameters, "strict": strict}


def exploding_references(levels: int = 60) -> JsonObject:
    """Return a schema of a few KB with two to the power of `levels` ways through its references, all of them wrong."""
    definitions: JsonObject = {"d0": {"type": "integer"}}
    for level in range(1, levels + 1):
        below: JsonObject = {"$ref": f"#/$defs/d{level - 1}"}
        definitions[f"d{level}"] = {"anyOf": [below, {"type": "array", "items": below}, below]}
    return {
        "type": "object",
        "properties": {"mark": {"$ref": f"#/$defs/d{levels}"}},
        "required": ["mark"],
        "additionalProperties": False,
        "$defs": definitions,
    }


def pattern(expression: str) -> JsonObject:
    """Return a schema whose one text must match an expression."""
    return {
        "type": "object",
        "properties": {"mark": {"type": "string", "pattern": expression}},
        "required": ["mark"],
        "additionalProperties": False,
    }


def enumeration(values: int) -> JsonObject:
    """Return parameters with so many values that are allowed."""
    allowed: list[Json] = [f"value {number}" for number in range(values)]
    return {"type": "object", "properties": {"choice": {"type": "string", "enum": allowed}}}


def nested(depth: int) -> bytes:
    """Return JSON of so many levels."""
    return b'{"model":"gpt-5.5","input":' + b"[" * depth + b"]" * depth + b"}"


def _image(url: str) -> bytes:
    parts: list[JsonObject] = [
        {"type": "input_text", "text": Question(mark="image").text()},
        {"type": "input_image", "image_url": url},
    ]
    return _content({"model": MODEL, "input": [{"role": "user", "content": [*parts]}]})


def _file(data: bytes) -> bytes:
    parts: list[JsonObject] = [
        {"type": "input_text", "text": Question(mark="file").text()},
        {"type": "input_file", "filename": "paper.pdf", "file_data": data_url("application/pdf", data)},
    ]
    return _content({"model": MODEL, "input": [{"role": "user", "content": [*parts]}]})


def data_url(kind: str, data: bytes) -> str:
    """Return data as a URL."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def png(width: int, height: int, *, rows: int) -> bytes:
    """Return an image that claims a size and has so many rows of it, all of one colour: some KB may claim gigabytes."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    squeezed = zlib.compress(bytes(width + 1) * rows, 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", squeezed) + chunk(b"IEND", b"")


def pdf(*objects: bytes) -> bytes:
    """Return a file of these objects, numbered from 1 on; the first is the catalogue."""
    written = b"%PDF-1.4\n"
    table = b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    for number, content in enumerate(objects, 1):
        table += b"%010d 00000 n \n" % len(written)
        written += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    trailer = b"trailer\n<< /Root 1 0 R /Size %d >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, len(written))
    return written + table + trailer


def _looping_pdf() -> bytes:
    """Return a file whose pages contain themselves."""
    return pdf(b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 1000000 >>")


def _swelling_pdf() -> bytes:
    """Return a file of some KB with a page that is unpacked to 64 MB."""
    packed = zlib.compress(b"BT (x) Tj ET " * (64 * MB // 13), 9)
    return pdf(
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R >>",
        b"<< /Filter /FlateDecode /Length %d >>\nstream\n%s\nendstream" % (len(packed), packed),
    )


def bodies() -> dict[str, bytes]:
    """Return a body of each kind for `/v1/responses`. It takes a second; none is sent without its key."""
    tiny_item = b'{"role":"user","content":"x"}'
    tiny_part = b'{"type":"input_text","text":"x"}'
    head = b'{"model":"gpt-5.5","input":['
    return {
        "schema: exploding references": _with_schema(exploding_references()),
        "schema: exploding references of a tool": _with_tools([_tool(FUNCTION, exploding_references())]),
        "schema: catastrophic pattern": _with_schema(pattern("^(x+x+)+y$"), "x" * 200),
        "schema: huge pattern": _with_schema(pattern("((a{1,200}){1,200}){1,200}")),
        "schema: values of many tools": _with_tools([_tool(f"look{n}", enumeration(2_000)) for n in range(60)]),
        "schema: many strict tools": _with_tools(
            [_tool(f"look{n}", pattern("^x*$"), strict=True) for n in range(2_000)]
        ),
        "words: an answer without a blank": _asked(
            Question(mark="word", words=1, letters=MB, pause_ms=0), more={"max_output_tokens": 200_000}
        ),
        "words: a prompt without a blank": _content(
            {
                "model": MODEL,
                "instructions": "漢" * (LARGE // 4),
                "input": [{"role": "user", "content": Question(mark="word").text()}],
                "max_output_tokens": 16,
            }
        ),
        "items: many": head + b",".join([tiny_item] * (LARGE // (len(tiny_item) + 1))) + b"]}",
        "items: many parts": (
            head + b'{"role":"user","content":[' + b",".join([tiny_part] * (LARGE // (len(tiny_part) + 1))) + b"]}]}"
        ),
        "items: many parameters": (
            b'{"model":"gpt-5.5","input":"x",' + b",".join(b'"p%d":1' % n for n in range(500_000)) + b"}"
        ),
        "json: deep": nested(200_000),
        "json: broken at its end": head + tiny_item + b"," + b" " * LARGE,
        "image: no image": _image("data:image/png;base64," + "A" * 100_000),
        "image: of four gigapixels": _image(data_url("image/png", png(65_535, 65_535, rows=64))),
        "image: cut off": _image(data_url("image/png", png(64, 64, rows=64)[:-30])),
        "pdf: no PDF": _file(b"%PDF-1.4\n" + bytes(range(256)) * 1_000),
        "pdf: pages without an end": _file(_looping_pdf()),
        "pdf: much in little": _file(_swelling_pdf()),
    }
