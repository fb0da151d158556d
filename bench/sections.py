"""What each benchmark compares, in the order of the page of all figures."""

from __future__ import annotations

from collections.abc import Mapping

SECTIONS: Mapping[str, tuple[str, str]] = {
    "compose": (
        "Fitting a history",
        """A history of N messages is fitted into 8 000 and 128 000 tokens, beside
`langchain_core.messages.trim_messages` and `litellm.utils.trim_messages`. All do the same work
with the same exact tokenizer (o200k_base), on messages built beforehand; processor time, medians,
and what takes over 4 seconds is run once. One in five messages is a tool result. "agent": texts
as long as those of agents that read files and search, some 1 100 characters on average;
"recorded": as short as in the recorded conversations they are made of, 260 on average. LangChain
is given both forms of counter that its documentation shows. LiteLLM is given the luckiest budget
within 50 tokens. At other budgets a few tokens are left over, and LiteLLM walks the whole history
again for every message that it keeps. Above 1 000 messages into 128 000 tokens LiteLLM is left out:
one call takes minutes.

Where everything fits, every library counts everything once, and none is faster. With short messages
the tokenizer takes most of a first call. LangChain tokenises the whole history, Muntin only what
can fit.""",
    ),
    "templates": (
        "Prompts from templates",
        """Beside the real prompt-poet, from the same data to the same messages: a template of 20
parts rendered (Jinja2 and YAML there, Liquid here); such parts dropped by priority until a budget
is met (truncation priorities there, contexts here, whose joined text is really counted); and a
system text from a template, a history and a question fitted into 8 000 tokens. "First time" is a
tokenizer that has counted nothing yet; "next turn" has one message more than the turn before.
prompt-poet remembers no counts, so every call of prompt-poet is a first one.""",
    ),
    "prompts": (
        "Prompts and contexts",
        """A prompt of 50 contexts of 800 characters, under a budget that drops 20 of them. Two
ratios compare times, the others compare counts.""",
    ),
    "store": (
        "The store",
        """SQLite sessions beside bare `sqlite3` with the same tables, the same pragmas and
`synchronous=FULL`, and long sessions beside short ones. The ratio of an append depends on the disk:
the quicker a commit, the more of Muntin's own work shows.""",
    ),
    "wire": (
        "The wire",
        """A window of 1 000 messages encoded beside one `json.dumps` of the same request; and
what a piece of a streamed reply costs when the reply is ten times as long.""",
    ),
    "runtime": (
        "The runtime",
        """One wake of an entity with a scripted model: send, compose a window of 8 000 tokens
from a long timeline of recorded conversations, run, record. The other side makes as many bare
commits as the wake does. The quicker a disk commits, the more of the wake's own work shows.
Processor time is that of Muntin's process.""",
    ),
    "gateway": (
        "The gateway",
        """A request through the gateway beside the same request sent to the provider itself, and
through a plain proxy on the same server and HTTP client. The provider answers at once: what differs
from the proxy is what Muntin does.""",
    ),
    "engine": (
        "Engines",
        """Wakes in workers (procrastinate) beside the embedded engine, on one PostgreSQL:
how soon a wake begins that another process sent, how many empty ones a second, how that grows with
workers, and what idle entities and waiting jobs cost.""",
    ),
    "caching": (
        "Prompt caches",
        """Sessions are replayed against the providers' published caching rules, every policy with
the budget at which it retains as much history as `Stepped()` does; what is compared is the cost
of all input. [Cache policies](design/cache-policies.md) has the settings and the aims.""",
    ),
    "long_runs": (
        "Long runs",
        """One run of 400 requests and 62 turns, made of recorded tool conversations: results of 0.4
to 60 KB, runs of 1 to 24 steps, identifiers ("needles") that a later message of the user repeats.
Every policy plays the same script; each library's own code decides what is sent and encodes it.
All count with o200k_base, and each is given the whole room: LangChain's `trim_messages` (from a
message of the user or the model on, and from a user's only, as its guides have it),
`ContextEditingMiddleware` with `ClearToolUsesEdit`, `SummarizationMiddleware` (half of the room
kept), and Microsoft Agent Framework's `ContextWindowCompactionStrategy`. One scripted summariser
serves all: it keeps identifiers, up to 100 of them.

The columns:

- **invalid**: requests that the provider refuses, by its written rules, or that were not made.
- **over**: requests larger than the window.
- **kept**: how much of an encoded request the next request begins with; inside runs, and on the
  whole.
- **cost**: by the rules of the provider's cache, with 30 s between requests, summaries included, in
  tokens of plain input.
- **turns**: how many turns are in view, counted in parts; in full, or named in some form.
- **last 50 calls**: how many of them the model can still see. **newest call**: how often the model
  sees the call that it made just before. **just-returned results shown**: how many of the results
  of these calls have at least half of the room that they can use, a quarter of the window at most.
- **needles**: identifiers that are in the window when the user repeats them; of the last 20 turns,
  and of all. "or named" adds those in a call that is visible and can be loaded.
- **time**: processor time between two requests divided by that of the first row, where all policies
  ran in one go.

The first quarter of the run, in which windows fill, is left out of turns and calls. The aim for
cost is the cheapest peer whose requests are all valid, all fit, and always show the newest call.
What can be kept inside runs has a limit, because a result that becomes a stub is rewritten: see
[long runs](design/long-runs.md).""",
    ),
    "recall": (
        "Recall",
        """How often a small window holds what a question needs. **needles**: a message of a
recorded tool conversation names an identifier that only an earlier tool result holds, with 200
turns of other conversations between them. **facts**: the same twelve in four languages, among 400
turns of small talk. Beside it stand the newest messages that fit, LangChain's `trim_messages`, BM25
with recall's words and with those of `rank_bm25`, and LangChain's vector store with hashed words,
weighed by how rare they are: an embedding model would have to be downloaded. All fill the same
tokens with whole messages, best first. Then what the index costs in processor time: a question, an
append, and bytes, stored and in memory. [Recall](recall.md) says how it works and what it cannot
find.""",
    ),
    "adapters": (
        "Adapters",
        """Each framework's agent is played against a model on this machine, which speaks the
provider's API over HTTP: 60 turns, 178 requests, fourteen tools, 8 000 tokens; results of 0.4 to
8 KB, runs of up to 11 steps. First with Muntin at the framework's hook, then with what the
framework brings itself. **invalid** and **over budget** as under long runs; **question lost**:
requests that do not show what the user asks; **kept**: how much of a request the next one begins
with; **billed**: input by the rules of the provider's cache, summaries included; **turns seen**: in
view in any form that names them; **ms added**: processor time of the hook for each request, where
it could be measured; **lines**: of the adapter.""",
    ),
    "first_token": (
        "Time to the first token",
        """What the policies of the long runs mean on a real key-value cache: requests 100 to 300 of
the run, a window of 32,000 tokens, on a decoder with the shape of an 8B model and random weights.
What a request shares with the one before is in the cache, the rest is read; one conversation has
the cache to itself. LangChain's `trim_messages` from a user's message on sends half as much, and
hides the run at hand from the model.""",
    ),
    "estimate": (
        "Counting tokens",
        """The mean error of the offline estimate, beside the rule of four characters a token,
against exact counts of o200k_base; how long the estimate takes; and a first pass of exact counting,
beside tiktoken encoding the same texts. Muntin counts with tiktoken, so it cannot be faster: what
is more is names, calls, and a memory of each count. [Counting tokens](tokens.md) has more, and
[which tokenizer](design/tokenizers.md) says why no faster one is used.""",
    ),
}
