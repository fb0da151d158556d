"""The gateway: an HTTP server in front of a provider's server, which makes every request fit."""

from muntin.gateway.server import Gateway, make_server, serve

__all__ = ["Gateway", "make_server", "serve"]
