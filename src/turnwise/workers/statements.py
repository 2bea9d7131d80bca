"""All SQL of the dispatch. Times are the server's, so the clocks of the machines do not matter.

A turn is `queued`, then `running` under a lease, then ended. If its lease has lapsed, any worker may claim it. The turns of a
session run one at a time, in the order in which they were submitted. A turn gets a new number when it begins, so a session is
read in the order in which its turns began; its place among the waiting turns stays that of its first number.
"""

from typing import LiteralString

KEEP_SESSION: LiteralString = """
insert into session (id, folder, title, created, updated, labels)
    values (%(session)s, %(folder)s, %(title)s, %(now)s, %(now)s, %(labels)s)
on conflict (id) do update set updated = greatest(session.updated, excluded.updated)"""

SUBMIT: LiteralString = """
insert into turn (id, session, status, epoch, owner, created, agent, priority, needs, prompt, wishes)
values (%(turn)s, %(session)s, 'queued', 0, '', %(now)s, %(agent)s, %(priority)s, %(needs)s::text[], %(prompt)s, %(wishes)s)"""

# The turns that a worker may claim at all. TOO_OFTEN (`turn_status.py`) is the largest epoch that is still raised.
_FITS: LiteralString = """
turn.agent = any(%(agents)s::text[]) and turn.needs <@ %(offers)s::text[]
    and not coalesce(%(owner)s = any(turn.refused_by), false) and turn.epoch < 2000000000"""

# A turn that runs, or that waits for an answer, blocks its session: turns keep the order in which they were submitted.
_IS_FREE: LiteralString = """
not exists (select 1 from turn running where running.session = turn.session and running.status = 'running')
and not exists (select 1 from turn asking where asking.session = turn.session and asking.status = 'waiting' and not exists (
    select 1 from turn later where later.session = asking.session and later.number > asking.number
        and later.status <> 'queued'))"""

# Rows are read in the order of an index until one fits: without statistics, a database would judge and sort all rows.
BY_INDEX: LiteralString = """
select set_config('enable_sort', 'off', true), set_config('enable_bitmapscan', 'off', true),
    set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
    set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)"""

# The session is locked first, and then a second statement reads the turn: a single statement would judge by the rows from before
# it had the lock. Neither waits for a lock: a frozen process may hold one, and the turns of other sessions can run. `passed`: the
# sessions that were already tried.
#
# Turns that have begun and have no worker. A turn that waits for an answer continues when it is answered, or when its time is
# over: `wake_at` tells both. The time is the statement's, not the clock's, so that the indexes of these times can be used.
LOCK_LEFT: LiteralString = f"""
with left_turn as materialized (
    select turn.number, turn.priority, turn.session from turn
    where turn.status = 'running' and turn.lease_until < statement_timestamp() and {_FITS}
    union all
    select turn.number, turn.priority, turn.session from turn
    where turn.status = 'waiting' and turn.asks is not null and turn.wake_at <= statement_timestamp() and {_FITS}
)
select session.id, left_turn.number from left_turn join session on session.id = left_turn.session
where session.id <> all(%(passed)s::text[])
order by left_turn.priority desc, left_turn.number limit 1 for update of session skip locked"""

# Only the first turn of each session is looked at, however many wait behind it. A place in the line without a turn is found, too:
# `MOVE` removes it.
LOCK_NEXT: LiteralString = f"""
select session.id, line.id from line join session on session.id = line.session
left join lateral (
    select number, session, agent, needs, refused_by, epoch from turn
    where turn.session = line.session and turn.status = 'queued' order by coalesce(turn.place, turn.number) limit 1
) turn on true
where line.agent = any(%(agents)s::text[]) and line.needs <@ %(offers)s::text[]
    and session.id <> all(%(passed)s::text[]) and (turn.number is null or {_FITS} and {_IS_FREE})
order by line.priority desc, line.place limit 1 for update of session skip locked"""

_FOUND: LiteralString = """
select turn.number, turn.epoch, exists (select 1 from record where record.turn = turn.number), turn.tried_from,
    octet_length(coalesce(turn.prompt, '')) > %(longest)s or octet_length(coalesce(turn.wishes, '')) > %(longest)s,
    turn.cancel from turn"""

LOOK_LEFT: LiteralString = f"""
{_FOUND} where turn.number = %(number)s and {_FITS} and (
    turn.status = 'running' and turn.lease_until < clock_timestamp()
    or turn.status = 'waiting' and turn.asks is not null and turn.wake_at <= clock_timestamp()
) for update of turn skip locked"""

LOOK_NEXT: LiteralString = f"""
{_FOUND} where turn.number = (
    select number from turn where session = %(session)s and status = 'queued' order by coalesce(place, number) limit 1
) and turn.status = 'queued' and {_FITS} and {_IS_FREE} for update of turn skip locked"""

