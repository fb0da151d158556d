"""LangGraph: the helper of a node, with the frontier in the checkpoint."""

from __future__ import annotations

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from muntin.errors import InvalidInput
from muntin.integrations.langgraph import MuntinFit
from tests.integrations.contract import check_fits, check_same_bytes, session_of


def test_every_request_is_valid_and_fits(whole):
    check_fits(whole)


def test_the_same_bytes_are_sent_after_a_restart(whole, tmp_path):
    check_same_bytes("langgraph", tmp_path, whole)


def test_messages_come_back_as_the_objects_they_were():
    messages = [HumanMessage("Hi", id="1"), AIMessage("Hello", id="2"), HumanMessage("Bye", id="3")]
    fitted = MuntinFit(1_000)({"messages": messages})
    assert all(one is other for one, other in zip(fitted.messages, messages, strict=True))
    assert set(fitted.update) == {"muntin_frontier"}


def test_a_state_without_the_key_is_refused_by_name():
    with pytest.raises(InvalidInput, match="'messages'"):
        MuntinFit(1_000)({})


def test_a_conversation_is_recorded_under_the_framework_s_own_id(tmp_path):
    assert session_of("langgraph", tmp_path) == "1"
