"""The tables of the journal's SQLite file, and what brings an older file up to them.

They are those that PostgreSQL will have when machines share (`turn` has an epoch, so a writer whose turn was taken over cannot
append).
"""

from turnwise.journal.budgets import BUDGET_TABLES
from turnwise.journal.ledger import LEDGER_CACHES, LEDGER_PROGRAMS, LEDGER_SCHEMA
from turnwise.journal.repairs_seen import REPAIRS_SCHEMA

SCHEMA_VERSION = 9
APPLICATION_ID = 0x7475726E  # "turn": tells our files from other SQLite files

FIRST_TABLES = """
create table session (
    id text primary key, folder text not null, title text not null, created real not null, updated real not null,
    parent_turn text, parent_call text
) strict;
create index session_by_folder on session (folder, updated);
create index session_by_parent on session (parent_turn);
create table turn (
    id text primary key, session text not null references session (id), status text not null,
    epoch integer not null default 1, owner text not null, created real not null, finished real,
    stop_reason text, complete integer
) strict;
create index turn_by_session on turn (session, id);
create table event (
    turn text not null references turn (id), seq integer not null, epoch integer not null, kind text not null,
    body text not null, t real not null, primary key (turn, seq)
) strict;
"""
# Version 5 keeps the records of a turn in the table itself, in order, behind the turn's number: an index beside it took a third
# of all pages that were written. Turns of older files, and of older processes that have one open, stay in `event`; `written`
# is both. Requests are found by their row, so `request_by_turn` is gone.
SEQ_BITS = 32
RECORDS = (
    "alter table turn add column number integer",
    "create unique index turn_by_number on turn (number)",
    """create table record (
        id integer primary key, epoch integer not null, kind text not null, body text not null, t real not null
    ) strict""",
    f"""create view written as select turn, seq, kind, body, t from event
        union all select turn.id, record.id - (turn.number << {SEQ_BITS}), record.kind, record.body, record.t
        from turn join record on record.id > turn.number << {SEQ_BITS} and record.id < (turn.number + 1) << {SEQ_BITS}""",
    "drop index if exists request_by_turn",
)
# Version 9 keeps budgets, and the labels of a session as a JSON object.
SHARED = (*BUDGET_TABLES, "alter table session add column labels text not null default '{}'")
SCHEMA = ";".join(
    (
        FIRST_TABLES.strip().removesuffix(";"),
        LEDGER_SCHEMA,
        *LEDGER_PROGRAMS,
        *RECORDS,
        *LEDGER_CACHES,
        *REPAIRS_SCHEMA,
        *SHARED,
    )
)

# What brings an older file up to the next version, by its version.
UPGRADES = {
    1: (
        "alter table session add column parent_turn text",
        "alter table session add column parent_call text",
        "create index session_by_parent on session (parent_turn)",
    ),
    2: tuple(LEDGER_SCHEMA.split(";")),
    3: LEDGER_PROGRAMS,
    4: RECORDS,
    5: LEDGER_CACHES,
    6: REPAIRS_SCHEMA,
    7: (),  # the records of a turn that went on after a crash: an older turnwise would replay them wrongly
    8: SHARED,
}
