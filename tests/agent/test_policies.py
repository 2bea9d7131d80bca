"""A policy that could never hold, and an approver that could never be asked, are errors where they are given (issue 13)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from flat_agents import flat_agent
from tables import each
from turnwise import Agent, Approval, Asking, PermissionRule, Policy, ToolSpec, tool
from turnwise.agent.agent_setup import check_tools_of_rules, known_tools, own_tools
from turnwise.coding_agent.permissions import allowed_rules
from turnwise.errors import CallerError
from turnwise.testing import ScriptedModel, call
from turnwise.tools.workspace import workspace_tools

ATTENDED = Policy(attended=True)
published: list[str] = []


@tool(effect="write")
def publish(page: str) -> str:
    """Put a page on the web site."""
    published.append(page)
    return "done"


async def yes(asking: Asking) -> Sequence[Approval]:
    return [Approval(call_id=ask.call.id, verdict="allow") for ask in asking.asks]


def an_agent(script: Sequence[Any] = ("Done.",), **options: Any) -> Agent:
    model = ScriptedModel(list(script))
    return flat_agent("openai_chat:scripted", base_url=model.endpoint.base_url, transport=model, **options)


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (
            None,
            r"without a `policy` every tool .* runs unasked. Give the agent `policy=Policy\(attended=True\)`",
        ),
        (Policy(), r"the policy is not attended, .* is denied at once. Give the agent a policy with `attended=True`"),
        (Policy(unattended="allow"), r"is allowed at once"),
    ],
)
def test_an_approver_that_can_never_be_asked_is_an_error_where_the_agent_is_made(
    policy: Policy | None, said: str
) -> None:
    """Proves: before, a `write` tool ran unasked, or everything was denied; the error says how to mend it."""
    with pytest.raises(CallerError, match=said):
        an_agent(tools=[publish], policy=policy, approver=yes)
    with pytest.raises(CallerError, match=said):
        an_agent(tools=[publish], policy=policy).run_sync("Go.", safety={"approver": yes})
    assert published == []


def test_an_approver_that_only_sub_agents_ask_is_none() -> None:
    """Proves: at the root, what a child's own policy asks about is answered."""
    child = an_agent([call("publish", page="news"), "Done."], tools=[publish], policy=ATTENDED)
    root = an_agent([call("task", agent="writer", prompt="go"), "Done."], agents={"writer": child}, approver=yes)
    assert root.run_sync("Go.").complete and published == ["news"]


@each(
    ("rule", "said"),
    [
        (
            PermissionRule(verdict="deny", tool="publsh"),
            r"`policy.rules\[1\]`: .*no tool `publsh`; did you mean `publish`\?",
        ),
        (PermissionRule(verdict="deny", tool="Bash"), r"did you mean `bash`\?"),
        (PermissionRule(verdict="deny", tool="publsh*"), r"no tool `publsh\*`"),
        (PermissionRule(verdict="deny", tool="zzz"), r"there are `read`, "),
        (PermissionRule(verdict="deny", tool="read", command=("x",)), r"`read` runs no commands"),
        (PermissionRule(verdict="deny", tool="read", effect="write"), r"has the effect `read` and never `write`"),
        (PermissionRule(verdict="deny", tool="publish", path="x"), r"`publish` are not looked at"),
        (PermissionRule(verdict="deny", tool="publish", command=("x",)), r"`publish` runs no commands"),
        (PermissionRule(verdict="deny", tool="task", path="x"), r"are not looked at"),
        (PermissionRule(verdict="deny", tool="ask_user"), r"no rule holds for `ask_user`, as its calls are questions"),
        (PermissionRule(verdict="deny", tool="paint"), r"no rule holds for `paint`, as its calls run elsewhere"),
    ],
)
def test_a_rule_about_no_tool_that_there_is_is_an_error(rule: PermissionRule, said: str) -> None:
    """Proves: prohibitions included, with the rule's place and the nearest name; nothing is sent."""
    model = ScriptedModel(["Done."])
    fine = PermissionRule(verdict="ask", tool="publish")
    agent = flat_agent(
        "openai_chat:scripted",
        base_url=model.endpoint.base_url,
        transport=model,
        tools=[publish, ToolSpec(name="paint")],
        policy=Policy(rules=(fine, rule)),
    )
    with pytest.raises(CallerError, match=said):
        agent.run_sync("Go.")
    assert model.asked == []


@each(
    "rule",
    [
        PermissionRule(verdict="deny"),
        PermissionRule(verdict="deny", path="customers/**"),
        PermissionRule(verdict="deny", tool="pub*"),
        PermissionRule(verdict="deny", tool="publish", effect="write"),
        PermissionRule(
            verdict="deny", tool="read", path="x"
        ),  # one of turnwise's own: the file of settings is for all runs
        PermissionRule(verdict="deny", tool="read", effect="execute", path="x"),  # what commands read
        PermissionRule(verdict="allow", tool="bash", effect="write", path="x"),
        PermissionRule(verdict="deny", tool="bash", command=("rm", "*")),
        PermissionRule(verdict="deny", tool="*", command=("rm", "*")),
        PermissionRule(verdict="allow", tool="gone", source="session"),
    ],
)
def test_rules_that_can_match_are_none(rule: PermissionRule) -> None:
    """Proves: files of settings are shared by runs with other tools, and sessions remember tools of before."""
    agent = an_agent(tools=[publish], policy=Policy(rules=(rule,)))
    assert agent.run_sync("Go.").complete


def test_a_policy_of_the_library_is_read_as_a_file_is() -> None:
    """Proves: its patterns are put into their plain form, or refused with their place, where the agent is made."""
    rules = (PermissionRule(verdict="deny", path="customers//**"),)
    tools = workspace_tools(Path("/"))
    model = ScriptedModel([call("read", path="customers/a.csv"), "Done."])
    from turnwise.tools.shell_judge import inspector

    agent = flat_agent(
        "openai_chat:scripted",
        base_url=model.endpoint.base_url,
        transport=model,
        tools=tools,
        policy=Policy(rules=rules, workspace="/", home="/root"),
        inspect=inspector(tools, workspace=Path("/")),
    )
    assert "Denied: `read`" in str(agent.run_sync("Go.").new_messages)
    for wrong in (
        PermissionRule(verdict="deny", path="a\\b"),
        PermissionRule(verdict="deny", path=""),
        PermissionRule(verdict="deny", tool="bash", command=("A=1", "x")),
        PermissionRule(verdict="deny", tool="bash", command=()),
    ):
        with pytest.raises(CallerError, match=r"`policy.rules\[1\]`: `(path|command)`"):
            an_agent(policy=Policy(rules=(*rules, wrong)))


def test_a_misspelt_tool_in_allow_is_an_error_with_the_nearest_name() -> None:
    """Proves: at the command line, for patterns and for effects."""
    for text, near in (("bsh(git push)", "bash"), ("edti(src/**)", "edit"), ("Write(src/**)", "write")):
        with pytest.raises(CallerError, match=rf"--allow .*there is no tool .*did you mean `{near}`\?"):
            check_tools_of_rules(Policy(rules=allowed_rules(text)), tools={})
    with pytest.raises(CallerError, match=r"did you mean `write`\?"):
        allowed_rules("wirte")


def test_the_tools_that_turnwise_brings_are_known_as_they_are() -> None:
    """Proves: names and effects come from the tools themselves, so there is no second list."""
    tools = known_tools(workspace_tools(Path("/")))
    assert {name: own_tools()[name] for name in tools} == tools
    assert set(own_tools()) - set(tools) == {"ask_user", "task", "script", "read_result"}
