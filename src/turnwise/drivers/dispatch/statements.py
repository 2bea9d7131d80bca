"""The SQL of the dispatch, all of it. Times are the server's, so the clocks of the machines do not matter.

A turn is `queued`, then `running` under a lease, then ended. A turn whose lease has lapsed is anybody's. The turns of a session
run one at a time, in the order in which they were submitted. A turn gets a new number when it begins, so a session is read in the
order in which its turns have begun.
"""

from typing import LiteralString

KEEP_SESSION: LiteralString = """
insert into session (id, folder, title, created, updated) values (%(session)s, %(folder)s, %(title)s, %(now)s, %(now)s)
on conflict (id) do update set updated = excluded.updated"""

SUBMIT: LiteralString = """
insert into turn (id, session, status, epoch, owner, created, agent, priority, needs, prompt, wishes)
values (%(turn)s, %(session)s, 'queued', 0, '', %(now)s, %(agent)s, %(priority)s, %(needs)s::text[], %(prompt)s, %(wishes)s)"""

# A turn that waits for an answer blocks its session: the order of what was submitted is kept. It goes on when it is answered,
# or its time is over: both are told by `wake_at`. The sessions that are busy are found once, and not for each turn behind them.
_MAY_RUN: LiteralString = """
case when turn.status = 'queued' and (
    turn.session in (select running.session from turn running where running.status = 'running')
    or turn.session in (select asking.session from turn asking where asking.status = 'waiting' and not exists (
        select 1 from turn later where later.session = asking.session and later.number > asking.number
            and later.status <> 'queued'))
) then false
else turn.agent = any(%(agents)s::text[]) and turn.needs <@ %(offers)s::text[]
    and not coalesce(%(owner)s = any(turn.refused_by), false) and turn.epoch < 2000000000 and (
        turn.status = 'running' and turn.lease_until < clock_timestamp()
        or turn.status = 'waiting' and turn.asks is not null and turn.wake_at <= clock_timestamp()
        or turn.status = 'queued' and not exists (select 1 from turn earlier where earlier.session = turn.session
            and earlier.status = 'queued' and earlier.number < turn.number))
end"""

# Turns are looked at in the order of an index until one may run: a database without statistics would judge and sort all of them.
BY_INDEX: LiteralString = """
select set_config('enable_sort', 'off', true), set_config('enable_bitmapscan', 'off', true),
    set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
    set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)"""

# The session is locked first, and the turn is looked at anew by the next statement: a single one would judge by what stood
# there before it had the lock. Neither waits for a lock: a process that is frozen may hold one, and the turns of other
# sessions can run. `passed`: the sessions that were looked at already.
LOCK_SESSION: LiteralString = f"""
select session.id from turn join session on session.id = turn.session
where turn.status in ('queued', 'running', 'waiting') and {_MAY_RUN} and session.id <> all(%(passed)s::text[])
order by turn.priority desc, turn.number limit 1 for update of session skip locked"""

LOOK: LiteralString = f"""
select turn.number, turn.epoch, exists (select 1 from record where record.turn = turn.number), turn.tried_from,
    octet_length(coalesce(turn.prompt, '')) > %(longest)s or octet_length(coalesce(turn.wishes, '')) > %(longest)s,
    turn.cancel from turn
where turn.status in ('queued', 'running', 'waiting') and {_MAY_RUN} and turn.session = %(session)s
order by turn.number limit 1 for update of turn skip locked"""

BEGIN: LiteralString = """
update turn set status = 'running', epoch = epoch + 1, owner = %(owner)s, number = default, refusal = null,
    lease_until = clock_timestamp() + make_interval(secs => %(lease_s)s)
where number = %(number)s returning id, number, epoch, agent, coalesce(prompt, ''), tried_from, wishes, null, null"""

TAKE_OVER: LiteralString = """
update turn set status = 'running', epoch = epoch + 1, owner = %(owner)s, wake_at = null, refusal = null,
    lease_until = clock_timestamp() + make_interval(secs => %(lease_s)s)
where number = %(number)s returning id, number, epoch, agent, coalesce(prompt, ''), tried_from, wishes,
    left(asks, %(longest)s), left(answers, %(longest)s)"""

# One statement, and it waits for nobody's lock: a turn whose row is locked is still ours, and is renewed the next time.
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
select turn.number, turn.status <> 'running', turn.number in (select number from renewed), turn.cancel
from turn join held using (number, epoch)"""

# `lost`: so an agent that raised has left it. The next claim raises the epoch, and a pen that was let go writes nothing more: a
# turn that is given back is not counted twice as a try in vain, and not at all where it was `blameless`.
RELEASE: LiteralString = """
update turn set lease_until = '-infinity', finished = null,
    tried_from = case when %(blameless)s then epoch else tried_from end,
    status = case when exists (select 1 from record where record.turn = turn.number) then 'running' else 'queued' end
where number = %(number)s and epoch = %(epoch)s and status in ('running', 'lost')"""

# Whoever answers makes `wake_at` now. Nobody's lease runs meanwhile.
PARK: LiteralString = """
update turn set status = 'waiting', lease_until = '-infinity', asks = %(asks)s, answers = null,
    wake_at = clock_timestamp() + make_interval(secs => %(deadline_s)s)
where number = %(number)s and epoch = %(epoch)s and status = 'running' returning 1"""

# Another worker may run it. What was tried so far was not in vain: nobody died of it.
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

END_CANCELLED: LiteralString = """
update turn set status = 'done', finished = %(now)s, stop_reason = 'cancelled', complete = 0 where number = %(number)s"""

CANCEL_QUEUED: LiteralString = """
update turn set status = 'done', finished = %(now)s, stop_reason = 'cancelled', complete = 0
where session = %(session)s and (status in ('queued', 'waiting')
    or status = 'running' and refusal is not null and lease_until < clock_timestamp()) and agent is not null returning id"""

CANCEL_RUNNING: LiteralString = """
update turn set cancel = true where session = %(session)s and status = 'running' and agent is not null returning id"""

FORGET: LiteralString = "delete from worker where name = %(owner)s or until < clock_timestamp() - interval '1 hour'"

STATUS: LiteralString = """
select turn.session, turn.status, turn.agent, turn.priority, turn.needs, turn.owner, turn.created, turn.finished,
    turn.stop_reason, turn.complete, turn.cancel, turn.problem,
    extract(epoch from clock_timestamp())::double precision, extract(epoch from turn.wake_at)::double precision,
    left(turn.asks, 33554432), left(turn.answers, 33554432), turn.refusal, turn.epoch,
    turn.status = 'running' and turn.lease_until < clock_timestamp()
        or turn.status = 'waiting' and turn.asks is not null and turn.wake_at <= clock_timestamp(),
    exists (select 1 from turn other where other.session = turn.session
        and (other.status = 'running' or other.status = 'queued' and other.number < turn.number)),
    coalesce((select last.status from turn last where last.session = turn.session and last.status <> 'queued'
        order by last.number desc limit 1), '') = 'waiting',
    exists (select 1 from worker where until > clock_timestamp() and turn.agent = any(agents)),
    exists (select 1 from worker where until > clock_timestamp() and turn.agent = any(agents) and turn.needs <@ offers)
from turn where turn.agent is not null and (%(session)s = '' or turn.session = %(session)s)
order by turn.created desc, turn.number desc limit %(limit)s"""
