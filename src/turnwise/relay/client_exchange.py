"""One client request, from the first upstream request to the end of the client's answer.

Feed and ask: the driver sends what `Send` says, feeds `reader()` with the bytes of the reply, and tells with `ended` what became
of it. Bytes for the client come back from both. Nothing here waits, looks at a clock or draws a number: those come in as data.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec.structs import replace

from turnwise.assembly.evidence import Witness
from turnwise.assembly.response_reading import ResponseReader, StreamReader
from turnwise.relay.breaches import Deviations
from turnwise.relay.client_request import RequestRefused
from turnwise.relay.client_stream import (
    BROKE_OFF,
    LOST_PIECE,
    ClientStream,
    stamp_in,
    summed,
    untrue_end,
    without_hidden_cuts,
)
from turnwise.relay.client_tools import CallFilter
from turnwise.relay.dialects import Rewrite, rewritten
from turnwise.relay.edits import continued_call, honest, is_unfinished, too_short, within_cap
from turnwise.relay.event_reader import EventReader
from turnwise.relay.stops import StopCutter, VisibleText, cut_at_stop
from turnwise.rules.history import PRINT_BYTES
from turnwise.rules.prompt_room import UNKNOWN_LIMITS, ModelLimits
from turnwise.rules.recovery import (
    NEARLY_PERCENT,
    Continuing,
    Cut,
    Means,
    Settled,
    as_ended,
    as_far_as_it_came,
    begin,
    continue_request,
    fills_half,
    find_cut,
    give_up,
    has_end_mark,
    limit_hit,
    mark_cut,
    spent_tokens,
    take_reply,
)
from turnwise.rules.retries import MOST_LESSONS, RetryPolicy, WaitThenRetry, is_worth_a_retry, judge_retry
from turnwise.vocab import (
    TWO_READINGS,
    Fault,
    FinishReason,
    Repair,
    Request,
    Response,
    ServerLesson,
    Usage,
    calls_of,
    refusal_of,
)
from turnwise.wire.anthropic_messages.thinking import dropping, is_set_by_caller, without_thinking
from turnwise.wire.family import UNSTAMPED, AnswerStamp, Family, HttpCall
from turnwise.wire.generations import softens
from turnwise.wire.profiles import DEFAULT_LIMITS, Limits, Profile
from turnwise.wire.relay_facts import ClientTool

if TYPE_CHECKING:
    from turnwise.assembly.text_calls.frames import CallFinder

# A client's request to a model that binds thinking to what stood before it (promise step:bound-thinking).
#
# A client that edits what it sends keeps its thinking, and its model refuses that. The request is sent once more, with the
# setting that has the provider leave stale thinking out; where the provider does not know the setting, without all thinking from
# the first stale block on. Blocks that were left out once are left out of every later request of the conversation before it
# leaves: it costs no further refusal, and what the model thought without them stays. A setting of the client's own stands. See
# rules/history.py for the same in a session.


StaleMeans = Literal["", "asks", "cuts"]
"""How stale thinking is left out: not at all yet, by asking the provider, or by leaving it out of the request."""

MOST_COUNTED = 1_000  # blocks that repairs are told of, one each: a longer list says no more
_LEFT_OUT = Repair("thinking_left_out", "request", "stale thinking was left out: the provider would refuse it")


class BoundConversation(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a conversation. `key` names it for who remembers it; `left_out` are prints of thinking that its requests
    go without, made with `secret`."""

    key: str = ""
    secret: bytes = b""
    means: StaleMeans = ""
    left_out: frozenset[bytes] = frozenset()


UNBOUND = BoundConversation()


