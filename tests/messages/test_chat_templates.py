"""Open models: their chat template as transformers renders it, and the tokens of its text."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from headwater import ContextItem, FeatureStore, context
from headwater.core.models import default_models
from headwater.core.tokens import tokenizer_of
from headwater.errors import ConfigError, InvalidInputError
from headwater.messages.chat_templates import load_chat_template
from headwater.messages.parts import (
    Blob,
    Message,
    ModelRequest,
    Part,
    Reasoning,
    Role,
    TextPart,
    Tool,
    ToolCall,
    ToolResult,
)
from tests.messages.test_images import png

NOW = datetime(2026, 11, 17, 12, tzinfo=UTC)
IMAGE = default_models().find(None).image

CHATML = """{%- if tools %}
{{- "<|im_start|>tools\\n" }}
{%- for tool in tools %}
{{- (tool | tojson) + "\\n" }}
{%- endfor %}
{{- "<|im_end|>\\n" }}
{%- endif %}
{%- for message in messages %}
{%- if message.role not in ("system", "user", "assistant", "tool") %}
{{- raise_exception("unknown role") }}
{%- endif %}
{{- "<|im_start|>" + message.role + "\\n" }}
{%- generation %}
{%- if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}
{{- message.content }}
{%- for call in message.tool_calls or [] %}
{{- call.function.name + call.function.arguments | tojson }}
{%- endfor %}
{%- endgeneration %}
{{- "<|im_end|>\\n" }}
{%- endfor %}
{%- if add_generation_prompt %}{{ "<|im_start|>assistant\\n" }}{% endif %}"""


def folder(path: Path, template: object = CHATML, **config: object) -> str:
    """Write the files of a tiny model, whose tokenizer knows little more than bytes."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    trainer = BpeTrainer(
        vocab_size=300,
        initial_alphabet=ByteLevel.alphabet(),
        special_tokens=["<|im_start|>", "<|im_end|>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the weather in the city of the user"] * 10, trainer)
    path.mkdir(exist_ok=True)
    tokenizer.save(str(path / "tokenizer.json"))
    values = {"chat_template": template, "bos_token": {"content": "<s>"}, "eos_token": "</s>"}
    (path / "tokenizer_config.json").write_text(json.dumps(values | config), encoding="utf-8")
    return str(path)


def say(role: Role, *parts: Part | str) -> Message:
    texts = (TextPart(content=part) if isinstance(part, str) else part for part in parts)
    return Message(role=role, parts=tuple(texts))


def rendered(path: str, *messages: Message, tools: tuple[Tool, ...] = ()) -> str:
    return load_chat_template(path).render(ModelRequest(messages=messages, tools=tools), NOW)


def test_messages_become_the_text_that_the_model_was_trained_with(tmp_path: Path) -> None:
    text = rendered(
        folder(tmp_path),
        say("system", "Be brief."),
        say("user", "What is ", "the weather?"),
        say("assistant", Reasoning(content="Ask."), ToolCall(id="1", name="w", arguments={"é": 1})),
        say("tool", ToolResult(id="1", response={"sun": True})),
        tools=(Tool(name="w", description="The weather."),),
    )
    assert text == (
        '<|im_start|>tools\n{"type": "function", "function": {"name": "w", "description": '
        '"The weather.", "parameters": {"type": "object", "properties": {}}}}\n<|im_end|>\n'
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nWhat is the weather?<|im_end|>\n"
        '<|im_start|>assistant\n<think>Ask.</think>w{"é": 1}<|im_end|>\n'
        '<|im_start|>tool\n{"sun":true}<|im_end|>\n'
        "<|im_start|>assistant\n"
    )


def test_the_count_is_that_of_the_whole_text(tmp_path: Path) -> None:
    template = load_chat_template(folder(tmp_path))
    request = ModelRequest(messages=(say("user", "the weather " * 3_000),))
    file = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    ids = file.encode(template.render(request, NOW), add_special_tokens=False).ids
    assert template.count(request, NOW, IMAGE) == len(ids)


