"""The wire formats: one codec for each API, which reads and writes all that it knows.

`encode` makes a request of a window, `decode` and `Assembler` read a whole or a streamed answer,
`names_of` tells the names under which tools are sent. `read_request` and `write_request` read a
request that others made, and write it with the messages that stay. `ITEM_FORMAT` says how items are
written back with some of their blocks, shorter results and new arguments, in requests as in lists.

A rule of one vendor stands in its codec. What the codecs share: the order of answers (`answers`),
items with blocks (`blocks`), files (`media`), names of tools (`names`), what is not carried
(`common`). `lists` reads lists in any form, and `lenient` the forms of frameworks.
"""

from muntin.wire import anthropic, chat, google, responses

__all__ = ["anthropic", "chat", "google", "responses"]
