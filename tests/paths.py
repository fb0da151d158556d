"""Where things lie, for tests in any folder."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data"
TRACES = DATA / "airline-traces.jsonl"
