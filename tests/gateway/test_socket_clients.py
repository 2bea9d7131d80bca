"""The `openai` package over a WebSocket, at a real `turnwise gateway`: the lab's streams, and a loop of tools in warm context."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import openai
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from gateway.judged import FAILING, FAMILIES, HEALTHY, HOPELESS, MALFORMED, SCRIPTS, Cell, Judged, Stage, stage
from gateway.official_clients import LIMIT_TOKENS, QUESTION, SCHEMA, TOOL_NAMES, of_response
from gateway.served_gateway import served_gateway
from turnwise.lab import Lab
from turnwise.lab.script import Script, ScriptedCall, ScriptedStep
from waits import HANG_S

# The package itself calls `websockets` in a way that the newest version warns of.
pytestmark = pytest.mark.filterwarnings("ignore:connect.. must be used as a context manager:DeprecationWarning")

TOOLS: list[Any] = [{"type": "function", "name": name, "parameters": SCHEMA, "strict": False} for name in TOOL_NAMES]
ENDS = {"response.completed", "response.incomplete", "response.failed"}
BETA = {"openai-beta": "responses_websockets=2026-02-06"}
SAMPLE = 5


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("gateway")) as found:
        yield found


def asked(connection: Any, **fields: Any) -> Any:
    """The event that ends the answer. Raises OpenAIError for an error; one in mid-answer is followed by `response.failed`."""
    connection.response.create(**{"tools": TOOLS, "max_output_tokens": LIMIT_TOKENS, "store": False, **fields})
    while True:
        event = connection.recv()
        if event.type == "error" and cast("Any", event).status is not None:
            raise openai.OpenAIError(cast("Any", event).error.message)
        if event.type in ENDS:
            return event


def heard_of(connection: Any, cell: Cell) -> Judged:
    try:
        return Judged(of_response(asked(connection, model=cell.model, input=QUESTION).response), None)
    except openai.OpenAIError as error:
        return Judged(None, error)


def cells(cases: list[str]) -> list[Cell]:
    return [
        Cell(case, upstream, "openai_responses", streamed=True)
        for case in cases
        for upstream in FAMILIES
        if SCRIPTS[case].speaks(upstream)
    ]


def wrong(served: Stage, chosen: list[Cell]) -> dict[Cell, object]:
    """All on one connection."""
    client = openai.OpenAI(base_url=f"{served.gateway}/v1", api_key="none", max_retries=0)
    wanted = {case: served.wanted(case) for case in {cell.case for cell in chosen}}
    with client.responses.connect(extra_headers=BETA) as connection:
        found = {cell: heard_of(connection, cell) for cell in chosen}
    return {cell: judged for cell, judged in found.items() if judged.verdict(wanted[cell.case]) != "right"}


@pytest.mark.costly
@pytest.mark.promise("heal:every-case")
def test_the_sdk_gets_the_right_answers_over_a_websocket(served: Stage) -> None:
    """A sample of the malformed streams and the healthy ones, from upstreams of every family."""
    assert wrong(served, cells([*MALFORMED, *HEALTHY])[::SAMPLE]) == {}


@pytest.mark.wide
@pytest.mark.promise("heal:every-case")
def test_the_sdk_gets_the_right_answers_over_a_websocket_in_every_case(served: Stage) -> None:
    assert wrong(served, cells([*MALFORMED, *HEALTHY])) == {}


@pytest.mark.wide
@pytest.mark.promise("heal:every-case")
def test_where_the_upstream_fails_there_is_one_error_and_the_connection_goes_on(served: Stage) -> None:
    client = openai.OpenAI(base_url=f"{served.gateway}/v1", api_key="none", max_retries=0)
    with client.responses.connect(extra_headers=BETA) as connection:
        for cell in cells(list(FAILING)):
            meant = served.wanted(cell.case)
            served.forget()
            judged = heard_of(connection, cell)
            may_be_right = cell.case not in HOPELESS and judged.verdict(meant) == "right"
            assert may_be_right or isinstance(judged.error, openai.OpenAIError), cell


LOOP = Script(
    name="loop",
    title="reads, then answers",
    steps=(ScriptedStep(calls=(ScriptedCall(name="read", arguments={"path": "a"}),)), ScriptedStep(text="It is read.")),
)


@pytest.mark.costly
@pytest.mark.parametrize("upstream", FAMILIES)
async def test_a_loop_of_tools_says_what_is_new_alone_and_a_prewarm_costs_nothing(
    upstream: str, tmp_path: Path
) -> None:
    """The upstream gets each conversation whole. The ledger has a row for each answer, and none for the prewarm."""
    async with Lab([LOOP]) as lab:
        base = "v1beta" if upstream == "gemini" else "v1"
        config = tmp_path / "gateway.toml"
        config.write_text(
            f'[[route]]\nupstream = {{ url = "{lab.url}/{base}", family = "{upstream}", key_env = "LAB_KEY" }}\n'
        )
        env = {"LAB_KEY": "none"}
        with served_gateway(tmp_path, "--config", str(config), upstream=None, env=env) as gateway:
            client = openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{gateway.port}/v1", api_key="none", max_retries=0)
            async with client.responses.connect(extra_headers=BETA) as connection:

                async def ask(**fields: Any) -> Any:
                    await connection.response.create(model="loop", tools=TOOLS, store=False, **fields)
                    while (event := await connection.recv()).type not in {*ENDS, "error"}:
                        pass
                    return event

                warm = await ask(input=[{"role": "user", "content": QUESTION}], generate=False)
                assert (warm.type, warm.response.output, warm.response.usage.total_tokens) == (
                    "response.completed",
                    [],
                    0,
                )
                assert lab.count() == 0
                first = await ask(input=[], previous_response_id=warm.response.id, stream_id="a")
                (call,) = first.response.output
                assert (first.stream_id, call.name, json.loads(call.arguments)) == ("a", "read", {"path": "a"})
                result = {"type": "function_call_output", "call_id": call.call_id, "output": "its words"}
                second = await ask(input=[result], previous_response_id=first.response.id)
                assert second.response.output_text == "It is read."
                gone = await ask(input="more", previous_response_id="resp_of_another")
                assert (gone.status, gone.error.code) == (400, "previous_response_not_found")
            assert sum([row["cost"]["requests"] for row in gateway.usage()["rows"]]) == 2
        assert lab.count() == 2


@pytest.mark.costly
async def test_a_drain_ends_the_running_answer_first_and_closes_so_that_clients_come_again(tmp_path: Path) -> None:
    """SIGTERM: the running answer is whole, one that waits is not begun, and an idle connection is closed at once. 1012 is among
    the codes after which the package opens a new connection; Codex does so after any."""
    words = ScriptedStep(text="One word after the other, until the last one has come.")
    async with Lab([Script(name="slow", title="answers slowly", steps=(words, words))], chunk_delay_s=0.05) as lab:
        config = tmp_path / "gateway.toml"
        config.write_text(
            f'[[route]]\nupstream = {{ url = "{lab.url}/v1", family = "openai_chat", key_env = "LAB_KEY" }}\n'
        )
        env = {"LAB_KEY": "none"}
        with served_gateway(tmp_path, "--config", str(config), upstream=None, env=env) as gateway:
            url = f"ws://127.0.0.1:{gateway.port}/v1/responses"
            async with connect(url) as idle, connect(url) as busy:
                ask = {"type": "response.create", "model": "slow", "input": "hello", "store": False}
                await busy.send(json.dumps(ask))
                kinds = [json.loads(await busy.recv())["type"]]
                await busy.send(json.dumps(ask))
                gateway.process.terminate()
                async with asyncio.timeout(HANG_S):
                    await idle.wait_closed()
                    with pytest.raises(ConnectionClosed):
                        while True:
                            kinds.append(json.loads(await busy.recv())["type"])
                assert (idle.close_code, busy.close_code) == (1012, 1012)
                assert (kinds[0], kinds[-1], kinds.count("response.created")) == (
                    "response.created",
                    "response.completed",
                    1,
                )
            gateway.process.communicate(timeout=HANG_S)
            assert (gateway.process.returncode, lab.count()) == (0, 1)
