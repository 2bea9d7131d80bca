"""A real server with a real model, as a process of its own: llama.cpp's HTTP server from `xllamacpp`, on loopback.

    python llama_server.py '{"port": 0, "model": "model.gguf", ...}'

It prints one line once the model is loaded, and ends when its standard input does: a test that dies leaves no server behind.
One thread: more are slower where the cores are shared.
"""

import json
import sys
from pathlib import Path
from typing import Any

import xllamacpp


def parameters(about: dict[str, Any]) -> xllamacpp.CommonParams:
    given = xllamacpp.CommonParams()
    given.model.path = about["model"]
    given.model_alias = {"live"}
    given.hostnames, given.port, given.reuse_port = ["127.0.0.1"], about["port"], True
    given.n_ctx, given.n_parallel = about["window_tokens"], about["slots"]
    given.cpuparams.n_threads = given.cpuparams_batch.n_threads = 1
    given.sampling.temp, given.sampling.seed = 0.0, 1  # the same words every time
    begin, end = about["turns"]
    template = Path(about["template"]).read_text(encoding="utf-8")
    given.chat_template, given.use_jinja = template.replace("<|im_start|>", begin).replace("<|im_end|>", end), True
    given.endpoint_slots = given.endpoint_metrics = True
    given.cache_ram_mib = 256  # prompts that left the slot; the usual 8 GiB are not a test's to take
    given.warmup = given.ui = False
    return given


def main() -> None:
    server = xllamacpp.Server(parameters(json.loads(sys.argv[1])))
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
