"""Names of the tools of MCP servers, and rules about them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables import each
from turnwise import CallerError, PermissionRule, Policy
from turnwise.agent.schemas import NAME
from turnwise.coding_agent.permissions import allowed_rules, rule_said
from turnwise.rules.allowances import allowing_options
from turnwise.rules.arguments import mcp_pattern, mcp_tool_name
from turnwise.rules.permission_facts import CallFacts
from turnwise.rules.permissions import KnownTool, check_rules, judge_permission
from turnwise.settings.permission_files import parse_rule


def facts(tool: str, *, effect: str = "execute") -> CallFacts:
    return CallFacts(call_id="1", tool=tool, effect=effect)


def verdict(tool: str, *texts: str, effect: str = "execute") -> str:
    rules = tuple(rule for text in texts for rule in allowed_rules(text))
    return judge_permission(facts(tool, effect=effect), policy=Policy(rules=rules, attended=True)).kind


@given(st.text(min_size=1, max_size=200))
def test_every_name_of_a_server_becomes_one_that_providers_take(tool: str) -> None:
    """At most 64 characters, the same each time."""
    name = mcp_tool_name("server", tool)
    assert NAME.fullmatch(name)
    assert name == mcp_tool_name("server", tool)


@given(st.text(min_size=1, max_size=80), st.text(min_size=1, max_size=80))
def test_two_tools_of_a_server_have_two_names(one: str, other: str) -> None:
    """Also where they differ in nothing but a foreign character, or behind the 64th."""
    assert (mcp_tool_name("s", one) == mcp_tool_name("s", other)) == (one == other)


def test_a_name_that_fits_is_not_changed() -> None:
    """Others end in a mark."""
    assert mcp_tool_name("git", "git_log") == "git__git_log"
    assert mcp_tool_name("git", "git.log").startswith("git__git_log_")
    assert len(mcp_tool_name("git", "x" * 100)) == 64


@each(
    ("text", "pattern"),
    [
        ("mcp(git.git_log)", "git__git_log"),
        ("mcp(git.*)", "git__*"),
        ("mcp(git)", "git__*"),
        ("mcp(my-server.read_*)", "my-server__read_*"),
        ("mcp(git.git.log)", mcp_tool_name("git", "git.log")),
        ("bash(ls)", None),
        ("mcp(git.a b)", None),
        ("mcp()", None),
    ],
)
def test_a_rule_names_server_and_tool(text: str, pattern: str | None) -> None:
    """`mcp(server.tool)` is a pattern of the names that the tools have here."""
    assert mcp_pattern(text) == pattern


@each(
    ("tool", "texts", "kind"),
    [
        ("git__log", [], "ask"),
        ("git__log", ["mcp(git.log)"], "allow"),
        ("git__log", ["mcp(git.*)"], "allow"),
        ("git__log", ["mcp(github.*)"], "ask"),
        ("git__log", ["mcp(*.*)"], "ask"),
        ("git__log", ["bash", "write", "execute"], "ask"),
        ("git__bash", ["bash(ls *)"], "ask"),
        ("git__write", ["write(**)"], "ask"),
    ],
)
def test_a_tool_of_a_server_runs_unasked_only_where_a_rule_names_its_server(
    tool: str, texts: list[str], kind: str
) -> None:
    """Proves: what allows our own tools (`write`, `bash`) does not allow a server's, whatever they are called."""
    assert verdict(tool, *texts) == kind


def test_files_of_settings_have_the_same_rule() -> None:
    """`deny` too; a misspelt one is an error with its place."""
    rule = parse_rule({"deny": "mcp(git.git_push)"}, source="user", where="f: `rules[0]`")
    assert rule == PermissionRule(verdict="deny", tool="git__git_push", source="user", where="f: `rules[0]`")
    with pytest.raises(CallerError, match=r"f: `rules\[0\]`: `mcp\(git push\)` is no tool of an MCP server"):
        parse_rule({"deny": "mcp(git push)"}, source="user", where="f: `rules[0]`")


@pytest.mark.parametrize("text", ["mpc(git.*)", "mcpx(git.log)", "MCP(git)"])
def test_a_slip_in_the_word_for_servers_is_told_as_one(text: str) -> None:
    """On the command line and in files; before, the own tools were listed, and servers were not among them."""
    tools = {"read": KnownTool(effect="read"), "bash": KnownTool(effect="execute")}
    for rules in (allowed_rules(text), [parse_rule({"allow": text}, source="user", where="f: `rules[0]`")]):
        with pytest.raises(CallerError, match=r"there is no tool `.*`; did you mean `mcp\(server\.tool\)`\?"):
            check_rules(rules, tools=tools)


def test_a_denial_says_with_which_option_the_call_would_run() -> None:
    """And a rule is shown as it is written."""
    assert allowing_options(facts("git__git_log"), policy=Policy()) == "--allow 'mcp(git.git_log)'"
    (rule,) = allowed_rules("mcp(git.*)")
    assert rule_said(rule, workspace="/w") == "mcp(git.*)"
