"""Requests as Gemini's `generateContent` takes them."""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as Base64Error
from typing import Any

from headwater.messages.parts import (
    Blob,
    ModelRequest,
    Reasoning,
    TextPart,
    Tool,
    ToolCall,
    ToolResult,
    Uri,
)
from headwater.messages.turns import (
    Block,
    Draft,
    Placed,
    Rendered,
    Turn,
    model_name,
    object_arguments,
    sendable_image,
    without_images,
)

# As documented in November 2026: models that refuse a call without the signature of its thought,
# and what to send for a call that another model made.
_SIGNED_MODELS = re.compile(r"gemini-([3-9]|\d\d)")
_NO_SIGNATURE = b"skip_thought_signature_validator"
_IMAGES = frozenset({"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"})
_SCHEMES = frozenset({"https", "gs"})


def render_gemini(request: ModelRequest) -> Rendered:
    """Return the arguments of ``client.models.generate_content``.

    Neighbours of one role are one content; all system messages are the system instruction.
    """
    draft = Draft("gemini", cache_mark={}, cache_marks=0)
    model = request.model and model_name(request.model, "google", "gemini", "vertex_ai")
    signed = bool(model and _SIGNED_MODELS.match(model))
    functions = [_function(draft, place, tool) for place, tool in enumerate(request.tools)]
    names: dict[str, str] = {}
    system: list[str] = []
    contents: list[Block] = []
    for turn in draft.turns(request):
        if turn.role == "system":
            if contents:
                draft.lose("system_after_messages", turn.parts[0])
            system += _instructions(draft, turn)
            continue
        role = "model" if turn.role == "assistant" else "user"
        parts = _parts(draft, turn, names, signed=signed)
        if contents and contents[-1]["role"] == role:
            contents[-1]["parts"] += parts
        elif parts:
            contents.append({"role": role, "parts": parts})
    config = {
        "system_instruction": "\n\n".join(system) or None,
        "tools": [{"function_declarations": functions}] if functions else None,
        "max_output_tokens": request.max_output,
    }
    config = {name: value for name, value in config.items() if value is not None}
    body: Block = {"contents": contents}
    body |= {"config": config} if config else {}
    body |= {"model": model} if model else {}
    return draft.rendered(body)


def _function(draft: Draft, place: int, tool: Tool) -> Block:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters_json_schema": tool.parameters,
    }
    return draft.unmarked(
        {name: value for name, value in function.items() if value}, Placed(None, place, tool)
    )


def _instructions(draft: Draft, turn: Turn) -> list[str]:
    texts = []
    for placed in turn.parts:
        if isinstance(placed.part, TextPart):
            draft.unmarked({}, placed)
            texts.append(placed.part.content)
        else:
            draft.lose("image_role_unsupported", placed)
    return ["".join(texts)] if texts else []


def _parts(draft: Draft, turn: Turn, names: dict[str, str], *, signed: bool) -> list[Block]:
    """Return the parts of a turn; the signature of a thought belongs to the part after it."""
    parts: list[Block] = []
    signature: bytes | None = None
    unsigned = signed
    for placed in turn.parts:
        part = placed.part
        if isinstance(part, Reasoning):
            thought = _thought(part.block)
            if thought is None:
                draft.lose("reasoning_dropped", placed)
            elif "text" in thought:
                parts.append(draft.unmarked(thought, placed))
            else:
                draft.unmarked({}, placed)
                signature = thought["thought_signature"]
            continue
        block = _part(draft, placed, names)
        if block is None:
            continue
        if isinstance(part, ToolCall):
            if unsigned and signature is None:
                draft.lose("thought_signature_missing", placed)
                signature = _NO_SIGNATURE
            # Of calls made at once, only the first has a signature.
            unsigned = False
        if signature is not None:
            block["thought_signature"], signature = signature, None
        parts.append(draft.unmarked(block, placed))
    if signature is not None:
        parts.append({"text": "", "thought_signature": signature})
    return parts


def _part(draft: Draft, placed: Placed, names: dict[str, str]) -> Block | None:
    match placed.part:
        case TextPart(content=text):
            return {"text": text}
        case ToolCall(id=id, name=name):
            names[id] = name
            args = object_arguments(draft, placed)
            return {"function_call": {"id": id, "name": name, "args": args}}
        case ToolResult(id=id):
            response = without_images(draft, placed)
            if placed.part.is_error:
                response = {"error": response}
            elif not isinstance(response, dict):
                response = {"output": response}
            return {"function_response": {"id": id, "name": names[id], "response": response}}
        case image:
            return _image(draft, placed, image)


def _image(draft: Draft, placed: Placed, image: Blob | Uri) -> Block | None:
    sendable = sendable_image(draft, placed, types=_IMAGES, schemes=_SCHEMES)
    if sendable is None:
        return None
    if isinstance(sendable, Blob):
        return {"inline_data": {"mime_type": sendable.mime_type, "data": sendable.content}}
    if sendable.mime_type is None:
        draft.lose("image_type_unsupported", placed)
        return None
    return {"file_data": {"mime_type": sendable.mime_type, "file_uri": sendable.uri}}


def _thought(block: Any) -> Block | None:
    """Return the part that Gemini wrote for a thought, or None if another model wrote it."""
    if not isinstance(block, dict):
        return None
    part: Block = {}
    if block.get("thought") is True and block.get("text"):
        part |= {"text": block["text"], "thought": True}
    signature = block.get("thought_signature") or block.get("thoughtSignature")
    if isinstance(signature, str):
        try:
            part["thought_signature"] = b64decode(signature, validate=True)
        except Base64Error:
            return None
    return part or None
