"""Prompt files: their form, what their templates see, and what they may not do."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, PrivateAttr

import muntin
from muntin.errors import InvalidInput, InvalidType, PromptFileError
from muntin.prompts.files import PromptFile, RenderedTexts, prompt_file


@pytest.fixture
def load(tmp_path: Path):
    """Write a prompt file, and files beside it, and load it."""

    def load(text: str | bytes, **siblings: str) -> PromptFile:
        for name, body in siblings.items():
            (tmp_path / f"{name}.md").write_text(body, encoding="utf-8")
        file = tmp_path / "chat.md"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return prompt_file(file)

    return load


@pytest.fixture
def system(load):
    """Render one system section."""

    def system(body: str, *, siblings: dict[str, str] | None = None, **values: Any):
        file = load(f"<system>\n{body}\n</system>\n", **(siblings or {}))
        return file.render(**values).system

    return system


def fault(run, *args: Any, **options: Any) -> tuple[str, int | None, str]:
    with pytest.raises(PromptFileError) as caught:
        run(*args, **options)
    error = caught.value
    return Path(error.file).name, error.line, error.reason


WHOLE = """\
---
name: support
description: Answers questions.
intent: help
model: openai/gpt-4o
caching: true
max_tokens: 500
temperature: 0
---

<system>
You are {{ input.who }}.
</system>

