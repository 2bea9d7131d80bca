// Keys, teams and users with their budgets. A new key is shown once, and forgotten when its dialog closes.

import { Card, Chip, Choice, Dialog, Failed, Meter, Table, TextField, Waiting, call, moment, said, short, usd, useSeen } from "@turnwise/kit";
import { useState } from "preact/hooks";
import { LIMITS, type Owner, type Owners } from "./told";

type Kind = "key" | "user" | "team";

interface Draft {
  name: string;
  user: string;
  team: string;
  rights: string;
  models: string;
  expires: string;
  zone: string;
  unknown_price: string;
  limits: { name: string; amount: string }[];
}

function draftOf(owner: Owner | null): Draft {
  return {
    name: owner?.name ?? "",
    user: owner?.user ?? "",
    team: owner?.team ?? "",
    rights: owner?.rights ?? "",
    models: (owner?.models ?? []).join(" "),
    expires: owner?.expires ?? "",
    zone: owner?.zone ?? "UTC",
    unknown_price: owner?.unknown_price ?? "refuse",
    limits: Object.entries(owner?.limits ?? {}).map(([name, amount]) => ({ name, amount })),
  };
}

/** What the server is told: only what differs from before. */
function changeOf(draft: Draft, before: Draft, kind: Kind): Record<string, unknown> {
  const told: Record<string, unknown> = {};
  const own: (keyof Draft)[] = kind === "key" ? ["user", "team", "rights", "zone", "unknown_price"] : ["zone", "unknown_price"];
  for (const name of own) if (draft[name] !== before[name]) told[name] = draft[name];
  if (draft.models !== before.models) told.models = draft.models.split(/[\s,]+/).filter(Boolean);
  if (draft.expires !== before.expires) told.expires = draft.expires.trim() || null;
  const now = new Map(draft.limits.map((limit) => [limit.name, limit.amount.trim()]));
  const was = new Map(before.limits.map((limit) => [limit.name, limit.amount]));
  const limits: Record<string, string | null> = {};
  for (const name of was.keys()) if (!now.has(name)) limits[name] = null;
  for (const [name, amount] of now) if (was.get(name) !== amount) limits[name] = amount;
  if (Object.keys(limits).length > 0) told.limits = limits;
  return told;
}

function LimitFields(props: { limits: Draft["limits"]; set: (limits: Draft["limits"]) => void }) {
  const { limits, set } = props;
  const left = LIMITS.filter((name) => !limits.some((limit) => limit.name === name));
  const put = (place: number, change: Partial<Draft["limits"][number]>): void =>
    set(limits.map((limit, nth) => (nth === place ? { ...limit, ...change } : limit)));
  return (
    <fieldset>
      <legend>Limits</legend>
      {limits.map((limit, place) => (
        <div class="limit" key={place}>
          <select aria-label={`Limit ${place + 1}`} value={limit.name} onChange={(event) => put(place, { name: event.currentTarget.value })}>
            {[limit.name, ...left].map((name) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
          <input
            aria-label={`Amount of ${limit.name}`}
            inputMode="decimal"
            required
            value={limit.amount}
            onInput={(event) => put(place, { amount: event.currentTarget.value })}
          />
          <button type="button" class="plain" aria-label={`Remove ${limit.name}`} onClick={() => set(limits.filter((_, nth) => nth !== place))}>
            Remove
          </button>
        </div>
      ))}
      <button type="button" class="plain" disabled={left.length === 0} onClick={() => set([...limits, { name: left[0] ?? "", amount: "" }])}>
        Add a limit
      </button>
    </fieldset>
  );
}

function OwnerForm(props: { kind: Kind; owner: Owner | null; close: () => void; done: (key: string, name: string) => void }) {
  const { kind, owner } = props;
  const before = draftOf(owner);
  const [draft, setDraft] = useState(before);
  const [error, setError] = useState("");
  const set = (change: Partial<Draft>): void => setDraft({ ...draft, ...change });
  const send = async (): Promise<void> => {
    const change = changeOf(draft, before, kind);
    const path = `/admin/${kind}s`;
    try {
      if (kind === "key" && owner === null) {
        const made = await call<{ key: string }>("POST", path, { name: draft.name, ...change });
        props.done(made.key, draft.name);
      } else {
        await call("PATCH", `${path}/${encodeURIComponent(draft.name)}`, change);
        props.done("", draft.name);
      }
    } catch (failed) {
      setError(said(failed));
    }
  };
  return (
    <Dialog title={owner === null ? `Add a ${kind}` : `Set ${kind} ${owner.name}`} close={props.close}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void send();
        }}
      >
        <div class="fields">
          {owner === null ? <TextField label="Name" value={draft.name} set={(name) => set({ name })} required hint="Letters, digits, . _ -" /> : null}
          {kind === "key" ? (
            <>
              <TextField label="User" value={draft.user} set={(user) => set({ user })} />
              <TextField label="Team" value={draft.team} set={(team) => set({ team })} />
              <Choice
                label="Rights"
                value={draft.rights}
                set={(rights) => set({ rights })}
                of={[
                  ["", "Models only"],
                  ["metrics", "Metrics, too"],
                  ["admin", "Everything: this page, too"],
                ]}
              />
            </>
          ) : null}
          <TextField label="Models" value={draft.models} set={(models) => set({ models })} hint="Patterns with spaces between: gpt-* claude-*. None: every model." />
          <TextField label="Expires" value={draft.expires} set={(expires) => set({ expires })} hint="2026-12-31T18:00:00Z. None: never." />
          <TextField label="Time zone" value={draft.zone} set={(zone) => set({ zone })} hint="Where days, weeks and months begin." />
          <TextField label="Unknown prices" value={draft.unknown_price} set={(unknown_price) => set({ unknown_price })} hint="refuse, or dollars per million tokens: 3/15" />
        </div>
        <LimitFields limits={draft.limits} set={(limits) => set({ limits })} />
        {error ? <Failed error={error} /> : null}
        <div class="line end">
          <button type="button" class="plain" onClick={props.close}>
            Cancel
          </button>
          <button type="submit">{owner === null ? "Add" : "Save"}</button>
        </div>
      </form>
    </Dialog>
  );
}

