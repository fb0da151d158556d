"""The wire formats: one codec for each API, which reads and writes all that it knows.

`encode` makes a request of a window, `decode` and `Assembler` read a whole or a streamed answer,
`names_of` tells the names under which tools are sent. `read_request` and `write_request` read a
request that others made, and write it with the messages that stay.
"""

from muntin.wire import anthropic, chat, google, responses

__all__ = ["anthropic", "chat", "google", "responses"]
