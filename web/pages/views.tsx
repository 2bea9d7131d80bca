// Traffic, money, and what was mended.

import { Bars, Card, Chip, Choice, Failed, Table, Tile, Waiting, clock, count, dayOf, many, seconds, short, usd, useSeen } from "@turnwise/kit";
import { Chart } from "@turnwise/kit/chart";
import { useState } from "preact/hooks";
import type { Now, Repair, Repairs, Spend, Sum } from "./told";

const MINUTES = 60;

export function NowView() {
  const { data, error } = useSeen<Now>("/page/now", 5);
  if (data === null) return error ? <Failed error={error} /> : <Waiting />;
  const last = Math.floor(data.now / 60);
  const times = Array.from({ length: MINUTES }, (_, place) => last - MINUTES + 1 + place);
  const by = new Map(data.minutes.map((one) => [one.minute, one]));
  const requests = times.map((minute) => by.get(minute)?.requests ?? 0);
  const failed = times.map((minute) => by.get(minute)?.failed ?? 0);
  const sum = requests.reduce((one, other) => one + other, 0);
  const bad = failed.reduce((one, other) => one + other, 0);
  const { p50, p99, of } = data.first_token;
  return (
    <>
      {error ? <Failed error={error} /> : null}
      <dl class="tiles">
        <Tile label="Requests, last minute" value={count(requests.at(-2) ?? 0)} note={`${count(requests.at(-1) ?? 0)} so far in this one`} />
        {data.open === null ? null : <Tile label="Open now" value={count(data.open)} note="of the process that answers" />}
        <Tile label="First token, half within" value={seconds(p50)} note={`of ${many(of, "stream")}, 15 minutes`} />
        <Tile label="First token, 99 % within" value={seconds(p99)} note={`of ${many(of, "stream")}, 15 minutes`} />
        <Tile label="Failed, last hour" value={count(bad)} note={`of ${many(sum, "request")} to providers`} />
      </dl>
      <Card title="Requests a minute" note="To providers, over the last hour, from the ledger that all processes share.">
        <Chart
          times={times.map((minute) => minute * 60)}
          lines={[
            { label: "Requests", values: requests, colour: "--line-1" },
            { label: "Failed", values: failed, colour: "--line-2" },
          ]}
          told={`${many(sum, "request")} in the last hour, ${count(bad)} failed`}
          bars={false}
          value={short}
          when={(at) => clock(at).slice(0, 5)}
        />
      </Card>
      {data.upstreams.length > 0 ? (
        <Card title="Upstreams" note="An upstream that failed is left alone for a while; then one request looks whether it is well.">
          <Table
            label="Upstreams"
            rows={data.upstreams}
            keyOf={(row) => row.name}
            empty=""
            columns={[
              { name: "Upstream", cell: (row) => row.name },
              {
                name: "State",
                cell: (row) => (row.left_alone ? <Chip tone="bad">left alone</Chip> : <Chip tone="good">in use</Chip>),
              },
            ]}
          />
        </Card>
      ) : null}
      <Card title="Providers, last hour" note="Requests whose outcome is known.">
        <Table
          label="Providers"
          rows={data.providers}
          keyOf={(row) => `${row.provider}:${row.model}`}
          empty="No request in the last hour."
          columns={[
            { name: "Provider", cell: (row) => row.provider },
            { name: "Model", cell: (row) => row.model },
            { name: "Requests", right: true, cell: (row) => count(row.requests) },
            { name: "Failed", right: true, cell: (row) => count(row.failed) },
            { name: "Share failed", right: true, cell: (row) => `${((100 * row.failed) / Math.max(row.requests, 1)).toFixed(1)} %` },
          ]}
        />
      </Card>
    </>
  );
}

const SPANS: [string, string][] = [
  ["1", "Today"],
  ["7", "7 days"],
  ["30", "30 days"],
  ["90", "90 days"],
];

function money(sum: Sum): string {
  if (sum.requests > 0 && sum.unknown === sum.requests) return "unknown";
  return usd(sum.usd) + (sum.unknown > 0 ? " +" : "");
}

function told(sum: Sum): string {
  return `${many(sum.requests, "request")}, ${short(sum.input_tokens)} tokens in, ${short(sum.output_tokens)} out`;
}

function SumCard(props: { title: string; rows: Sum[]; unnamed: string }) {
  const rows = props.rows.map((row) => ({
    name: row.name || props.unnamed,
    size: Number(row.usd),
    value: money(row),
    note: told(row),
  }));
  return (
    <Card title={props.title}>
      <Bars rows={rows} empty="No request in this time." />
    </Card>
  );
}