function NewKey(props: { name: string; secret: string; close: () => void }) {
  const [state, setState] = useState("");
  const copy = (): void => {
    navigator.clipboard.writeText(props.secret).then(
      () => setState("Copied."),
      () => setState("The browser does not allow copying here: mark the key and copy it."),
    );
  };
  return (
    <Dialog title={`The key of ${props.name}`} close={props.close}>
      <p>It is shown this once. Nobody can show it again, and a lost key is exchanged for another one.</p>
      <pre class="secret" tabIndex={0}>
        {props.secret}
      </pre>
      <p role="status">{state}</p>
      <div class="line end">
        <button type="button" class="plain" onClick={copy}>
          Copy
        </button>
        <button type="button" onClick={props.close}>
          Close
        </button>
      </div>
    </Dialog>
  );
}

function Sure(props: { title: string; says: string; verb: string; work: () => Promise<void>; close: () => void }) {
  const [error, setError] = useState("");
  return (
    <Dialog title={props.title} close={props.close}>
      <p>{props.says}</p>
      {error ? <Failed error={error} /> : null}
      <div class="line end">
        <button type="button" class="plain" onClick={props.close}>
          Cancel
        </button>
        <button type="button" class="danger" onClick={() => void props.work().catch((failed: unknown) => setError(said(failed)))}>
          {props.verb}
        </button>
      </div>
    </Dialog>
  );
}

function amount(name: string, value: string): string {
  return name.startsWith("usd/") ? usd(value) : short(Number(value));
}

function Budgets(props: { owner: Owner; used: Record<string, string> }) {
  const limits = Object.entries(props.owner.limits);
  if (limits.length === 0) return <span class="note">none</span>;
  return (
    <ul class="budgets">
      {limits.map(([name, limit]) => {
        const used = props.used[name] ?? "0";
        const share = Number(limit) > 0 ? Number(used) / Number(limit) : 1;
        return (
          <li key={name}>
            <span>
              {name}: {amount(name, used)} of {amount(name, limit)}
            </span>
            <Meter share={share} {...(share >= 1 ? { tone: "full" as const } : share >= 0.8 ? { tone: "near" as const } : {})} />
          </li>
        );
      })}
    </ul>
  );
}

function stateOf(owner: Owner) {
  if (owner.revoked) return <Chip tone="calm">revoked</Chip>;
  if (owner.expires && new Date(owner.expires).getTime() < Date.now()) return <Chip tone="bad">expired</Chip>;
  return <Chip tone="good">open</Chip>;
}

type Asked =
  | { what: "form"; kind: Kind; owner: Owner | null }
  | { what: "rotate" | "revoke"; owner: Owner }
  | { what: "shown"; name: string; key: string };

