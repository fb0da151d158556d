"""The runtime: App, ctx, conversations, entities, generators, flows."""

from muntin.runtime.app import App, SyncApp
from muntin.runtime.conversation import Conversation, SyncConversation
from muntin.runtime.ctx import Ctx, Wake
from muntin.runtime.flows import Action, flow
from muntin.runtime.generators import capability, generator
from muntin.runtime.run_rules import Summary
from muntin.runtime.sources import Source
from muntin.runtime.spending import MaxCost
from muntin.timeline.recall import Recall, Standing
from muntin.timeline.stored_plans import read_plan

__all__ = [
    "Action",
    "App",
    "Conversation",
    "Ctx",
    "MaxCost",
    "Recall",
    "Source",
    "Standing",
    "Summary",
    "SyncApp",
    "SyncConversation",
    "Wake",
    "capability",
    "flow",
    "generator",
    "read_plan",
]
