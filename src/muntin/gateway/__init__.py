"""The gateway: an HTTP server in front of a provider's, through which every request fits."""

from muntin.gateway.server import Gateway, make_server, serve

__all__ = ["Gateway", "make_server", "serve"]
