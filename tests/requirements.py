"""Every promise of turnwise, by id: the acceptance list as data.

Tests name the ids that they prove with `@pytest.mark.promise("assembly:interleaved")`; `test_promises.py` checks both
directions. A promise that does not hold yet carries the subject of the issue that brings it.
"""

from typing import NamedTuple

BILL = "The bill: every request counted, priced, limited, and fewer of them"
GATEWAY = "The gateway that heals the streams of other people's agents (no issue yet)"


class Promise(NamedTuple):
    text: str
    source: str
    not_yet: str | None = None
    """The subject of the issue that brings it; None where it holds today."""


PROMISES: dict[str, Promise] = {
    # assembly
    "assembly:id-every-chunk": Promise("An id repeated in every chunk is one call with one completion.", "Koog"),
    "assembly:id-first-only": Promise("Id in the first chunk only, index in all: one call.", "Koog"),
    "assembly:no-index": Promise(
        "Index missing or null, one call: one call. Two calls told apart by id alone: two calls.", "field"
    ),
    "assembly:shared-index": Promise(
        "All parallel calls on index 0 with distinct ids: later id-less pieces go to the newest call on that index; pieces with an id go to that id, also interleaved.",
        "field (Ollama)",
    ),
    "assembly:id-churn": Promise(
        "A new id in every chunk on one index, no new name, buffer not yet complete JSON: one call, first id kept, the repair recorded.",
        "field",
    ),
    "assembly:interleaved": Promise("Interleaved deltas of parallel calls never mix.", "field"),
    "assembly:name-repeated": Promise(
        "A name repeated in every chunk is that name once; a name split over chunks is joined; the registered tool names decide where both readings are possible.",
        "field",
    ),
    "assembly:empty-later": Promise("Empty-string or null id and name in later chunks mean nothing.", "Koog, field"),
    "assembly:id-missing": Promise(
        "A call without an id gets a generated one, unique in its session, the same on replay.", "field"
    ),
    "assembly:id-twice": Promise(
        "Two different calls with one id in one response, or an id reused in a later step: every call runs, ids are made unique, results pair rightly.",
        "field",
    ),
    "assembly:object-args": Promise(
        'Arguments sent as a JSON object instead of a string are accepted; null or "" means {} unless the response ended by its limit (then the call is cut).',
        "field",
    ),
    "assembly:cumulative": Promise(
        "Chunks that repeat all arguments so far, or the whole once more at the end, do not double them.", "field"
    ),
    "assembly:empty-then-real": Promise(
        "`{}` followed by the real object: the real one. Two whole objects under one name: two calls only if both fit the tool's schema, else an error result to the model.",
        "field",
    ),
    "assembly:whole-in-one": Promise("A whole call, or a whole call with the finish reason, in one chunk.", "field"),
    "assembly:late-args": Promise("Argument pieces after the finish reason still count.", "field"),
    "assembly:no-done": Promise(
        "No `[DONE]`, duplicated finish or usage chunks: one response, usage counted once.", "field"
    ),
    "assembly:split-anywhere": Promise(
        "Any split of the bytes (inside UTF-8, CRLF, SSE lines; one byte at a time) gives the same result; comments, BOM, keep-alives and unknown fields or events change nothing.",
        "field",
    ),
    "assembly:stream-equals-body": Promise(
        "A streamed response and its non-streamed body give equal messages (checked against the provider's own terminal event or its SDK's accumulator, not against ourselves).",
        "deep-chat",
    ),
    "assembly:kinds": Promise(
        "Refusals, free-form (custom) calls, server-side tool items, citations and reasoning with opaque data survive and go back as they came.",
        "field",
    ),
    "assembly:order": Promise("Calls come out in the order in which they began.", "field"),
    "assembly:bounded": Promise(
        "One line, one call and one response have byte limits; past them a named error, never unbounded memory; cost grows linearly with the bytes.",
        "field",
    ),
    "assembly:lost-piece": Promise(
        "Where an event of a response could not be read and may have been part of a call, no call that it may belong to counts as complete, unless the provider says the whole again; an answer that lost something is never complete.",
        "field",
    ),
    "assembly:same-call-once": Promise(
        "One call that a response says twice (same id, name and arguments) runs once, unless that response gives the id to a different call too; items are told apart by the ids that were announced first.",
        "field (gateways)",
    ),
    # step
    "step:one-request": Promise(
        "A step makes one request (plus recorded retries); nothing makes a hidden one: titles, summaries, compaction and children are in the ledger under their own purpose.",
        "Chutes",
    ),
    "step:parallel-together": Promise(
        "All calls of a response run before the next request, concurrently unless a tool says otherwise; one follow-up carries all results in call order.",
        "deep-chat, Chutes",
    ),
    "step:every-call-answered": Promise(
        "Every call has exactly one result: also a denied, failed, cancelled, cut, unknown or timed-out one.",
        "opencode",
    ),
    "step:incomplete-response": Promise(
        "A response that ends `incomplete`, `failed` or by disconnect loses no complete call silently.", "deep-chat"
    ),
    "step:sequential": Promise(
        "read -> edit -> answer works at one request a step: the model sees each result before its next decision.",
        "Chutes",
    ),
    "step:client-tools": Promise(
        "A tool without an implementation ends the run as `waiting` with the pending calls; results handed in later resume it in one request.",
        "Chutes (option B), deep-chat",
    ),
    "step:history-healed": Promise(
        "Imported history with orphan calls or results, duplicates or wrong order is repaired deterministically; a strict server of each API family accepts every request we send.",
        "field",
    ),
    "step:prefix-stable": Promise(
        "Step n+1's request begins with the very bytes of step n's request up to its last message, cache marks left out, so provider prompt caches hit; exceptions are listed and counted.",
        "gitmost, field",
    ),
    "step:bound-thinking": Promise(
        "A session whose model binds its thinking to the prefix lives on through everything that turnwise or its user changes; what was dropped is told.",
        "field",
    ),
    # cut
    "cut:never-run": Promise(
        "A call whose arguments are not strictly complete JSON is never executed, whatever the finish reason claims; no lenient parser ever feeds execution; a last call handed out as an object by a response that ended by its limit counts as cut.",
        "opencode, field",
    ),
    "cut:named": Promise(
        "Truncated, malformed, unknown tool and schema mismatch are four different outcomes, each told to the model in words it can act on (which argument was cut, after how many characters, which limit).",
        "opencode",
    ),
    "cut:continued": Promise(
        "A cut call whose prefix can be had is continued: the prefix is kept, only the rest is generated, the stitched whole must parse and validate, and it runs once.",
        "beyond the field",
    ),
    "cut:split": Promise(
        "Where continuing fails or is off, the model is told to work in smaller pieces, and a retry after that notice is never blocked as a loop.",
        "opencode",
    ),
    "cut:complete-sibling": Promise(
        "A complete call beside a cut one runs; both have results; one follow-up.", "field"
    ),
    "cut:text-continued": Promise(
        "Text cut by the limit is continued up to a cap and joined into one answer without a repeated or missing character; at the cap the answer is flagged partial.",
        "opencode",
    ),
    "cut:thinking-ate-all": Promise(
        "Reasoning that used up the whole output leads to one retry with more room for the answer, then to a forced answer; never a silent end.",
        "opencode",
    ),
    "cut:budget": Promise(
        "`max_tokens = min(model output limit, context window - prompt)`, split into reasoning and answer with a floor for the answer; compaction reserves the same figure; no fixed 32,000 cap.",
        "opencode",
    ),
    "cut:not-blamed": Promise(
        "A dropped connection is retried as a transport fault and never reported to the model as its own mistake.",
        "field",
    ),
    # end
    "end:cap": Promise(
        "A cap of N steps makes at most N model steps, the forced answer being the Nth; at most one extra request of purpose `answer` after a disobedient or empty one, within the limits; default 20; configurable per agent, workspace, session and run.",
        "gitmost",
    ),
    "end:forced-answer": Promise(
        "The last allowed step forbids tools and asks for a synthesis; persona and prompt stay; tools and system stay byte-identical where that keeps the provider's cache; a disobedient call is not executed.",
        "gitmost",
    ),
    "end:never-empty": Promise(
        "No turn ends with empty text (a refusal is an answer of its own and ends `refused`; a pause is sent back to go on): an empty response is asked once more, then answered locally from the results at hand; the result says so.",
        "gitmost",
    ),
    "end:early": Promise("A turn that ends earlier is untouched: no extra request, no extra instruction.", "gitmost"),
    "end:reason": Promise(
        "Every result carries a stop reason and `complete: true/false`; faces show 'answered from incomplete data'.",
        "gitmost",
    ),
    "end:budget": Promise(
        "Limits on requests, tokens, cost, wall time compose (`|`, `&`); the last affordable request is kept for the answer; children share the parent's budget.",
        "Chutes, field",
    ),
    "end:no-prefill": Promise(
        "The last message of a request is never an assistant message unless the endpoint is known to accept it.",
        "field",
    ),
    # loop
    "loop:repeat": Promise(
        "The same call with the same result over separate steps: told, then answered from memory without running, then a forced answer.",
        "opencode",
    ),
    "loop:cycle": Promise("Cycles of period 2 and 3 are found.", "field"),
    "loop:cut-variants": Promise("Varying cut variants of one call count as the same call.", "opencode"),
    "loop:polling": Promise(
        "A call whose result changes is not a loop until its own cap, alone or in a rotation of several; a result seen once is no evidence.",
        "field",
        "Limits, bills and ends that keep their word",
    ),
    # wait
    "wait:ask": Promise(
        "Every approval or question has a deadline and a default; unattended runs decide at once; the model is told why.",
        "opencode",
    ),
    "wait:child": Promise(
        "A child's ask is shown at the root with its path; a child's stall or deadline returns what it has to the parent.",
        "opencode",
    ),
    "wait:cancel": Promise(
        "Cancel reaches streams, tools, children, asks and retry sleeps; all settle within a second; every call still has its result; no process is left.",
        "opencode",
    ),
    "wait:stream": Promise(
        "Connect, first event, idle between events (keep-alives do not count) and total each have a deadline.",
        "field",
    ),
    "wait:tool": Promise(
        "A tool that ignores its deadline is abandoned with the result 'timed out, may still be running'.",
        "field",
    ),
    "wait:retry": Promise(
        "408, 409, 429, 5xx, 529, an error object inside a 200 stream and a reset in mid-call are retried with backoff honouring Retry-After (seconds, milliseconds, date), capped and counted; what a given-up attempt had shown is marked as discarded, and the result holds the accepted attempt only.",
        "field",
    ),
    # run
    "run:tool-fault": Promise(
        "A tool's exception reaches its author (log, event, result), and the model gets no more of it than the tool chose.",
        "field",
    ),
    "run:own-state": Promise(
        "Nothing of one run (words, asks, interrupts, deps, history, results) is reached through an object that runs share.",
        "field",
    ),
    "run:key": Promise(
        "A turn that the caller names by a key begins once, continues wherever it was left, and gives every asker the same result.",
        "Chutes, field",
    ),
    "run:task-is-not-turn": Promise(
        "A turn with a key outlives its task: a cancelled task, a client that left or a lost heartbeat leaves it to whoever "
        "resumes it; only an explicit cancel ends it.",
        "field",
    ),
    # bill
    "bill:wire": Promise(
        "The ledger equals the server's own count of requests in every scenario, by purpose (step, retry, continue, compact, title, child, answer).",
        "Chutes",
    ),
    "bill:plans": Promise(
        "Per token, per request and per step plans are priced; unknown prices say unknown, never 0.", "Chutes"
    ),
    "bill:saved": Promise(
        "On a per-request plan a scripted step lets one request run a whole sequence of tools; the saving is shown.",
        "Chutes",
    ),
    "bill:cached": Promise(
        "Where a provider caches prompts, a step pays for what is new: caches that have to be asked for are asked for, what they saved is shown, and a miss has a reason.",
        "field",
    ),
    "bill:served": Promise(
        "A request costs what served it: each sampling by its own model and size of prompt, by the tier, speed and place that the answer names; what nobody can price makes the amount 'at least', and old ledgers keep their meaning.",
        "field",
    ),
    # safe
    "safe:judged": Promise(
        "A command runs without asking only if every part of it was understood; what the judge does not know, now or after its grammar changes, asks.",
        "field",
    ),
    "safe:named": Promise(
        "What is secret, what runs later by itself, what is outside: one table each, used by every tool, rule and face.",
        "field",
    ),
    "safe:seen": Promise(
        "What a person approves is what they were able to see, whole, and what runs is exactly that; nothing in it can hide or reach the terminal raw.",
        "field",
    ),
    "safe:inside": Promise(
        "Files that are read without being asked for are regular files inside the folder and no secret, opened as they were judged; programs are known by where they are, not by their name.",
        "field",
    ),
    "safe:walked": Promise(
        "From inside a sandbox nothing outside of the listed folders can be opened for writing, kernel settings and devices included, as root too: a test walks all there is.",
        "field",
    ),
    "safe:bounded": Promise(
        "A turn's whole tree has bounds on sub-agents, requests, calls of one response and memory.",
        "field",
    ),
    # keep
    "keep:crash": Promise(
        "kill -9 at any moment: the turn resumes; a finished tool is not run again; a finished request is not billed again; a tool that may have run is reported as uncertain unless it is declared idempotent.",
        "field",
    ),
    "keep:replay": Promise(
        "A journalled turn replays offline to the same commands with zero requests.", "beyond the field"
    ),
    "keep:engines": Promise(
        "An engine that people run has the turns' ids only: whatever happens to its workers, its server or its database, each turn has one end, each effect happens once or is told as unknown, and nothing is cancelled that nobody cancelled.",
        "field",
    ),
    "keep:machines": Promise(
        "Several workers on several machines share one Postgres; a dead worker's turns are taken over.", "field"
    ),
    # heal
    "heal:every-case": Promise(
        "Each assembly and cut case replayed through the gateway gives a stream that strict and naive clients alike assemble rightly, or, in the listed cases where nothing right can be had, ends with one clean error.",
        "field",
        GATEWAY,
    ),
    "heal:transparent": Promise(
        "A healthy stream passes event by event as it comes, in its original bytes between equal families; the delay is measured in `benchmarks/`.",
        "field",
        GATEWAY,
    ),
    "heal:generation": Promise(
        "An old client lives on with a new model: what that generation refuses is left out or put in its words, and told.",
        "field",
    ),
    "heal:dialect": Promise(
        "What goes up is what that server takes: order of roles, system texts, content, ids, names, schemas, reasoning; a judge for each endpoint row says so; what is refused by known words is learned once and told.",
        "field",
    ),
    "heal:told": Promise(
        "Every repair is reported in a header or the log and counted per provider.", "beyond the field", GATEWAY
    ),
    # serve
    "serve:upstreams": Promise(
        "A dead upstream (refused, silent, 5xx, 429) costs the requests that were on their way when it died and one a cool-down; all others are answered by the next one, without waiting.",
        "field",
    ),
    "serve:budget": Promise(
        "A key's, team's or user's budget is never overdrawn by a request, on many processes and machines.", "Chutes"
    ),
}