class BoundThinking:
    """One request. `call` is what goes out, `conversation` what is known now, `repairs` what was done last."""

    def __init__(self, call: HttpCall, *, model: str, family: Family, known: BoundConversation = UNBOUND) -> None:
        self.conversation = known
        self.repairs: tuple[Repair, ...] = ()
        self._model = model
        self._with_binding = family.with_binding
        self._asks = False  # the current request does, by our own setting
        self._plain = self.call = call
        self._valid: int | None = None  # so much of its thinking stands before what was refused
        if known.left_out and not is_set_by_caller(call.body, asked=False):
            self._leave_out(lambda _, seal: self._print_of(seal) in known.left_out)
        if known.means == "asks":
            self._ask()

    def mends(self, fault: Fault) -> bool:
        """Whether the request was refused for stale thinking, and `call` is now another one that may pass."""
        if self._with_binding is None:
            return False
        told = self._with_binding(fault, model=self._model, body=self.call.body, asked=self._asks)
        if not told.binding:
            return False
        self.repairs = ()
        if told.binding == "stale":
            self._valid = told.valid_thinking
            if self.conversation.means == "" and self._ask():
                self._learn("asks")
                self._tell("the provider leaves stale thinking out")
                return True
        if not self._cut(told):
            return False
        self._tell("stale thinking was left out")
        return True

    def _tell(self, how: str) -> None:
        what = f"refused thinking behind something that has changed: sent again, {how}"
        self.repairs = (Repair("stale_thinking", "request", what), *self.repairs)

    def _learn(self, means: StaleMeans) -> None:
        self.conversation = replace(self.conversation, means=means)

    def _ask(self) -> bool:
        asking = dropping(self._plain, model=self._model)
        if asking is None:
            return False
        self.call, self._asks = asking, True
        return True

    def _cut(self, fault: Fault) -> bool:
        if self._asks:  # asking did not help
            self._learn("cuts")
            self._asks, self.call = False, self._plain
        valid, self._valid = self._valid, None
        if valid is None:  # nothing was said of the thinking itself
            return fault.binding == "not_taken"
        return self._leave_out(lambda before, _: before >= valid)

    def _leave_out(self, leaves_out: Callable[[int, str], bool]) -> bool:
        found = without_thinking(self._plain, leaves_out=leaves_out)
        if found is None:
            return False
        self.call, seals = found
        self._plain = self.call
        self.repairs = (_LEFT_OUT,) * min(len(seals), MOST_COUNTED)
        prints = self.conversation.left_out.union(map(self._print_of, filter(None, seals)))
        self.conversation = replace(self.conversation, left_out=prints)
        return True

    def _print_of(self, seal: str) -> bytes:
        sealed = seal.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(sealed, key=self.conversation.secret, digest_size=PRINT_BYTES).digest()


# A file of a hundred pages under a cap of 8,000 tokens.
MOST_CONTINUATIONS = 8
# Fewer than the Responses API takes as a limit.
LEAST_CONTINUED_TOKENS = 16

CUT_CALL_LEFT_OUT = Repair(
    "cut_call_left_out", "response", "a limit cut a call, and in this API nothing in it would show that"
)

FORCED_CALL_MISSING = Repair(
    "forced_call_missing", "response", "the model cannot be forced to call a tool; it was asked in words, and did not"
)

Continues = Literal["off", "calls", "all"]
"""Which cut responses are continued upstream. `calls`: those in which a call was cut, and texts, unless the limit that the client
asked for itself has cut them; `all`: these, too."""


class RelayRules(msgspec.Struct, frozen=True, kw_only=True):
    """What a route allows. `retries` counts the first attempt; `limits` are the model's, as far as they are known. `heals`: false
    passes a stream of the client's own family on as it comes, whatever stands in it. `most_calls`: of those in one response, for
    clients that cannot take parallel ones. `most_output_tokens`: of one answer, its continuations included. `has_choices`:
    several answers come at once, which pass as they come. `hands_over`: another upstream is asked at once where this one fails
    before the first word, and not this one again."""

    heals: bool = True
    has_choices: bool = False
    hands_over: bool = False
    continues: Continues = "calls"
    most_calls: int | None = None
    most_output_tokens: int | None = None
    retries: RetryPolicy = RetryPolicy()
    limits: ModelLimits = UNKNOWN_LIMITS
    bounds: Limits = DEFAULT_LIMITS


