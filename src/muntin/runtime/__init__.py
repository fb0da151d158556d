"""The runtime: App, conversations, entities, generators; ctx, which they are all given."""
