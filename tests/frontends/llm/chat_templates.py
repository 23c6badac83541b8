# SPDX-License-Identifier: Apache-2.0
"""Chat templates in the shapes of published checkpoints, written for these tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

NAMES = {"bos_token": "<s>", "eos_token": "</s>"}

LLAMA2 = (
    "{% if messages[0].role == 'system' %}{% set said = messages[0].content %}"
    "{% set rest = messages[1:] %}{% else %}{% set said = none %}"
    "{% set rest = messages %}{% endif %}"
    "{% for one in rest %}"
    "{% if (one.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% if one.role == 'user' %}{{ bos_token + '[INST] ' }}"
    "{% if loop.first and said is not none %}"
    "{{ '<<SYS>>\\n' + said + '\\n<</SYS>>\\n\\n' }}{% endif %}"
    "{{ one.content.strip() + ' [/INST]' }}"
    "{% else %}{{ ' ' + one.content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
)
LLAMA2_JOINED = (
    "{% if messages[0].role == 'system' %}{% set rest = messages[1:] %}"
    "{% set said = messages[0].content %}{% else %}{% set rest = messages %}"
    "{% set said = false %}{% endif %}"
    "{% for one in rest %}"
    "{% if loop.index0 == 0 and said != false %}"
    "{% set text = '<<SYS>>\\n' + said + '\\n<</SYS>>\\n\\n' + one.content %}"
    "{% else %}{% set text = one.content %}{% endif %}"
    "{% if one.role == 'user' %}{{ bos_token + '[INST] ' + text.strip() + ' [/INST]' }}"
    "{% elif one.role == 'assistant' %}{{ ' ' + text.strip() + ' ' + eos_token }}{% endif %}"
    "{% endfor %}"
)
"""A message of the system and the first one of a user are one text, whose ends are trimmed."""
LLAMA3 = """{{- bos_token }}
{%- if not date is defined %}
    {%- set date = "1 Jan 2020" %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set said = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set said = "" %}
{%- endif %}
{{- "<|start|>system<|stop|>\\n\\nDate: " + date + "\\n\\n" + said + "<|end|>" }}
{%- for one in messages %}
    {{- '<|start|>' + one['role'] + '<|stop|>\\n\\n' + one['content'] | trim + '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start|>assistant<|stop|>\\n\\n' }}
{%- endif %}
"""
CHATML = """{% for one in messages %}
{% if loop.first and one.role != 'system' %}
{{ '<|start|>system\\nBe of use.<|end|>\\n' }}
{% endif %}
{{ '<|start|>' + one.role + '\\n' + one.content + '<|end|>' + '\\n' }}
{% endfor %}
{% if add_generation_prompt %}
{{ '<|start|>assistant\\n' }}
{% endif %}"""
QWEN3 = """{%- if messages[0].role == 'system' %}
    {{- '<|start|>system\\n' + messages[0].content + '<|end|>\\n' }}
{%- endif %}
{%- set place = namespace(last=messages|length - 1, open=true) %}
{%- for one in messages[::-1] %}
    {%- if place.open and one.role == "user" %}
        {%- set place.last = messages|length - 1 - loop.index0 %}
        {%- set place.open = false %}
    {%- endif %}
{%- endfor %}
{%- for one in messages %}
    {%- if one.role == "user" or (one.role == "system" and not loop.first) %}
        {{- '<|start|>' + one.role + '\\n' + one.content + '<|end|>' + '\\n' }}
    {%- elif one.role == "assistant" %}
        {%- set text = one.content.split('</think>')[-1].lstrip('\\n') if '</think>' in one.content
            else one.content %}
        {%- if loop.index0 > place.last %}
            {%- set text = '<think>\\n\\n</think>\\n\\n' + text %}
        {%- endif %}
        {{- '<|start|>assistant\\n' + text + '<|end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start|>assistant\\n' }}
    {%- if thinks is defined and not thinks %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}"""
MISTRAL = """{%- if messages[0].role == "system" %}
    {%- set said = messages[0].content %}
    {%- set rest = messages[1:] %}
{%- else %}
    {%- set rest = messages %}
{%- endif %}
{{- bos_token }}
{%- for one in rest %}
    {%- if one.role == "user" %}
        {%- if loop.last and said is defined %}
            {{- "[INST] " + said + "\\n\\n" + one.content + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + one.content + "[/INST]" }}
        {%- endif %}
    {%- else %}
        {{- " " + one.content | trim + eos_token }}
    {%- endif %}
{%- endfor %}"""
GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
    "{{ raise_exception('no role system') }}{% endif %}{% for one in messages %}"
    "{% set role = 'model' if one['role'] == 'assistant' else one['role'] %}"
    "{{ '<|start|>' + role + '\n' + one['content'] | trim + '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>model\n' }}{% endif %}"
)
PHI3 = (
    "{% for one in messages %}{% if one.role == 'system' and one.content %}"
    "{{ '<|start|>system\\n' + one.content + '<|end|>\\n' }}{% elif one.role == 'user' %}"
    "{{ '<|start|>user\\n' + one.content + '<|end|>\\n' }}{% elif one.role == 'assistant' %}"
    "{{ '<|start|>assistant\\n' + one.content + '<|end|>\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant\\n' }}"
    "{% else %}{{ eos_token }}{% endif %}"
)
ZEPHYR = """{% for one in messages %}
{% if one['role'] == 'user' %}
{{ '<|user|>\n' + one['content'] + eos_token }}
{% elif one['role'] == 'system' %}
{{ '<|system|>\n' + one['content'] + eos_token }}
{% elif one['role'] == 'assistant' %}
{% generation %}
{{ '<|assistant|>\n'  + one['content'] + eos_token }}
{% endgeneration %}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""

SHAPES = {
    "llama2": LLAMA2, "llama2 joined": LLAMA2_JOINED, "llama3": LLAMA3, "chatml": CHATML,
    "qwen3": QWEN3, "mistral": MISTRAL, "gemma": GEMMA, "phi3": PHI3, "zephyr": ZEPHYR,
}  # fmt: skip
WITHOUT_SYSTEM = ("gemma", "mistral")


def reference(template: str, messages: Sequence[tuple[str, str]]) -> str:
    """What Jinja writes, set up as `apply_chat_template` of transformers does."""
    for tag in ("{% generation %}\n", "{% endgeneration %}\n"):
        template = template.replace(tag, "")
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)

    def raise_exception(message: str) -> Any:
        raise jinja2.TemplateError(message)

    environment.globals["raise_exception"] = raise_exception
    said = [{"role": role, "content": content} for role, content in messages]
    return environment.from_string(template).render(
        messages=said, add_generation_prompt=True, **NAMES
    )
