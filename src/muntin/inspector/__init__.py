"""The inspector: a local, read-only web page over the reports a store keeps."""

from muntin.inspector.server import make_server, serve

__all__ = ["make_server", "serve"]
