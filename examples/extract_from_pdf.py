"""Fields of a document, in a type of your own: the answer is checked against the type's schema."""

import base64
import mimetypes
import os
import sys
from pathlib import Path

from openai import OpenAI
from pydantic import BaseModel

MODEL = os.environ.get("MODEL", "codex-5")


class Invoice(BaseModel):
    number: str
    seller: str
    total: float
    currency: str


document = Path(sys.argv[1])
kind = mimetypes.guess_type(document.name)[0] or "text/plain"
content = base64.b64encode(document.read_bytes()).decode()

response = OpenAI().responses.parse(
    model=MODEL,
    instructions="Extract the fields of the invoice.",
    input=[
        {
            "role": "user",
            "content": [
                {"type": "input_file", "filename": document.name, "file_data": f"data:{kind};base64,{content}"},
            ],
        }
    ],
    text_format=Invoice,
)
print(response.output_parsed.model_dump_json(indent=2))