<user>
{{ input.message }}
</user>
"""


class TestForm:
    def test_front_matter_and_sections(self, load):
        file = load(WHOLE)
        assert dict(file.config) == {
            "name": "support",
            "description": "Answers questions.",
            "intent": "help",
            "model": "openai/gpt-4o",
            "caching": True,
            "max_tokens": 500,
            "temperature": 0,
        }
        assert file.sections == ("system", "user")
        assert file.path.name == "chat.md"
        made = file.render({"who": "Ann", "message": "Hi!"})
        assert made == RenderedTexts("You are Ann.", "Hi!")

    def test_front_matter_is_optional_and_may_be_empty(self, load):
        assert dict(load("<system>a</system>").config) == {}
        assert dict(load("---\n---\n<system>a</system>").config) == {}

    def test_the_front_matter_cannot_be_changed(self, load):
        with pytest.raises(TypeError):
            load(WHOLE).config["name"] = "other"

    def test_without_a_user_section_user_is_none(self, load):
        assert load("<system>a</system>").render() == RenderedTexts("a", None)

    def test_sections_stand_in_any_order(self, load):
        assert load("<user>u</user>\n<system>s</system>").render() == RenderedTexts("s", "u")

    @pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
    def test_lines_end_as_they_like(self, load, newline):
        text = WHOLE.replace("\n", newline).encode()
        made = load(text).render({"who": "Ann", "message": "Hi!"})
        assert made == RenderedTexts("You are Ann.", "Hi!")

    def test_a_byte_order_mark_is_ignored(self, load):
        assert load(b"\xef\xbb\xbf<system>\xc3\xa4</system>").render().system == "ä"

    @pytest.mark.parametrize("indent", ["  ", "\t"])
    def test_an_indented_file_is_the_same_file(self, load, indent):
        text = "".join(indent + line for line in WHOLE.splitlines(keepends=True))
        assert dict(load(text).config) == dict(load(WHOLE).config)
        made = load(text).render({"who": "Ann", "message": "Hi!"})
        assert made == RenderedTexts("You are Ann.", "Hi!")

    def test_the_margin_of_a_section_goes_and_deeper_indents_stay(self, load):
        text = "  <system>one\n  two\n    three\n  </system>"
        assert load(text).render().system == "one\ntwo\n  three"

    def test_blank_lines_around_a_section_go(self, load):
        assert load("<system>\n\n\na\n\nb\n\n</system>").render().system == "a\n\nb"

    def test_a_message_of_the_user_keeps_every_byte(self, load):
        file = load("<system>s</system>\n<user>{{ input.m }}</user>")
        assert file.render({"m": "\n  x <b> & \n\n"}).user == "\n  x <b> & \n\n"

    def test_tags_deeper_in_a_section_are_text(self, load):
        text = "<system>\nAn example:\n  <user>hi</user>\n  <context>\n</system>"
        assert load(text).render().system == "An example:\n  <user>hi</user>\n  <context>"

    @pytest.mark.parametrize(
        ("text", "line", "reason"),
        [
            ("", None, "there is no <system> section"),
            ("<user>u</user>", None, "there is no <system> section"),
            ("<system>\na\n", 1, "<system> is never closed; </system> must end a line"),
            ("<system>a</system>\n<system>b</system>", 2, "<system> stands twice"),
            (
                "Hi\n<system>a</system>",
                1,
                "text outside of the sections <system>, <user>, <context>: 'Hi'",
            ),
            (
                "<system>a</system>\n\n{% assign x = 1 %}",
                3,
                "text outside of the sections <system>, <user>, <context>: '{% assign x = 1 %}'",
            ),
            (
                "<system>a</system>\n<assistant>b</assistant>",
                2,
                "text outside of the sections <system>, <user>, <context>: "
                "'<assistant>b</assistant>'",
            ),
            (
                "<system>\na\n<context>\nb\n</context>\n</system>",
                3,
                "<context> opens inside <system>; close that first, "
                "or write {{ '<context>' }} to mean the text",
            ),
            ("---\nname: a\n<system>a</system>", 1, "the front matter is never closed with ---"),
            ("---\nname: [\n---\n<system>a</system>", 2, "front matter: "),
            ("---\n- name\n---\n<system>a</system>", 2, "the front matter must be keys and values"),
            (
                "---\nname: a\ncolour: red\n---\n<system>a</system>",
                3,
                "unknown key 'colour' in the front matter; known: name, description, intent, "
                "model, caching, max_tokens, temperature",
            ),
            (
                "---\nname: a\nname: b\n---\n<system>a</system>",
                3,
                "name stands twice in the front matter",
            ),
        ],
    )
    def test_a_malformed_file_is_an_error_with_its_line(self, load, text, line, reason):
        name, at, said = fault(load, text)
        assert (name, at) == ("chat.md", line)
        assert said.startswith(reason) if reason.endswith(": ") else said == reason

    @pytest.mark.parametrize(
        ("entry", "reason"),
        [
            ("name: 7", "name must be a text, not 7"),
            ("name: 2024-01-01", "name must be a text, not datetime.date(2024, 1, 1)"),
            ("name:", "name must be a text, not None"),
            ("name: ''", "name must be a text, not ''"),
            ("description: [a]", "description must be a text, not ['a']"),
            ("intent: {a: b}", "intent must be a text, not {'a': 'b'}"),
            ("model: true", "model must be a text, not True"),
            ("caching: 5", "caching must be true, false or a text, not 5"),
            ("max_tokens: '5'", "max_tokens must be a whole number above 0, not '5'"),
            ("max_tokens: 0", "max_tokens must be a whole number above 0, not 0"),
            ("max_tokens: true", "max_tokens must be a whole number above 0, not True"),
            ("temperature: hot", "temperature must be a number, 0 or above, not 'hot'"),
            ("temperature: -1", "temperature must be a number, 0 or above, not -1"),
            ("temperature: .nan", "temperature must be a number, 0 or above, not nan"),
        ],
    )
    def test_a_value_of_the_wrong_type_is_an_error(self, load, entry, reason):
        text = f"---\nintent: a\n{entry}\n---\n<system>a</system>"
        if entry.startswith("intent"):
            text = f"---\nname: a\n{entry}\n---\n<system>a</system>"
        assert fault(load, text) == ("chat.md", 3, reason)

    def test_bytes_that_are_not_utf8_are_an_error(self, load):
        assert fault(load, b"<system>\n\xff\n</system>") == (
            "chat.md",
            2,
            "not UTF-8: invalid start byte",
        )

    def test_a_missing_file_and_a_folder_are_errors(self, tmp_path):
        assert fault(prompt_file, tmp_path / "none.md") == (
            "none.md",
            None,
            "cannot be read: No such file or directory",
        )
        assert fault(prompt_file, str(tmp_path))[1:] == (None, "cannot be read: Is a directory")

    def test_the_error_is_an_invalid_input_that_names_file_and_line(self):
        error = PromptFileError("chat.md", 3, "wrong")
        assert str(error) == "chat.md:3: wrong"
        assert str(PromptFileError("chat.md", None, "wrong")) == "chat.md: wrong"
        assert isinstance(error, InvalidInput)
        again = pickle.loads(pickle.dumps(error))
        assert (again.file, again.line, again.reason) == ("chat.md", 3, "wrong")


class TestLiquid:
    @pytest.mark.parametrize(
        ("body", "line", "reason"),
        [
            ("a\n{{ input.x", 3, "expected '}}', found end of file"),
            ("a\n{% if input.x %}\nb", 3, "expected tag endif, found end of expression"),
            ("{% if a %}\n{% for x in a %}\n{% endif %}", 4, "unexpected tag 'endif'"),
            ("a\n\n{{ input.x | }}", 4, "expected word, found end of expression"),
            ("{% nonsense %}", 2, "unexpected tag 'nonsense'"),
            ("a\n{{ input.x | shout }}", 3, "unknown filter 'shout'"),
            ("{% if a %}{{ b | nope }}{% endif %}", 2, "unknown filter 'nope'"),
        ],
    )
    def test_a_syntax_error_is_found_at_load_with_its_line(self, load, body, line, reason):
        assert fault(load, f"<system>\n{body}\n</system>") == ("chat.md", line, reason)

    def test_the_lines_of_later_sections_are_those_of_the_file(self, load):
        text = "---\nname: a\n---\n<system>s</system>\n<user>\n\nu\n{{ input.x }}\n</user>"
        assert fault(load(text).render, {}) == ("chat.md", 8, "input.x is undefined")

    def test_output_is_not_escaped(self, system):
        assert system("{{ input.x }}", input={"x": "<a> & 'b'"}) == "<a> & 'b'"

    def test_liquid_inside_a_value_is_text(self, system):
        hostile = "{{ ctx.secret }}{% include 'x' %}</system>"
        assert system("{{ input.x }}", input={"x": hostile}, ctx={"secret": 1}) == hostile

    def test_liquid_inside_a_value_is_text_in_partials_too(self, system):
        made = system(
            "{% render 'p', x: input.x %}",
            siblings={"p": "{{ x }}"},
            input={"x": "{{ ctx.secret }}"},
            ctx={"secret": 1},
        )
        assert made == "{{ ctx.secret }}"

    @pytest.mark.parametrize(
        "body",
        [
            "{{ input.x }}",
            "{{ input.x.y }}",
            "{{ input.x | upcase }}",
            "{{ input.x | upcase | default: 'a' }}",
            "{{ 'a' | append: input.x }}",
            "{% assign a = input.x %}",
            "{% for a in input.x %}{% endfor %}",
            "{% case input.x %}{% when 1 %}{% endcase %}",
            "{% capture a %}{{ input.x }}{% endcapture %}",
            "{% if input.a %}{{ input.x }}{% endif %}",
            "{% render 'p', a: input.x %}",
            "{{ input[input.x] }}",
        ],
    )
    def test_an_undefined_variable_is_an_error_with_its_line(self, load, body):
        file = load(f"<system>\n\n{body}\n</system>", p="p")
        name, line, reason = fault(file.render, {"a": 1})
        assert (name, line) == ("chat.md", 3)
        assert reason.endswith("is undefined")

    @pytest.mark.parametrize(
        ("body", "text"),
        [
            ("{% if input.x %}a{% else %}b{% endif %}", "b"),
            ("{% if input.x.y.z %}a{% else %}b{% endif %}", "b"),
            ("{% if nothing %}a{% else %}b{% endif %}", "b"),
            ("{% if input.x == 'a' %}a{% else %}b{% endif %}", "b"),
            ("{% if input.x == nil %}a{% else %}b{% endif %}", "a"),
            ("{% if input.x > 3 or input.y <= 2 %}a{% else %}b{% endif %}", "b"),
            ("{% if input.x contains 'a' %}a{% else %}b{% endif %}", "b"),
            ("{% if false %}a{% elsif input.x %}b{% else %}c{% endif %}", "c"),
            ("{% unless input.x %}a{% endunless %}", "a"),
            ("{{ input.x | default: 'a' }}", "a"),
            ("{{ input.x.y | default: 'a' | upcase }}", "A"),
            ("{% assign v = input.x | default: 'a' %}{{ v }}", "a"),
            ("{{ input | default: 'a' }}", "a"),
            ("{{ ctx.user | default: 'a' }}", "a"),
        ],
    )
    def test_an_undefined_variable_may_be_asked_for_and_defaulted(self, system, body, text):
        assert system(body) == text

    def test_what_is_none_is_defined_and_prints_nothing(self, system):
        assert system("[{{ input.x }}]", input={"x": None}) == "[]"

    def test_ctx_and_config(self, load):
        text = "---\nmodel: m/n\nname: a\n---\n<system>{{ ctx.user }} {{ config.model }}</system>"
        assert load(text).render(ctx={"user": "Ann"}).system == "Ann m/n"
        assert load(text).render(ctx={"user": "Ann"}, config={"model": "o"}).system == "Ann o"

    def test_an_unset_key_of_the_front_matter_is_undefined(self, load):
        file = load("<system>{{ config.model }}</system>")
        assert fault(file.render) == ("chat.md", 1, "config.model is undefined")

    def test_config_is_a_mapping_without_context(self, load):
        file = load("<system>a</system>")
        with pytest.raises(InvalidInput, match="pass context= instead"):
            file.render(config={"context": {}})
        with pytest.raises(InvalidType, match="config must be a mapping"):
            file.render(config=["a"])
        with pytest.raises(InvalidType, match="context must be a mapping"):
            file.render(context="a")
        with pytest.raises(InvalidType, match="block must be a str"):
            file.render(block=None)

    def test_json_and_dates(self, system):
        values = {"x": {"a": [1, None, "ä"]}, "d": date(2024, 5, 6)}
        assert system("{{ input.x | json }}", input=values) == '{"a": [1, null, "ä"]}'
        assert system("{{ input.x }}", input=values) == '{"a": [1, null, "ä"]}'
        assert system("{{ input.d }} {{ input.d | date: '%d.%m.' }}", input=values) == (
            "2024-05-06 06.05."
        )
        assert system("{{ '2024-05-06' | date: '%Y' }}") == "2024"

    @pytest.mark.parametrize(
        "body",
        ["{{ now }}", "{{ today }}", "{{ 'now' | date: '%Y' }}", "{{ 'May' | date: '%Y' }}"],
    )
    def test_a_template_cannot_see_the_clock(self, load, body):
        fault(load(f"<system>{body}</system>").render)

    def test_the_same_input_gives_the_same_text(self, load):
        file = load(WHOLE)
        made = {file.render({"who": "A", "message": "m"}) for _ in range(5)}
        assert made == {load(WHOLE).render({"who": "A", "message": "m"})}

    def test_state_does_not_leak_between_sections_or_renderings(self, load):
        file = load("<system>{% increment n %}</system>\n<user>{{ n | default: 'none' }}</user>")
        assert [file.render() for _ in range(2)] == [RenderedTexts("0", "none")] * 2


class TestContext:
    def test_the_block_follows_after_one_blank_line(self, load):
        file = load("<system>\nYou.\n\n</system>")
        assert file.render(block="<a>\nx\n</a>\n").system == "You.\n\n<a>\nx\n</a>"

    def test_without_system_text_the_block_stands_alone_and_nothing_is_nothing(self, load):
        file = load("<system>{% if input.x %}x{% endif %}</system>")
        assert file.render(block="<a>\nx\n</a>").system == "<a>\nx\n</a>"
        assert file.render().system == ""

    def test_a_context_section_owns_the_block(self, load):
        file = load("<system>You.</system>\n<context>\n{{ config.context.a }}!\n</context>")
        made = file.render(context={"a": "x &amp; y"}, block="<a>\nx\n</a>")
        assert made.system == "You.\n\n<context>\nx &amp; y!\n</context>"

    def test_a_context_section_that_renders_nothing_leaves_no_element(self, load):
        file = load(
            "<system>You.</system>\n"
            "<context>\n\n{% if config.context.a %}x{% endif %}\n  \n</context>"
        )
        assert file.render(block="<b>\nx\n</b>").system == "You."
        assert file.render(context={"a": ""}, block="<b>\nx\n</b>").system == "You."

    @pytest.mark.parametrize("key", ["user-id", "user_id", "userId", "userID", "UserId", "USER_ID"])
    def test_tags_are_found_in_any_spelling(self, system, key):
        body = f"{{{{ config.context.{key} }}}} {{{{ config.context['{key}'] }}}}"
        for name in ("user-id", "userId", "user_id"):
            assert system(body, context={name: "7"}) == "7 7"

    def test_other_names_are_other_tags(self, load):
        file = load("<system>{{ config.context.userid }}</system>")
        reason = fault(file.render, context={"user-id": "7"})[2]
        assert reason == "config.context.userid is undefined"

    def test_an_unfilled_tag_is_absent(self, load):
        file = load("<system>{{ config.context.a }}</system>")
        assert fault(file.render, context={"a": ""})[2] == "config.context.a is undefined"

    def test_tags_can_be_listed_in_their_order(self, system):
        body = "{% for tag in config.context %}{{ tag[0] }}={{ tag[1] }};{% endfor %}"
        assert system(body, context={"zeta": "1", "userId": "2", "c": ""}) == "zeta=1;user-id=2;"


class TestPartials:
    @pytest.mark.parametrize("tag", ["render", "include"])
    @pytest.mark.parametrize("name", ["rules", "rules.md"])
    def test_a_partial_is_a_file_beside_it(self, system, tag, name):
        made = system(
            f"a\n{{% {tag} '{name}' %}}\nb",
            siblings={"rules": "Be {{ input.how }}.\r\n"},
            input={"how": "brief"},
        )
        assert made == "a\nBe brief.\nb"

    @pytest.mark.parametrize("tag", ["render", "include"])
    def test_a_partial_may_be_the_first_thing_in_a_block(self, system, tag):
        body = f"{{% if input.x %}}{{% {tag} 'p' %}}{{% endif %}}"
        assert system(body, siblings={"p": "text"}, input={"x": 1}) == "text"

    def test_a_partial_sees_what_it_is_given(self, system):
        body = "{% render 'p', x: 1 %}{% render 'p' for input.l as x %}"
        assert system(body, siblings={"p": "{{ x }};"}, input={"l": [2, 3]}) == "1;2;3;"

    @pytest.mark.parametrize(
        "name", ["none", "", "..", "../other", "/etc/hostname", "sub/p", "sub\\p", "c:p"]
    )
    def test_any_other_file_is_refused_at_load(self, load, tmp_path, name):
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub" / "p.md").write_text("p")
        (tmp_path.parent / "other.md").write_text("p")
        found = fault(load, f"<system>\n\n{{% render '{name}' %}}\n</system>")
        assert found == ("chat.md", 3, f"no partial {name!r} beside this file")

    def test_a_link_that_leads_elsewhere_is_refused(self, load, tmp_path):
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub" / "p.md").write_text("p")
        (tmp_path / "link.md").symlink_to(tmp_path / "sub" / "p.md")
        found = fault(load, "<system>{% render 'link' %}</system>")
        assert found[2] == "no partial 'link' beside this file"

    def test_a_name_that_input_could_choose_is_refused(self, load):
        found = fault(load, "<system>\n{% include input.x %}\n</system>")
        assert found == ("chat.md", 2, "the name of a partial must be a quoted text")

    def test_an_error_in_a_partial_names_the_partial(self, load):
        found = fault(load, "<system>{% render 'p' %}</system>", p="a\n\n{{ x")
        assert found == ("p.md", 3, "expected '}}', found end of file")
        file = load("<system>{% render 'p' %}</system>", p="\na\n{{ x }}\n")
        assert fault(file.render) == ("p.md", 3, "x is undefined")

    def test_partials_are_read_at_load(self, load, tmp_path):
        file = load("<system>{% render 'p' %}</system>", p="a")
        (tmp_path / "p.md").unlink()
        assert file.render().system == "a"


class Colour(Enum):
    RED = "red"


class Order(BaseModel):
    model_config = ConfigDict(extra="allow")
    id: int
    colour: Colour = Colour.RED
    _secret: str = PrivateAttr("s")

    def method(self) -> str:
        return "called"

    @property
    def computed(self) -> str:
        return "called"


@dataclass
class Person:
    name: str
    _hidden: str = "h"
    orders: list[Order] = field(default_factory=list)
    action: Any = None

    def method(self) -> str:
        return "called"


class TestSandbox:
    def test_fields_of_models_and_dataclasses_are_read(self, system):
        ann = Person("Ann", orders=[Order.model_validate({"id": 1, "extra": "x"})])
        body = "{{ input.name }}{% for o in input.orders %} {{ o.id }} {{ o.colour }} {{ o.extra }}"
        assert system(body + "{% endfor %} {{ input.orders.size }}", input=ann) == "Ann 1 red x 1"
        assert system("{{ ctx.p.name }}", ctx={"p": ann}) == "Ann"
        assert system("{{ ctx.p.orders | map: 'id' | join }}", ctx={"p": ann}) == "1"

    @pytest.mark.parametrize(
        "name",
        [
            "_hidden",
            "method",
            "__class__",
            "__dict__",
            "__init__.__globals__",
            "orders[0]._secret",
            "orders[0].method",
            "orders[0].computed",
            "orders[0].model_fields",
            "orders[0].__class__",
            "name.upper",
            "name.__class__",
            "orders.append",
        ],
    )
    def test_attributes_and_methods_do_not_exist(self, load, name):
        file = load(f"<system>{{{{ input.{name} }}}}</system>")
        assert fault(file.render, Person("Ann", orders=[Order(id=1)]))[2].endswith("is undefined")

    @pytest.mark.parametrize("value", [len, object(), {1}, Person, lambda: 1, iter([1])])
    def test_what_is_not_data_cannot_be_read(self, load, value):
        file = load("<system>\n{{ input.action }}\n</system>")
        name, line, reason = fault(file.render, Person("Ann", action=value))
        assert (name, line) == ("chat.md", 2)
        assert reason.startswith(f"a template cannot read a {type(value).__name__}: it reads")

    def test_what_is_not_data_does_no_harm_unread(self, system):
        assert system("{{ input.name }}", input=Person("Ann", action=len)) == "Ann"

    def test_a_look_up_does_not_change_the_callers_values(self, system):
        from collections import defaultdict

        values: defaultdict[str, int] = defaultdict(int)
        assert system("{{ input.x | default: 'a' }}", input=values) == "a"
        assert system("{% if input.x %}{% else %}b{% endif %}", input={"y": values}) == "b"
        assert not values

    def test_what_a_callers_object_raises_is_told(self, load):
        class Bad(dict[str, int]):
            def __getitem__(self, key: str) -> int:
                raise OSError("gone")

        file = load("<system>\n{{ input.x }}\n</system>")
        assert fault(file.render, Bad(x=1)) == ("chat.md", 2, "OSError: gone")


ENDLESS = {
    "a long loop": "{% for i in (1..1000000000) %}{% endfor %}",
    "backwards": "{% for i in (1..1000000000) reversed %}{% endfor %}",
    "from afar": "{% for i in (1..1000000000) offset: 999999999 %}{% endfor %}",
    "a search": "{% if (1..1000000000) contains 'x' %}{% endif %}",
    "a length from input": "{% for i in (1..input.huge) %}{% endfor %}",
    "loops in loops": "{% for i in (1..1000) %}{% for j in (1..1000) %}{% endfor %}{% endfor %}",
    "loops in a row": "{% for i in (1..90000) %}{% endfor %}" * 2,
    "100 MB": "{% for i in (1..100) %}{{ input.mega }}{% endfor %}",
    "100 MB thrown away": (
        "{% for i in (1..1000) %}{% capture x %}{{ input.mega }}{% endcapture %}{% endfor %}"
    ),
    "doubling": (
        "{% assign x = 'aaaa' %}{% for i in (1..60) %}{% assign x = x | append: x %}{% endfor %}"
    ),
    "replacing": "{{ input.mega | replace: 'a', input.mega }}",
    "joining": "{{ input.mega | split: '' | join: input.mega }}",
    "comparing all": "{{ (1..90000) | uniq | size }}",
    "lists": (
        "{% assign l = input.mega | split: ',' %}"
        "{% for i in (1..60) %}{% assign l = l | concat: l %}{% endfor %}"
    ),
    "numbers": "{% assign x = 9 %}{% for i in (1..60) %}{% assign x = x | times: x %}{% endfor %}",
    "itself": "{% render 'itself' %}",
    "a tree": "{% render 'tree0' %}",
    "deep blocks": "{% if 1 %}" * 200 + "{% endif %}" * 200,
}


@pytest.mark.parametrize("body", ENDLESS.values(), ids=ENDLESS)
def test_what_would_not_end_is_stopped_soon(load, body):
    siblings = {f"tree{i}": f"{{% render 'tree{i + 1}' %}}" * 2 for i in range(25)}
    siblings |= {"itself": "{% render 'itself' %}" * 2, "tree25": "x"}
    values = {"mega": "a" * 1_000_000, "huge": 10**30}
    start = time.process_time()
    fault(lambda: load(f"<system>{body}</system>", **siblings).render(values))
    assert time.process_time() - start < 10


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (ENDLESS["a long loop"], "a range is longer than 100,000"),
        (ENDLESS["loops in a row"], "stopped after 100,000 iterations"),
        (ENDLESS["100 MB"], "stopped after 10,000,000 characters"),
        (ENDLESS["replacing"], "stopped after 100,000,000 characters of work"),
        (ENDLESS["numbers"], "a number has more than 4,096 bits"),
    ],
)
def test_the_error_says_which_limit(load, body, reason):
    file = load(f"<system>\n\n{body}\n</system>")
    assert fault(file.render, {"mega": "a" * 1_000_000}) == ("chat.md", 3, reason)


def test_a_long_prompt_is_no_offence(system):
    assert len(system("{{ input.x }}", input={"x": "a" * 9_000_000})) == 9_000_000
    body = "{% for i in (1..50000) %}{{ i | times: 2 }},{% endfor %}"
    assert system(body).endswith(",99998,100000,")


def test_without_the_extra_the_error_says_what_to_install(tmp_path):
    source = Path(muntin.__file__).parents[1]
    script = f"import sys; sys.path.insert(0, {str(source)!r})\n" + (
        "from muntin.prompts.files import prompt_file; prompt_file('x.md')"
    )
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=False
    )
    assert "MissingExtra: prompt files need: pip install 'muntin[prompts]'" in run.stderr


class TestWhatCannotBeRead:
    @pytest.mark.parametrize(
        "value",
        [
            "2024-13-45",
            "!!bool x",
            "!!timestamp x",
            "!!int x",
            '"\\UFFFFFFFF"',
            "7" * 5_000,
            "!!python/name:os.system",
        ],
        ids=lambda value: value[:20],
    )
    @pytest.mark.parametrize("key", ["name", "max_tokens", "temperature"])
    def test_a_front_matter_value_that_yaml_fails_on_is_an_error_with_its_line(
        self, load, key, value
    ):
        name, line, reason = fault(load, f"---\nintent: a\n{key}: {value}\n---\n<system>a</system>")
        assert (name, reason.startswith("front matter: ")) == ("chat.md", True)
        assert line == (2 if "UFFFF" in value else 3)

    @pytest.mark.parametrize(
        ("lines", "line", "sign"),
        [
            ("name: &a x", 3, "&a"),
            ("name: x\ncaching: *a", 4, "*a"),
            ("name: &a x\ncaching: *a", 3, "&a"),
            ("name: [&a [b, b], *a]", 3, "&a"),
            ("&k name: x", 3, "&k"),
            ("name: x\n<<: *base", 4, "*base"),
        ],
    )
    def test_anchors_and_aliases_are_refused_by_line(self, load, lines, line, sign):
        text = f"---\nintent: a\n{lines}\n---\n<system>a</system>"
        assert fault(load, text) == (
            "chat.md",
            line,
            f"{sign}: no anchors and aliases; write the value out",
        )

    def test_a_billion_laughs_are_refused_at_once(self, load):
        laughs = ["a0: &a0 [ha, ha]"]
        laughs += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
        text = "\n".join(["---", *laughs, "name: *a29", "---", "<system>a</system>"])
        began = time.process_time()
        assert fault(load, text)[:2] == ("chat.md", 2)
        assert time.process_time() - began < 10  # written out they are 10 to the 29th

    def test_a_quoted_sign_is_a_text(self, load):
        text = '---\nname: "*a & b"\ndescription: a * b &c\n---\n<system>a</system>'
        assert dict(load(text).config) == {"name": "*a & b", "description": "a * b &c"}

    def test_a_front_matter_nested_too_deeply_is_an_error(self, load):
        text = f"---\nname: {'- ' * 5_000}\n---\n<system>a</system>"
        name, line, reason = fault(load, text)
        assert (name, line) == ("chat.md", 2)
        assert reason.startswith("front matter: ")

    def test_a_number_beyond_a_float_is_an_error(self, load):
        text = f"---\ntemperature: {10**400}\n---\n<system>a</system>"
        assert fault(load, text)[1:] == (
            2,
            "front matter: OverflowError: int too large to convert to float",
        )

    @pytest.mark.parametrize("path", [None, 5, b"chat.md"])
    def test_what_is_not_a_path_is_an_error_naming_it(self, path):
        with pytest.raises(InvalidType, match=f"must be a str or Path, not {path!r}"):
            prompt_file(path)

    @pytest.mark.parametrize("path", ["a\0b", "a\ud800b"])
    def test_a_path_that_no_file_can_have_is_an_error(self, path):
        name, line, reason = fault(prompt_file, path)
        assert (name, line) == (path, None)
        assert reason.startswith("cannot be read: ")


@pytest.mark.parametrize(
    "body",
    [
        "---\nname: " + "[" * 50_000 + "\n---\n<system>\nx\n</system>\n",
        "---\nname: " + "{" * 50_000 + "\n---\n<system>\nx\n</system>\n",
        "---\nname: " + "- " * 20_000 + "\n---\n<system>\nx\n</system>\n",
        "<system>\n" + "{{" * 20_000 + "\n</system>\n",
        "<system>\n" + "{%" * 20_000 + "\n</system>\n",
        "<system>\n{% if " + "(" * 20_000 + "a" + ")" * 20_000 + " %}x{% endif %}\n</system>\n",
        "<system>\n" + "x" * 70_000 + "\n</system>\n",
    ],
    ids=["lists", "mappings", "dashes", "outputs", "tags", "groups", "bytes"],
)
def test_a_file_that_would_take_long_to_parse_is_refused_at_once(load, body):
    prompt_file(load("<system>\nx\n</system>\n").path)  # the imports take their time
    began = time.process_time()
    with pytest.raises(PromptFileError):
        load(body)
    assert time.process_time() - began < 0.5


def test_limits_of_size_and_depth_are_options_and_hold_for_partials(load):
    large = load("<system>\n{% render 'rules' %}\n</system>\n", rules="x" * 50_000).path
    where, _, reason = fault(prompt_file, large, max_bytes=40_000)
    assert (where, "larger than 40,000 bytes" in reason) == ("rules.md", True)
    deep = load("<system>\n{{ input" + "[input" * 40 + ".a" + "]" * 40 + " }}\n</system>\n").path
    assert prompt_file(deep).sections == ("system",)
    assert fault(prompt_file, deep, max_depth=20) == (
        "chat.md",
        2,
        "brackets nested more than 20 levels deep (max_depth)",
    )
    # Braces of a text that is no Liquid are text.
    load("<system>\n" + "{ [ (" * 200 + "\n</system>\n")