# The session has one place in the line, the place of its first turn; it has none if no turn of it is queued. A process that locks
# the session sees all turns in the line: a submitter holds a lock on the session's row until its turn is there.
MOVE: LiteralString = """
with first as (
    select priority, coalesce(place, number) as place, agent, needs from turn
    where session = %(session)s and status = 'queued' order by coalesce(place, number) limit 1
), moved as (
    update line set (priority, place, agent, needs) = (first.priority, first.place, first.agent, first.needs)
    from first where line.id = %(in_line)s
)
delete from line where session = %(session)s and (id <> %(in_line)s or not exists (select 1 from first))"""

BEGIN: LiteralString = """
update turn set status = 'running', epoch = epoch + 1, owner = %(owner)s, refusal = null,
    place = coalesce(place, number), number = default,
    lease_until = clock_timestamp() + make_interval(secs => %(lease_s)s)
where number = %(number)s returning id, number, epoch, agent, coalesce(prompt, ''), tried_from, wishes, null, null"""

TAKE_OVER: LiteralString = """
update turn set status = 'running', epoch = epoch + 1, owner = %(owner)s, wake_at = null, refusal = null,
    lease_until = clock_timestamp() + make_interval(secs => %(lease_s)s)
where number = %(number)s returning id, number, epoch, agent, coalesce(prompt, ''), tried_from, wishes,
    left(asks, %(longest)s), left(answers, %(longest)s)"""

# One statement, which waits for no lock: a turn whose row is locked is still ours, and is renewed the next time.
RENEW: LiteralString = """
with seen as (
    insert into worker (name, agents, offers, seen, until)
    values (%(owner)s, %(agents)s::text[], %(offers)s::text[], clock_timestamp(),
        clock_timestamp() + make_interval(secs => %(lease_s)s))
    on conflict (name) do update set seen = excluded.seen, until = excluded.until
), held as (
    select * from unnest(%(numbers)s::bigint[], %(epochs)s::integer[]) as held (number, epoch)
), free as (
    select turn.number from turn join held using (number, epoch) where turn.status = 'running'
    order by turn.number for no key update of turn skip locked
), renewed as (
    update turn set lease_until = clock_timestamp() + make_interval(secs => %(lease_s)s)
    from free where turn.number = free.number returning turn.number
)
select turn.number, turn.status <> 'running', turn.number in (select number from renewed), turn.cancel,
    coalesce(turn.watched_until > clock_timestamp(), false)
from turn join held using (number, epoch)"""

# `lost`: an agent that raised has left the turn in this status. The next claim raises the epoch, and a pen that was let go writes
# nothing more. So a turn that is given back does not count twice as a failed try, and not at all if the worker was `blameless`.
RELEASE: LiteralString = """
update turn set lease_until = '-infinity', finished = null,
    tried_from = case when %(blameless)s then epoch else tried_from end,
    status = case when exists (select 1 from record where record.turn = turn.number) then 'running' else 'queued' end
where number = %(number)s and epoch = %(epoch)s and status in ('running', 'lost')"""

# An answer sets `wake_at` to now. No lease runs meanwhile.
PARK: LiteralString = """
update turn set status = 'waiting', lease_until = '-infinity', asks = %(asks)s, answers = null,
    wake_at = clock_timestamp() + make_interval(secs => %(deadline_s)s)
where number = %(number)s and epoch = %(epoch)s and status = 'running' returning 1"""

# Another worker may run it. The tries so far do not count as failed, because no worker died of them.
REFUSE: LiteralString = """
update turn set lease_until = '-infinity', finished = null,
    refusal = %(problem)s, refused_by = array_append(refused_by, %(owner)s),
    status = case when exists (select 1 from record where record.turn = turn.number) then 'running' else 'queued' end,
    tried_from = epoch + (exists (select 1 from record where record.turn = turn.number))::integer,
    epoch = epoch + (exists (select 1 from record where record.turn = turn.number))::integer
where number = %(number)s and epoch = %(epoch)s and status in ('running', 'lost')"""

FAIL: LiteralString = """
update turn set status = 'lost', finished = %(now)s, complete = 0, problem = %(problem)s
where number = %(number)s and epoch = %(epoch)s and status in ('running', 'lost')"""

# The last turn of a session that has begun, and whether it is in the line again already.
LAST_BEGUN: LiteralString = """
select turn.number, turn.status, turn.stop_reason, turn.problem, turn.agent, exists (
    select 1 from turn again where again.session = turn.session and again.status = 'queued'
        and again.place = coalesce(turn.place, turn.number)
) from turn where turn.session = %(session)s and turn.status not in ('queued', 'accepted')
order by turn.number desc limit 1"""

# A new turn that asks the same. It stands where the failed one stood, so before the later turns of its session.
AGAIN: LiteralString = """
insert into turn (id, session, status, epoch, owner, created, agent, priority, needs, prompt, wishes, place)
select %(turn)s, session, 'queued', 0, '', %(now)s, agent, priority, needs, prompt, wishes, coalesce(place, number)
from turn where number = %(number)s"""