class SoughtInText(msgspec.Struct, frozen=True, kw_only=True):
    """Calls that the model wrote into its text count. `unmarked`: also an answer that is only a fence or an object."""

    unmarked: bool


class UpstreamSide(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of the upstream: the request in our words, and as it is sent. `in_text`: calls are looked for in texts.
    `rewrite` gives both by what refusals have taught; `tools`: what the client calls those whose names are others there. `stops`:
    sequences at which the answer ends here, as the upstream does not know them."""

    request: Request
    tools: Mapping[str, ClientTool] = {}
    stops: tuple[str, ...] = ()
    in_text: SoughtInText | None = None
    call: HttpCall
    family: Family
    profile: Profile
    rewrite: Rewrite | None = None


class ClientSide(msgspec.Struct, frozen=True, kw_only=True):
    """Who reads the answer. `request` is theirs as it was read, `counts`: they are told the usage in a stream."""

    request: Request
    family: Family
    counts: bool = True


RelayPurpose = Literal["main", "retry", "continue"]


class Send(msgspec.Struct, frozen=True, kw_only=True):
    """Send this, after a wait of so many seconds. `in_text`: calls are looked for in the texts of its reply."""

    request: Request
    call: HttpCall
    purpose: RelayPurpose
    in_text: SoughtInText | None = None
    wait_s: float = 0.0

    @property
    def tool_names(self) -> frozenset[str]:
        return frozenset([tool.name for tool in self.request.tools])

    @property
    def taken_ids(self) -> frozenset[str]:
        """Ids that calls of its reply may not have."""
        return frozenset([call.id for message in self.request.messages for call in calls_of(message)])


class RelayEnd(msgspec.Struct, frozen=True, kw_only=True):
    """It is over. `fault` is what the client was told in place of a whole answer."""

    response: Response | None = None
    fault: Fault | None = None
    repairs: tuple[Repair, ...] = ()


class RelayStep(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes for the client, then what comes next."""

    out: bytes
    next: Send | RelayEnd


class Relay:
    """See the module. `told` is what is known of the request before it leaves. `spread` is a number of [0, 1): streams that have
    different ones do the work that can wait at different times. `stamp`: what an answer says of itself that is written here."""

    def __init__(
        self,
        *,
        upstream: UpstreamSide,
        client: ClientSide,
        rules: RelayRules,
        told: Sequence[Repair] = (),
        spread: float = 0.0,
        conversation: BoundConversation = UNBOUND,
        stamp: AnswerStamp = UNSTAMPED,
    ) -> None:
        self._spread = spread
        self._stamp = stamp
        self._upstream = upstream
        self._client = client
        self._rules = rules
        self._attempt = 1
        model = upstream.request.model
        self.bound = BoundThinking(upstream.call, model=model, family=upstream.family, known=conversation)
        self._found: Continuing | None = None  # what is being continued
        self._sent = self.first()  # last
        self._continuations = 0
        self._lessons = 0  # learned from refusals of this request
        self._repairs: list[Repair] = [*told, *self.bound.repairs]
        self._body: bytes | None = None
        self._stream = self._new_stream()
        self._filter = self._new_filter()
        self._cutter: StopCutter | None = (
            None  # of the current reply, if the client reads it and it may have a stop sequence
        )
        self.witness: Witness | None = None  # of the current reply, if the client reads it
        self._broke: Fault | None = None  # what ended a response that the client knows the beginning of
        self._spent: Usage | None = None  # on that response
        self._output_tokens = 0  # of the answer so far
        self._left_s: float | None = None  # for further attempts to begin

    @property
    def is_same_family(self) -> bool:
        return self._upstream.family.name == self._client.family.name

    @property
    def has_content(self) -> bool:
        """Whether the client has been told a word or a call."""
        return self._stream.has_content

    def first(self) -> Send:
        upstream = self._upstream
        in_text = upstream.in_text if upstream.request.tools or upstream.stops else None
        return Send(request=upstream.request, call=self.bound.call, purpose="main", in_text=in_text)

    def reader(self) -> StreamReader:
        """What reads the reply to the current request, if that is a stream. The reply to a continuation is no client's, and a
        client that asked for no stream gets the whole."""
        is_clients = self._found is None and self._broke is None and self._client.request.stream
        calls = _call_finder(self._sent)
        cutter = StopCutter(self._upstream.stops) if is_clients and self._upstream.stops else None
        plain = ResponseReader(
            self._upstream.family,
            profile=self._upstream.profile,
            limits=msgspec.structs.replace(self._rules.bounds, tells_long_calls=False),
            tool_names=self._sent.tool_names,
            taken_ids=self._sent.taken_ids,
            in_text=calls if cutter is None else VisibleText(cutter, calls=calls),
        )
        if not is_clients:
            return plain
        self._filter = self._new_filter()
        self._cutter = cutter
        reader = EventReader(
            plain,
            client=self._stream,
            bounds=self._rules.bounds,
            deviations=Deviations(
                self._upstream.family.name, forces_call=self._sent.request.tool_choice not in ("auto", "none")
            ),
            filter=None if self._filter.does_nothing else self._filter,
            cutter=self._cutter,
            has_choices=self._rules.has_choices,
            spread=self._spread,
            compares_events=self._upstream.family.compares_events,
        )
        self.witness = reader.witness
        return reader

    def _new_filter(self) -> CallFilter:
        """Between equal families the body went up as the client wrote it, free-form tools included."""
        tools = () if self.is_same_family else self._client.request.tools
        return CallFilter(
            most=self._rules.most_calls,
            text_tools=frozenset([tool.name for tool in tools if tool.free_form]),
            tools=self._upstream.tools,
        )

    def saw_body(self, body: bytes) -> None:
        """The reply was no stream: its bytes, which go on as they came if nothing has to be mended."""
        self._body = body if self._found is None else None
        if self._found is None and self.is_same_family:
            self._stamp = stamp_in(body, self._stamp)
        self._cutter = None
        self.witness = Witness()
        self.witness.saw_body(body)

    def ended(
        self,
        reply: Response | None,
        fault: Fault | None,
        *,
        waited_s: float,
        jitter: float,
        left_s: float | None = None,
        now_s: float | None = None,
    ) -> RelayStep:
        """The current request is over. `reply` is what arrived of it; `fault` the failure of it, if it failed. `waited_s` are the
        seconds since the first failure, `left_s` those in which a further attempt may begin, `jitter` a number of [0, 1), `now_s`
        the time of Unix."""
        self.witness = None
        if now_s is not None:
            self._stamp = replace(self._stamp, ended_s=int(now_s))
        self._left_s = left_s
        if reply is not None and self._cutter is None and self._found is None:
            reply = self._at_stop(reply)
        self._cutter = None
        if self._found is not None:
            return self._took_rest(self._found, reply, fault)
        if self._broke is not None:
            return self._took_anew(self._broke, reply, fault)
        if fault is None and reply is not None:
            fault = reply.fault or (LOST_PIECE if reply.lost else None)
        if fault is None and reply is not None and self._broke_off(reply):
            fault = BROKE_OFF
        if fault is not None and not self.has_content:
            return self._again(fault, waited_s=waited_s, jitter=jitter)
        if reply is None:
            assert fault is not None
            return self._fail(fault)
        self._repairs += reply.repairs
        self._output_tokens = self._spent_on(reply)
        if fault is not None:
            if reply.lost:
                return self._ask_anew(fault, reply=reply)
            reply = msgspec.structs.replace(reply, fault=None, finish=FinishReason.CUT, is_closed=False)
        return self._judge(reply, fault=fault)

    def _at_stop(self, whole: Response) -> Response:
        """A response that did not come through a cutter, up to its first stop sequence."""
        cut = cut_at_stop(whole, self._upstream.stops)
        if cut is not whole:
            self._body = None
            self._stream.forget_held()
        return cut

    def _broke_off(self, reply: Response) -> bool:
        """Whether it ended before it said a word, or without saying why, and no limit is the likelier reason."""
        if reply.finish is not FinishReason.CUT:
            return False
        if not reply.message.parts and not reply.is_closed:
            return True
        if has_end_mark(reply):
            return False
        cut = self._cut_of(reply)
        limit_tokens = self._sent.request.settings.max_output_tokens
        return cut is None or not (cut.limited or fills_half(cut, limit_tokens=limit_tokens))

    def error(self, fault: Fault) -> bytes:
        """The end of a stream that has begun, though nothing of the answer was in it yet."""
        return self._stream.fail(fault)

    # -- what came of the main request -------------------------------------------------------------------------------

    def _again(self, fault: Fault, *, waited_s: float, jitter: float) -> RelayStep:
        if self.bound.mends(fault):
            return self._anew(*self.bound.repairs, wait_s=0.0)
        if (taught := self._taught(fault)) is not None:
            return self._anew(taught, wait_s=0.0)
        verdict = judge_retry(
            fault,
            policy=self._rules.retries,
            attempt=self._attempt,
            waited_s=waited_s,
            jitter=jitter,
            left_s=self._left_s,
        )
        if self._rules.hands_over or not isinstance(verdict, WaitThenRetry):
            return self._fail(fault)
        self._attempt += 1
        return self._anew(Repair("asked_again", "request", f"{verdict.why}: {fault.kind}"), wait_s=verdict.seconds)

    def _taught(self, fault: Fault) -> Repair | None:
        """What was learned from a refusal by known words; the request is now another one that may pass."""
        upstream = self._upstream
        if upstream.rewrite is None or self._lessons >= MOST_LESSONS:
            return None
        try:
            found = rewritten(fault, request=upstream.request, rewrite=upstream.rewrite)
        except RequestRefused:  # what is known now cannot be written: the upstream's own words say why
            return None
        if found is None:
            return None
        sent, told = found
        self._lessons += 1
        self._repairs += [one for one in sent.told if one not in self._repairs]
        self._upstream = msgspec.structs.replace(upstream, request=sent.request, call=sent.call, stops=sent.stops)
        model, known = sent.request.model, self.bound.conversation
        self.bound = BoundThinking(sent.call, model=model, family=upstream.family, known=known)
        return told

    @property
    def lessons(self) -> tuple[ServerLesson, ...]:
        """What is known of the upstream's refusals by now."""
        return self._upstream.request.lessons

    def _anew(self, *told: Repair, wait_s: float) -> RelayStep:
        self._repairs += told
        self._stream, self._body = self._new_stream(), None
        self._sent = msgspec.structs.replace(self.first(), purpose="retry", wait_s=wait_s)
        return RelayStep(out=b"", next=self._sent)

    def _judge(self, reply: Response, *, fault: Fault | None) -> RelayStep:
        if any(call.reason == TWO_READINGS for call in calls_of(reply.message)):
            return self._ask_anew(fault or LOST_PIECE, reply=reply)  # what goes on from there closes it around itself
        cut = self._cut_of(reply)
        if cut is None:
            if fault is not None:
                return self._ask_anew(fault, reply=reply)
            return self._settle(as_ended(reply), is_altered=False)
        if not self._is_to_continue(cut, reply):
            settled = Settled(response=mark_cut(reply, cut=cut) if cut.calls and self._rules.heals else reply)
        else:
            found = begin(reply, cut=cut, request=self._upstream.request, means=self._means())
            if isinstance(found, Continuing):
                self._broke = fault
                return self._continue(found)
            settled = found
            if fault is None and (short := too_short(cut)) is not None:
                self._repairs += settled.repairs
                return self._fail(short) if self._is_own_limit(cut, reply) else self._ask_anew(short, reply=reply)
        self._repairs += settled.repairs
        if fault is not None:
            return self._ask_anew(fault, reply=reply)
        return self._settle(honest(settled.response), is_altered=False)

    def _cut_of(self, reply: Response) -> Cut | None:
        request = self._upstream.request
        objects = self._upstream.family.traits.gives_objects(streamed=request.stream)
        limit_tokens = request.settings.max_output_tokens
        return find_cut(reply, limit_tokens=limit_tokens, hands_out_objects=objects, request=request)

    def _is_to_continue(self, cut: Cut, reply: Response) -> bool:
        if self._left_tokens() == 0:
            return False
        match self._rules.continues:
            case "off":
                return False
            case "all":
                return True
            case "calls":
                return bool(cut.calls) or not self._is_own_limit(cut, reply)

    def _is_own_limit(self, cut: Cut, reply: Response) -> bool:
        """Whether it was the client's own limit that cut the reply."""
        asked = self._client.request.settings.max_output_tokens
        return cut.limited and asked is not None and limit_hit(reply, limit_tokens=asked) == asked

    def _spent_on(self, reply: Response) -> int:
        return spent_tokens(reply, limit_tokens=self._sent.request.settings.max_output_tokens)

    def _left_tokens(self) -> int | None:
        """How much output the route still allows for this answer, 0 if that is too little to ask for; None without a cap."""
        most = self._rules.most_output_tokens
        if most is None:
            return None
        left = most - self._output_tokens
        return 0 if left < LEAST_CONTINUED_TOKENS or left * 100 <= most * (100 - NEARLY_PERCENT) else left

    def _means(self) -> Means:
        request, profile = self._upstream.request, self._upstream.profile
        return Means(
            recover="continue",
            callable=[tool.name for tool in request.tools],
            limits=self._rules.limits,
            ceiling_tokens=request.settings.max_output_tokens,
            prefill=profile.accepts_prefill,
            tool_choice_none=profile.tool_choice_none,
            traits=self._upstream.family.traits,
        )

    # -- once more, behind what the client knows -------------------------------------------------------------------

    def _ask_anew(self, fault: Fault, *, reply: Response) -> RelayStep:
        """Where nothing can be continued: the next response may begin with what the client has been told."""
        if (
            self._rules.continues == "off"
            or self._attempt >= self._rules.retries.attempts
            or (self._left_s is not None and self._left_s <= 0)
            or not is_worth_a_retry(fault)
        ):
            return self._fail(fault)
        self._attempt += 1
        self._broke, self._spent = fault, reply.usage
        self._repairs.append(Repair("asked_again", "request", f"{fault.kind}, in the middle of the answer"))
        self._stream.forget_held()
        self._sent = msgspec.structs.replace(self.first(), purpose="retry")
        return RelayStep(out=b"", next=self._sent)

    def _took_anew(self, broke: Fault, reply: Response | None, fault: Fault | None) -> RelayStep:
        if reply is None or fault is not None or reply.fault is not None or reply.lost:
            return self._fail(broke)
        whole = None if self._cut_of(reply) is not None else self._stream.as_known(as_ended(reply))
        if whole is None:
            return self._fail(broke)
        self._repairs += reply.repairs
        usage = summed(whole.usage, self._spent)
        return self._settle(msgspec.structs.replace(whole, usage=usage), is_altered=True)

    # -- continuing --------------------------------------------------------------------------------------------------

    def _continue(self, found: Continuing | Settled) -> RelayStep:
        while isinstance(found, Continuing):
            left = self._left_tokens()
            if left == 0:
                found = give_up(found, why="the route allows no more output")
                continue
            if self._continuations < MOST_CONTINUATIONS:
                self._continuations += 1
                self._found = found
                request = within_cap(continue_request(found, means=self._means()), left_tokens=left)
                upstream = self._upstream
                call = continued_call(self.bound.call, before=upstream.request, after=request, profile=upstream.profile)
                self._sent = Send(request=request, call=call, purpose="continue")
                return RelayStep(out=b"", next=self._sent)
            found = give_up(found, why=f"{self._continuations} continuations are the most")
        self._found = None
        self._repairs += found.repairs
        if self._broke is not None and is_unfinished(found.response):
            return self._ask_anew(self._broke, reply=found.response)
        return self._settle(honest(found.response), is_altered=True)

    def _took_rest(self, found: Continuing, reply: Response | None, fault: Fault | None) -> RelayStep:
        if reply is None or fault is not None:
            why = "it was lost" if fault is None else f"the request failed: {fault.kind}"
            return self._continue(give_up(found, why=why))
        self._repairs += reply.repairs
        self._output_tokens += self._spent_on(reply)
        usage = summed(found.response.usage, reply.usage)
        found = msgspec.structs.replace(found, response=msgspec.structs.replace(found.response, usage=usage))
        limit = self._sent.request.settings.max_output_tokens
        grown = take_reply(found, reply=reply, limit_tokens=limit)
        if self._upstream.stops:
            whole = grown.response if isinstance(grown, Settled) else as_far_as_it_came(grown)
            if (ended := self._at_stop(whole)) is not whole:
                grown = Settled(response=ended, repairs=grown.repairs)
        return self._continue(grown)

    # -- the end -----------------------------------------------------------------------------------------------------

    def _settle(self, response: Response, *, is_altered: bool) -> RelayStep:
        if (fault := untrue_end(response)) is not None:
            return self._fail(fault)
        if not self.is_same_family:
            response = as_for_another(response)
        shaped, told = self._filter.shape(response)
        if shaped != response:
            response, self._body = shaped, None
        self._repairs += told
        if self._client.request.stream:
            empty_too = self._stream.hides_empty
        else:
            empty_too = self._client.family.traits.gives_objects(streamed=False)
        whole = without_hidden_cuts(response, empty_too=empty_too)
        if whole is not response:
            self._repairs.append(CUT_CALL_LEFT_OUT)
        asked = self._upstream.request
        if softens(asked.model, asked.tool_choice) and asked.tools and not calls_of(response.message):
            self._repairs.append(FORCED_CALL_MISSING)
        repairs = tuple(self._repairs)
        if self._client.request.stream:
            out = self._stream.settle(response, is_altered=is_altered, ended_s=self._stamp.ended_s)
            return RelayStep(out=out, next=RelayEnd(response=response, fault=self._stream.fault, repairs=repairs))
        is_well = not self._rules.heals or not response.repairs
        is_as_it_came = self.is_same_family and not is_altered and is_well and whole is response
        if is_as_it_came and self._body is not None and response.provider_finish is not None:
            out = self._body
        else:
            out = self._client.family.encode_body(whole, self._client.request, self._stamp)
        return RelayStep(out=out, next=RelayEnd(response=response, repairs=repairs))

    def _fail(self, fault: Fault) -> RelayStep:
        """A stream that has begun ends with the error; before that the driver answers with its status."""
        out = self._stream.fail(fault) if self.has_content else b""
        return RelayStep(out=out, next=RelayEnd(fault=fault, repairs=tuple(self._repairs)))

    def _new_stream(self) -> ClientStream:
        client = self._client
        return ClientStream(
            client.family,
            request=client.request,
            passes=self.is_same_family,
            counts=client.counts,
            heals=self._rules.heals or not self.is_same_family,
            rewrites=bool(self._upstream.stops),
            stamp=self._stamp,
        )


def _call_finder(send: Send) -> "CallFinder | None":
    if (sought := send.in_text) is None:
        return None
    from turnwise.assembly.text_calls.frames import CallFinder  # ten modules, for some endpoints only

    request = send.request
    return CallFinder(
        tools=request.tools, earlier=request.messages, unmarked=sought.unmarked, leading=False, id_prefix="call"
    )


def as_for_another(response: Response) -> Response:
    """The response for a client of another family: the provider's own word for its end may be there, too, and mean something
    else. A refusal that is only told by that word is a filter's, or it would look like an ordinary answer."""
    finish = response.finish
    if finish is FinishReason.REFUSAL and not refusal_of(response.message):
        finish = FinishReason.CONTENT_FILTER
    return msgspec.structs.replace(response, finish=finish, provider_finish=None)
