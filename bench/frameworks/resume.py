"""One process of an app: goes on with a conversation that a folder keeps.

python -m bench.frameworks.resume FRAMEWORK URL FOLDER REQUESTS FIRST END BUDGET
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from bench.frameworks.stage import played

if __name__ == "__main__":
    framework, url, folder, *numbers = sys.argv[1:]
    requests, first, end, budget = map(int, numbers)
    script = played(requests)
    adapter = import_module(f"bench.frameworks.{framework}")
    adapter.resume(script, url, Path(folder), script.turns[first:end], budget)