END_CANCELLED: LiteralString = """
update turn set status = 'done', finished = %(now)s, stop_reason = 'cancelled', complete = 0 where number = %(number)s"""

CANCEL_QUEUED: LiteralString = """
update turn set status = 'done', finished = %(now)s, stop_reason = 'cancelled', complete = 0
where session = %(session)s and (status in ('queued', 'waiting')
    or status = 'running' and refusal is not null and lease_until < clock_timestamp()) and agent is not null returning id"""

CANCEL_RUNNING: LiteralString = """
update turn set cancel = true where session = %(session)s and status = 'running' and agent is not null returning id"""

FORGET: LiteralString = "delete from worker where name = %(owner)s or until < clock_timestamp() - interval '1 hour'"

_STATUS: LiteralString = """
select turn.session, turn.status, turn.agent, turn.priority, turn.needs, turn.owner, turn.created, turn.finished,
    turn.stop_reason, turn.complete, turn.cancel, turn.problem,
    extract(epoch from clock_timestamp())::double precision, extract(epoch from turn.wake_at)::double precision,
    left(turn.asks, %(longest)s), left(turn.answers, %(longest)s), turn.refusal, turn.epoch,
    turn.status = 'running' and turn.lease_until < clock_timestamp()
        or turn.status = 'waiting' and turn.asks is not null and turn.wake_at <= clock_timestamp(),
    exists (select 1 from turn running where running.session = turn.session and running.status = 'running')
        or exists (select 1 from turn earlier where earlier.session = turn.session
            and earlier.status = 'queued' and coalesce(earlier.place, earlier.number) < coalesce(turn.place, turn.number)),
    coalesce((select last.status from turn last where last.session = turn.session and last.status <> 'queued'
        order by last.number desc limit 1), '') = 'waiting',
    exists (select 1 from worker where until > clock_timestamp() and turn.agent = any(agents)),
    exists (select 1 from worker where until > clock_timestamp() and turn.agent = any(agents) and turn.needs <@ offers)
from {} order by turn.created desc, turn.number desc limit %(limit)s"""
STATUS_OF_ONE: LiteralString = _STATUS.format("turn where turn.agent is not null and turn.session = %(session)s")
STATUS_OF_ALL: LiteralString = _STATUS.format("turn where turn.agent is not null")

_MATCHES: LiteralString = """
turn.agent is not null and (%(agent)s::text = '' or turn.agent = %(agent)s) and (
    cardinality(%(names)s::text[]) = 0 or not exists (
        select 1 from unnest(%(names)s::text[], %(texts)s::text[]) as wanted (name, label) where label is distinct from
            (select cast(labels as json) ->> wanted.name from session where session.id = turn.session)))"""

# Each part reads the partial index of its state. Without an index for the whole, a database would read all finished turns.
_OPEN: LiteralString = f"""
select number, created, agent, status, session from turn where turn.status = 'queued' and {_MATCHES}
union all select number, created, agent, status, session from turn where turn.status = 'running' and {_MATCHES}
union all select number, created, agent, status, session from turn where turn.status = 'waiting' and {_MATCHES}"""
STATUS_OF_OPEN: LiteralString = _STATUS.format(f"""(
    select number from ({_OPEN}) open_turn where %(state)s::text in ('', status)
    order by created desc, number desc limit %(limit)s
) latest join lateral (select * from turn where turn.number = latest.number offset 0) turn on true""")
STATUS_OF_ENDED: LiteralString = _STATUS.format(
    f"turn where turn.status not in ('queued', 'running', 'waiting') and {_MATCHES}"
)
BY_PARTIAL_INDEX: LiteralString = "select set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)"

# A row for each agent and state, and one for each agent without a state: how many of its sessions a worker could serve now, or
# serves. A session runs one turn at a time, and none while it waits for a person.
TOTALS: LiteralString = f"""
select agent, status, count(*), greatest(0, extract(epoch from clock_timestamp())::double precision - min(created)),
    count(distinct session) filter (where session not in (select session from turn asking where asking.status = 'waiting'))
from ({_OPEN}) open_turn where %(state)s::text in ('', status) group by grouping sets ((agent, status), (agent))
order by count(*) desc, agent limit %(limit)s"""

WORKERS: LiteralString = """
select worker.name, worker.agents, worker.offers,
    coalesce(array_agg(turn.session order by turn.number) filter (where turn.number is not null), '{}')
from worker left join turn on turn.status = 'running' and turn.owner = worker.name
    and turn.lease_until >= statement_timestamp()
where worker.until > clock_timestamp() and (%(agent)s::text = '' or %(agent)s = any(worker.agents))
group by worker.name order by worker.name limit %(limit)s"""