export function SpendView() {
  const [days, setDays] = useState("30");
  const { data, error } = useSeen<Spend>(`/page/spend?days=${days}`, 60);
  const choice = <Choice label="Time" value={days} set={setDays} of={SPANS} />;
  if (data === null) return error ? <Failed error={error} /> : <Waiting />;
  const sum = data.day.reduce((all, row) => all + Number(row.usd), 0);
  const requests = data.day.reduce((all, row) => all + row.requests, 0);
  const unknown = data.day.reduce((all, row) => all + row.unknown, 0);
  const times = data.day.map((row) => new Date(`${row.name}T00:00:00`).getTime() / 1000);
  return (
    <>
      {error ? <Failed error={error} /> : null}
      {choice}
      <dl class="tiles">
        <Tile label="Spent" value={usd(sum)} note={unknown > 0 ? `and ${many(unknown, "request")} without a price` : "every price is known"} />
        <Tile label="Requests" value={count(requests)} />
        <Tile label="Tokens in" value={short(data.day.reduce((all, row) => all + row.input_tokens, 0))} />
        <Tile label="Tokens out" value={short(data.day.reduce((all, row) => all + row.output_tokens, 0))} />
      </dl>
      <Card title="By day">
        {times.length > 1 ? (
          <Chart
            times={times}
            lines={[{ label: "US dollars", values: data.day.map((row) => Number(row.usd)), colour: "--line-1" }]}
            told={`${usd(sum)} on ${many(times.length, "day")}`}
            bars
            when={dayOf}
            value={(value) => (value >= 1000 ? `$${short(value)}` : usd(value))}
          />
        ) : null}
        <Table
          label="By day"
          rows={[...data.day].reverse()}
          keyOf={(row) => row.name}
          empty="No request in this time."
          columns={[
            { name: "Day", tight: true, cell: (row) => row.name },
            { name: "Spent", right: true, cell: money },
            { name: "Requests", right: true, cell: (row) => count(row.requests) },
            { name: "Tokens in", right: true, cell: (row) => count(row.input_tokens) },
            { name: "Tokens out", right: true, cell: (row) => count(row.output_tokens) },
          ]}
        />
      </Card>
      <div class="pair">
        {data.by === "team" ? (
          <SumCard title="By team" rows={data.team ?? []} unnamed="No team" />
        ) : (
          <SumCard title="By purpose" rows={data.purpose ?? []} unnamed="Other" />
        )}
        <SumCard title="By model" rows={data.model} unnamed="No model" />
      </div>
    </>
  );
}

const WHOSE: Record<string, string> = {
  provider: "For the vendor to mend",
  failure: "Failed for a moment",
  model: "The model's own words",
  limit: "Cut by a limit",
  gateway: "The gateway's own rules",
};

function RepairRow(props: { row: Repair }) {
  const { row } = props;
  return (
    <li>
      <div class="line">
        <code>{row.kind}</code>
        <Chip tone={row.whose === "provider" ? "bad" : "calm"}>{WHOSE[row.whose] ?? "Other"}</Chip>
        <span class="note">
          {row.model}: {many(row.requests, "request")}, last on {row.last_day}
        </span>
      </div>
      {row.rule ? <p>{row.rule}</p> : null}
      {row.source ? <p class="note">{row.source}</p> : null}
      {row.example ? (
        <details>
          <summary>What came, without its content</summary>
          <pre tabIndex={0}>{row.example}</pre>
        </details>
      ) : null}
    </li>
  );
}

export function RepairsView() {
  const { data, error } = useSeen<Repairs>("/page/repairs?days=30", 60);
  if (data === null) return error ? <Failed error={error} /> : <Waiting />;
  return (
    <>
      {error ? <Failed error={error} /> : null}
      {data.providers.length === 0 ? <p class="empty">Nothing was mended in the last 30 days.</p> : null}
      {data.providers.map((one) => (
        <Card
          key={one.provider}
          title={one.provider}
          note={`${count(one.repaired)} of ${many(Math.max(one.requests, one.repaired), "request")} in 30 days were not as the API says.`}
        >
          <ul class="repairs">
            {one.kinds.map((row) => (
              <RepairRow key={`${row.kind} ${row.model} ${row.family}`} row={row} />
            ))}
          </ul>
        </Card>
      ))}
    </>
  );
}
