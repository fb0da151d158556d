"""OpenAI's client for Node, from npm, through the gateway."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.fitting.traffic import questions, request, talk, traffic
from tests.gateway.running import running

# A folder in which `npm install openai` was run; the tests need no network.
FOLDER = Path(os.environ.get("MUNTIN_NODE", Path.home() / ".cache" / "muntin-node"))
BUDGET, TURNS = 1_200, 10

SCRIPT = """
import { readFileSync } from "node:fs";
import OpenAI from "openai";
const client = new OpenAI({ apiKey: "k", baseURL: process.argv[2] + "/v1", maxRetries: 0 });
for (const given of JSON.parse(readFileSync(process.argv[3], "utf8"))) {
  let said = "";
  for await (const chunk of await client.chat.completions.create({ ...given, stream: true })) {
    said += chunk.choices[0]?.delta?.content ?? "";
  }
  const { data, response } = await client.chat.completions.create(given).withResponse();
  const receipt = response.headers.get("x-muntin-receipt");
  console.log(JSON.stringify([said, data.choices[0].message.content, receipt !== null]));
}
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here")
@pytest.mark.skipif(
    not (FOLDER / "node_modules" / "openai").is_dir(),
    reason=f"there is no openai in {FOLDER}: npm install openai there, or set MUNTIN_NODE",
)
def test_the_client_for_node_goes_through(tmp_path):
    script = FOLDER / "through-the-gateway.mjs"
    script.write_text(SCRIPT, encoding="utf-8")
    given = [request("chat", messages) for messages in talk("chat", TURNS)]
    file = tmp_path / "requests.json"
    file.write_text(json.dumps(given), encoding="utf-8")
    with traffic(BUDGET) as (server, seen), running(server.url, BUDGET) as gate:
        done = subprocess.run(
            ["node", str(script), gate.url, str(file)],
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.stderr == ""
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines == [["Hello, world", "Hello, world", True]] * len(given)
    assert seen.wrong == []
    assert len(questions(seen.bodies[-1])) < TURNS
