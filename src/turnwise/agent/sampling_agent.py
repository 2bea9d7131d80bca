"""Answers an MCP server's question to the model (sampling). A sub-agent answers, which has the agent's model and nothing else of
it."""

from collections.abc import Callable

import msgspec

from turnwise.agent.agent_setup import AgentSetup
from turnwise.agent.children import Delegate
from turnwise.agent.run_input import Instructions
from turnwise.errors import CallerError, ToolFault
from turnwise.rules.arguments import mcp_tool_name
from turnwise.rules.permission_facts import CallFacts
from turnwise.rules.permissions import judge_permission
from turnwise.running.tools import ChildOrder
from turnwise.running.working_call import NOTHING_LEFT, ModelAnswer, ModelQuestion, NoAnswer
from turnwise.turn.config import TurnResult
from turnwise.vocab import StopReason, Text

TOOL = "sampling"  # its name in permission rules: `mcp(git.sampling)`
SYSTEM = (
    "A program, the MCP server `{server}`, asks you for a text while it works on a call. Its request is all that you see; "
    "anybody may have written it. Answer it from what it holds. You have no tools, and you know nothing of the user's "
    "conversation, files or keys: do not pretend otherwise. Reply with the answer alone."
)


async def answered(
    setup: AgentSetup, order: ChildOrder, question: ModelQuestion, *, agent_of: Callable[[AgentSetup], Delegate]
) -> ModelAnswer:
    """The answer of a sub-agent of the agent with this `setup`; `agent_of` makes the sub-agent. Raises NoAnswer."""
    await _check_policy(setup, order, question)
    results: list[TurnResult] = []
    agent, order = agent_of(_bare(setup, question)), msgspec.structs.replace(order, ended=results.append)
    try:
        await agent.run_child(order, question.parts, name=f"mcp:{question.server}")
    except (ToolFault, CallerError) as error:
        raise NoAnswer(f"the model gave no answer ({results[0].stop_reason if results else error})") from None
    result = results[0]
    if not result.requests:
        raise NoAnswer(NOTHING_LEFT)
    if result.stop_reason is not StopReason.ANSWERED or result.origin != "model" or not result.text:
        raise NoAnswer(f"the model gave no answer ({result.stop_reason})")
    return ModelAnswer(text=result.text, model=setup.config.model, is_cut=not result.complete)


async def _check_policy(setup: AgentSetup, order: ChildOrder, question: ModelQuestion) -> None:
    if (policy := setup.config.policy) is None:
        return
    facts = CallFacts(call_id=order.call.id, tool=mcp_tool_name(question.server, TOOL), effect="none")
    kind = judge_permission(facts, policy=policy).kind
    if kind == "ask" and await question.ask(_question_said(question)):
        return
    if kind != "allow":
        raise NoAnswer("the user's rules do not allow it")


def _question_said(question: ModelQuestion) -> str:
    """Everything that the model would get: a person approves only what is shown."""
    texts = [part.text if isinstance(part, Text) else f"[{part.media_type}]" for part in question.parts]
    return "\n".join([f"May the MCP server `{question.server}` ask the model? It sends:", *texts])


def _bare(setup: AgentSetup, question: ModelQuestion) -> AgentSetup:
    """The setup of the sub-agent: with the model, its endpoint, prices and hooks; without tools, instructions, output type and
    deps."""
    instructions = Instructions(SYSTEM.format(server=question.server))
    settings = setup.config.settings
    most = min(question.max_tokens, settings.max_output_tokens or question.max_tokens)
    config = msgspec.structs.replace(
        setup.config,
        system=instructions.texts,
        tool_choice="auto",
        parallel_tool_calls=None,
        settings=msgspec.structs.replace(settings, max_output_tokens=most, stop=()),
        max_steps=1,
        recover="off",
        room="off",
        calls_in_text="off",
        fallbacks=(),
    )
    return msgspec.structs.replace(
        setup,
        config=config,
        instructions=instructions,
        tools=(),
        toolsets=(),
        is_unfurnished=False,
        delegations={},
        output=None,
        deps_type=None,
        prepare_step=None,
        opening=None,
        batch_hint=False,
        script=False,
        notes=None,
    )
