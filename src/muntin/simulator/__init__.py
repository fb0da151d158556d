"""The cache simulator: what requests would read from a provider's prompt cache, and cost."""

from muntin.simulator.cache import Block, Cache, Request, Usage
from muntin.simulator.replay import trace_of
from muntin.simulator.result import PolicyRun, RequestCost, Simulation
from muntin.simulator.run import simulate, simulate_trace

__all__ = [
    "Block",
    "Cache",
    "PolicyRun",
    "Request",
    "RequestCost",
    "Simulation",
    "Usage",
    "simulate",
    "simulate_trace",
    "trace_of",
]
