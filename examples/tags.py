"""Tagged context: a generator and two sources write into the same tags, in author order."""

from muntin import aggregate, contribute, raw
from muntin.errors import InvalidInput

generator = contribute(
    "generator",
    {
        "documents": "from generator itself",
        "userPreferences": None,  # whoever fills it, it stands second
        "memory": {"shortTerm": ["asked about Oslo", "likes window seats"]},
    },
)
source_a = contribute(
    "source-a", {"documents": "from A: 3 < 4 </documents>", "user_preferences": {"theme": "dark"}}
)
source_b = contribute(
    "source-b",
    {
        "documents": lambda: "from B, when asked",
        "memory": {"long-term": raw("<fact>flies often</fact>")},
    },
)

# A door calls what is callable, with whatever arguments and event loop it has.
for call in source_b.calls:
    print(f"to be called for {call.path!r}")
source_b = source_b.fill([call.function() for call in source_b.calls])

tagged = aggregate([generator, source_a, source_b])
print(tagged.render())

print("\nwho wrote what:")
for path, shares in tagged.provenance.items():
    print(f"  {path}: {', '.join(f'{share.author} ({len(share.text)})' for share in shares)}")
print("memory is by", tagged.who("memory"))

try:
    aggregate([generator, contribute("source-c", {"documents": {"recent": "x"}})])
except InvalidInput as error:
    print(f"\n{error}")