export function KeysView() {
  const { data, error, again } = useSeen<Owners>("/page/owners", 15);
  const [asked, setAsked] = useState<Asked | null>(null);
  const [filter, setFilter] = useState("");
  const close = (): void => setAsked(null);
  const done = (key: string, name: string): void => {
    setAsked(key ? { what: "shown", name, key } : null);
    again();
  };
  const remake = async (name: string): Promise<void> => {
    const made = await call<{ key: string }>("POST", `/admin/keys/${encodeURIComponent(name)}/rotate`);
    done(made.key, name);
  };
  const revoke = async (name: string): Promise<void> => {
    await call("DELETE", `/admin/keys/${encodeURIComponent(name)}`);
    done("", name);
  };
  if (data === null) return error ? <Failed error={error} /> : <Waiting />;
  const fits = (one: Owner): boolean => `${one.name} ${one.user} ${one.team}`.toLowerCase().includes(filter.trim().toLowerCase());
  const used = (kind: Kind, one: Owner): Record<string, string> => data.budgets[`${kind}/${one.name}`] ?? {};
  const group = (kind: "team" | "user", title: string) => (
    <Card
      title={title}
      note="What stands here bounds all of its keys together."
      side={
        <button type="button" class="plain" onClick={() => setAsked({ what: "form", kind, owner: null })}>
          Add a {kind}
        </button>
      }
    >
      <Table
        label={title}
        rows={data[`${kind}s`].filter(fits)}
        keyOf={(one) => one.name}
        empty={`No ${kind} has limits.`}
        columns={[
          { name: "Name", cell: (one) => one.name },
          { name: "Budgets", cell: (one) => <Budgets owner={one} used={used(kind, one)} /> },
          {
            name: "",
            cell: (one) => (
              <button type="button" class="plain" aria-label={`Set ${kind} ${one.name}`} onClick={() => setAsked({ what: "form", kind, owner: one })}>
                Set
              </button>
            ),
          },
        ]}
      />
    </Card>
  );
  return (
    <>
      {error ? <Failed error={error} /> : null}
      <TextField label="Filter by name, user or team" value={filter} set={setFilter} />
      <Card
        title="Keys"
        side={
          <button type="button" onClick={() => setAsked({ what: "form", kind: "key", owner: null })}>
            Add a key
          </button>
        }
      >
        <Table
          label="Keys"
          rows={data.keys.filter(fits)}
          keyOf={(one) => one.name}
          empty="No key fits."
          columns={[
            { name: "Name", cell: (one) => one.name },
            { name: "State", cell: stateOf },
            { name: "Team", cell: (one) => one.team },
            { name: "User", cell: (one) => one.user },
            { name: "Rights", cell: (one) => one.rights },
            { name: "Budgets", cell: (one) => <Budgets owner={one} used={used("key", one)} /> },
            { name: "Last used", tight: true, cell: (one) => moment(one.last_used) },
            {
              name: "",
              cell: (one) => (
                <span class="line">
                  <button type="button" class="plain" aria-label={`Set key ${one.name}`} onClick={() => setAsked({ what: "form", kind: "key", owner: one })}>
                    Set
                  </button>
                  <button type="button" class="plain" aria-label={`Rotate key ${one.name}`} onClick={() => setAsked({ what: "rotate", owner: one })}>
                    Rotate
                  </button>
                  {one.revoked ? null : (
                    <button type="button" class="plain" aria-label={`Revoke key ${one.name}`} onClick={() => setAsked({ what: "revoke", owner: one })}>
                      Revoke
                    </button>
                  )}
                </span>
              ),
            },
          ]}
        />
      </Card>
      {group("team", "Teams")}
      {group("user", "Users")}
      {asked?.what === "form" ? <OwnerForm kind={asked.kind} owner={asked.owner} close={close} done={done} /> : null}
      {asked?.what === "shown" ? <NewKey name={asked.name} secret={asked.key} close={close} /> : null}
      {asked?.what === "rotate" ? (
        <Sure
          title={`Rotate ${asked.owner.name}`}
          says="It gets a new key with the same terms. The old one opens nothing from now on."
          verb="Rotate"
          work={() => remake(asked.owner.name)}
          close={close}
        />
      ) : null}
      {asked?.what === "revoke" ? (
        <Sure
          title={`Revoke ${asked.owner.name}`}
          says="The key opens nothing from now on, and sessions that it opened end."
          verb="Revoke"
          work={() => revoke(asked.owner.name)}
          close={close}
        />
      ) : null}
    </>
  );
}