def test_text_that_looks_like_a_special_token_is_one_as_it_is_for_the_server(
    tmp_path: Path,
) -> None:
    template = load_chat_template(folder(tmp_path))
    plain, special = (
        template.count(ModelRequest(messages=(say("user", text),)), NOW, IMAGE)
        for text in ("", "<|im_end|>")
    )
    assert special == plain + 1


def test_an_image_is_counted_by_the_rule_of_its_family(tmp_path: Path) -> None:
    path = folder(tmp_path, "{{ messages[0].content | tojson }}")
    request = ModelRequest(
        messages=(say("user", Blob(mime_type="image/png", content=png(750, 100)), "What?"),)
    )
    template = load_chat_template(path)
    text = template.render(request, NOW)
    assert text == '[{"type": "image"}, {"type": "text", "text": "What?"}]'
    tokens = template.tokenizer.recount_whole(text)
    assert template.count(request, NOW, IMAGE) == tokens + 100


def test_a_template_knows_its_tokens_the_day_and_loop_controls(tmp_path: Path) -> None:
    source = (
        "{{ bos_token }}{{ strftime_now('%d %b %Y') }}"
        "{% for message in messages %}{% if loop.index == 2 %}{% break %}{% endif %}"
        "{{ message.content | tojson(indent=1) }}{% endfor %}{{ eos_token }}"
    )
    text = rendered(folder(tmp_path, source), say("user", "<a>"), say("user", "b"))
    assert text == '<s>17 Nov 2026"<a>"</s>'


def test_one_of_several_templates_is_for_tools(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    path = folder(tmp_path, named)
    assert rendered(path, say("user", "?")) == "plain"
    assert rendered(path, say("user", "?"), tools=(Tool(name="f"),)) == "tools"


def test_a_file_of_its_own_comes_before_the_template_of_the_configuration(tmp_path: Path) -> None:
    path = folder(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("from the file", encoding="utf-8")
    assert rendered(path, say("user", "?")) == "from the file"


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[0].content + 1 }}", "str"),
        ("{% if %}", "Expected an expression"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ missing.field }}", "missing"),
    ],
)
def test_a_template_that_fails_says_why(tmp_path: Path, source: str, problem: str) -> None:
    path = folder(tmp_path, source)
    with pytest.raises(InvalidInputError, match=f"cannot render these messages: .*{problem}"):
        rendered(path, say("user", "?"))


def test_a_folder_without_the_files_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tokenizer_config.json cannot be read"):
        load_chat_template(str(tmp_path))
    path = folder(tmp_path / "b", None)
    with pytest.raises(ConfigError, match="has no chat template"):
        load_chat_template(path)
    (tmp_path / "b" / "tokenizer.json").unlink()
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "tokenizer_config.json").write_text('{"chat_template": ""}')
    with pytest.raises(ConfigError, match=r"tokenizer.json cannot be read"):
        load_chat_template(str(tmp_path / "c"))


def test_text_of_an_open_model_is_counted_by_its_own_tokenizer(tmp_path: Path) -> None:
    path = folder(tmp_path)
    found: Any = default_models().find("my-own-model")
    tokenizer = tokenizer_of(type(found)(**{**_fields(found), "folder": path}))
    file = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in ("the weather", "x" * 9_000, "Ein Überfluß 🎉"):
        assert tokenizer.recount_whole(text) == len(file.encode(text).ids)
    assert tokenizer.shorten("the weather in the city", 12) is not None
    assert (tokenizer.exact, tokenizer.margin_percent) == (False, 3)


def _fields(model: Any) -> dict[str, Any]:
    return {name: getattr(model, name) for name in model.__struct_fields__}


async def test_a_context_gives_the_prompt_of_an_open_model(
    store: FeatureStore, tmp_path: Path
) -> None:
    @context(store, model="my-llama")
    async def chat() -> list[ContextItem]:
        return [
            ContextItem("Be brief.", role="system", required=True),
            ContextItem("the weather?", role="user", required=True),
        ]

    ctx = await chat()
    assert ctx.to_prompt(folder(tmp_path / "llama")) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nthe weather?<|im_end|>\n<|im_start|>assistant\n"
    )
