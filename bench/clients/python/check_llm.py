import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from common import KEY, MODEL, URL, expect

with tempfile.TemporaryDirectory() as folder:
    models = f"- model_id: hermes\n  model_name: {MODEL}\n  api_base: {URL}/v1\n  api_key_name: hermes\n"
    (Path(folder) / "extra-openai-models.yaml").write_text(models)
    (Path(folder) / "keys.json").write_text(json.dumps({"hermes": KEY}))
    environ = {**os.environ, "LLM_USER_PATH": folder}
    for arguments in (["hello"], ["--no-stream", "hello"], ["-c", "and?"]):
        command = [sys.executable, "-m", "llm", "-m", "hermes", *arguments]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
        expect(done.returncode == 0 and done.stdout.strip(), f"llm {arguments}: {done.stderr[-300:]}")
