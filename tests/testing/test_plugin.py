"""The pytest plugin that forbids real requests, in a pytest of its own (turnwise.testing.plugin)."""

import subprocess
import sys

import pytest

from turnwise import Agent, Model
from turnwise.endpoints.transport import check_may_leave, guarding
from turnwise.errors import RequestForbidden
from turnwise.lab import Lab
from turnwise.testing import ScriptedModel, forbid_requests

pytest_plugins = ["pytester"]

TESTS = '''
import contextlib, socket
import pytest
from turnwise import Agent, Model, RetryPolicy, tool
from turnwise.testing import Recording, ScriptedModel, call

ELSEWHERE = ("192.0.2.1", 9)  # RFC 5737: an address for documents, where nobody is

def asking(*, transport=None, **options):
    url = "http://api.example.com/v1?key=secret"
    return Agent(Model("openai_chat:m", base_url=url, api_key="k" * 20, transport=transport), **options)

def test_agent():
    asking().run_sync("Hi.")

def test_recorded(tmp_path):
    with Recording(tmp_path / "a", "once") as recording:
        asking(transport=recording).run_sync("Hi.")

def test_local_model():
    Agent(Model("openai_chat:m", base_url="http://127.0.0.1:1/v1")).run_sync("Hi.")

def test_name():
    socket.create_connection(("api.example.com", 443), timeout=1)

def test_by_address():
    socket.gethostbyaddr("192.0.2.2")

def test_by_old_name():
    socket.gethostbyname_ex("old.example.com")

def test_name_info():
    socket.getnameinfo(("192.0.2.3", 9), 0)

def test_own_names_pass():
    socket.gethostbyaddr("127.0.0.1")
    socket.gethostbyname("localhost")
    socket.getnameinfo(("127.0.0.1", 9), 0)

def test_address():
    socket.create_connection(ELSEWHERE, timeout=0.001)

def test_datagram():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"x", ELSEWHERE)

def test_caught():
    with contextlib.suppress(Exception):
        socket.create_connection(ELSEWHERE, timeout=0.001)

def test_in_a_tool():
    @tool
    def fetch() -> str:
        """Get it."""
        socket.create_connection(ELSEWHERE, timeout=0.001)
        return "got it"

    model = ScriptedModel([call("fetch"), "Done."])
    result = asking(tools=[fetch], transport=model).run_sync("Hi.")
    assert "got it" in str(result.new_messages)

@pytest.fixture
def connected():
    socket.create_connection(ELSEWHERE, timeout=0.001)

def test_fixture(connected):
    pass

def test_loopback_passes():
    with socket.create_server(("127.0.0.1", 0)) as server:
        for host in ("127.0.0.1", "localhost"):
            socket.create_connection((host, server.getsockname()[1])).close()
    one, other = socket.socketpair()
    one.close(), other.close()

def test_scripted_passes():
    model = ScriptedModel(["Done."])
    assert asking(transport=model).run_sync("Hi.").text == "Done."

@pytest.mark.real_requests
def test_exempt_passes():
    url = "http://127.0.0.1:1/v1"
    result = Agent(Model("openai_chat:m", base_url=url), recovery={"retry": RetryPolicy(attempts=1)}).run_sync("Hi.")
    assert result.fault.kind == "unreachable"
'''


@pytest.mark.costly
def test_each_real_request_fails_its_test_and_is_named(pytester: pytest.Pytester) -> None:
    """A request of turnwise (also to a local model server, and while recording), a name, an address, a datagram, whoever asks,
    also where the program caught the error; loopback, scripts and exempt tests pass."""
    pytester.makepyfile(test_it=TESTS)
    ran = pytester.runpytest_subprocess(
        "-p", "turnwise.testing.plugin", "-p", "no:cacheprovider", "-q", "-rA", timeout=300
    )
    told = ran.outlines
    asked = {
        "agent": "http://api.example.com/v1/chat/completions",
        "recorded": "http://api.example.com/v1/chat/completions",
        "local_model": "http://127.0.0.1:1/v1/chat/completions",
        "name": "api.example.com",
        "by_address": "192.0.2.2",
        "by_old_name": "old.example.com",
        "name_info": "192.0.2.3",
        "address": "192.0.2.1:9",
        "datagram": "192.0.2.1:9",
        "caught": "192.0.2.1:9",
        "in_a_tool": "192.0.2.1:9",
        "fixture": "192.0.2.1:9",
    }
    everything = "\n".join(told)
    for name, address in asked.items():
        assert f"`test_it.py::test_{name}` asked for `{address}`" in everything, name
    assert "secret" not in "".join([line for line in told if "asked for" in line])
    ran.assert_outcomes(passed=4, failed=11, errors=1)


@pytest.mark.costly
def test_an_exemption_for_some_addresses_is_refused(pytester: pytest.Pytester) -> None:
    """The mark takes no arguments: one that looks narrower than it is would mislead."""
    pytester.makepyfile('import pytest\n@pytest.mark.real_requests("api.example.com")\ndef test_it(): pass')
    ran = pytester.runpytest_subprocess("-p", "turnwise.testing.plugin", "-p", "no:cacheprovider", timeout=300)
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    assert "takes no arguments" in "\n".join([*ran.outlines, *ran.errlines])


@pytest.mark.costly
def test_it_never_loads_by_itself(pytester: pytest.Pytester) -> None:
    """Neither pytest nor turnwise nor its fakes switch it on."""
    pytester.makepyfile(
        "import sys, turnwise.testing\ndef test_it(): assert 'turnwise.testing.plugin' not in sys.modules"
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider", timeout=300).assert_outcomes(passed=1)
    program = "import sys, turnwise, turnwise.testing.recording; print('pytest' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "False"


def test_a_guard_is_asked_while_its_context_is_open() -> None:
    """And nobody forbids anything by default."""

    def forbid(url: str) -> None:
        raise RequestForbidden(url)

    check_may_leave("http://x/")
    with guarding(forbid), pytest.raises(RequestForbidden):
        check_may_leave("http://x/")
    check_may_leave("http://x/")


async def test_a_switch_forbids_requests_to_other_machines() -> None:
    """Proves: without pytest's plugin, too: a run to elsewhere raises and says how to play the model, loopback is asked, and an
    override is no request."""
    agent = Agent(Model("openai_chat:m", base_url="http://api.example.com/v1?key=hidden"))
    with forbid_requests():
        with pytest.raises(RequestForbidden, match=r"api\.example\.com/v1/chat.*ScriptedModel") as caught:
            await agent.run("Hi.")
        assert "hidden" not in str(caught.value)
        with agent.override(model=ScriptedModel(["Hello."])):
            assert (await agent.run("Hi.")).text == "Hello."
        async with Lab() as lab:
            here = Agent(Model("openai_chat:plain-answer", base_url=f"{lab.url}/v1"))
            assert (await here.run("Hi.")).complete
