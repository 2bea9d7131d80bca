// Requests that failed, and those that end now.

import { Card, Chip, Failed, Table, Waiting, clock, count, moment, seconds, useSeen } from "@turnwise/kit";
import { useEffect, useState } from "preact/hooks";
import type { Failures, Session, Tail } from "./told";

const MOST_LINES = 200;

function keyOf(session: string): string {
  return session.startsWith("gateway:") ? session.slice("gateway:".length) : "";
}

export function ErrorsView() {
  const { data, error } = useSeen<Failures>("/page/errors", 15);
  if (data === null) return error ? <Failed error={error} /> : <Waiting />;
  return (
    <Card
      title="Requests that a provider did not answer"
      note={`The latest ${count(data.rows.length)} of ${data.days} days. The gateway's log and the client have the same ids.`}
    >
      {error ? <Failed error={error} /> : null}
      <Table
        label="Errors"
        rows={data.rows}
        keyOf={(row, place) => `${row.request} ${row.at} ${place}`}
        empty="No request has failed."
        columns={[
          { name: "Time", tight: true, cell: (row) => moment(row.at) },
          { name: "Request", cell: (row) => <code>{row.request}</code> },
          { name: "Key", cell: (row) => keyOf(row.session) },
          { name: "Upstream", tight: true, cell: (row) => `${row.provider}:${row.model}` },
          { name: "Outcome", cell: (row) => <Chip tone="bad">{row.outcome}</Chip> },
          { name: "For", cell: (row) => row.purpose },
          { name: "After", right: true, cell: (row) => seconds(row.seconds) },
        ]}
      />
    </Card>
  );
}

export function LiveView() {
  const [lines, setLines] = useState<Tail[]>([]);
  const [state, setState] = useState("connecting");
  const [holds, setHolds] = useState(false);
  useSeen<Session>("/page/session", 10); // tells when the session has ended: an EventSource does not
  useEffect(() => {
    if (holds) return undefined;
    const source = new EventSource("/page/tail");
    let isNew = true;
    source.onopen = () => {
      isNew = true;
      setState("live");
    };
    source.onerror = () => setState(source.readyState === EventSource.CLOSED ? "ended" : "connecting");
    source.onmessage = (event: MessageEvent<string>) => {
      const line = JSON.parse(event.data) as Tail;
      const before = isNew;
      isNew = false;
      setLines((known) => [line, ...(before ? [] : known)].slice(0, MOST_LINES));
    };
    return () => source.close();
  }, [holds]);
  return (
    <Card
      title="Requests of clients as they end"
      note="Of the process that answers this page, without any content."
      side={
        <span class="line">
          <span role="status">
            <Chip tone={state === "live" && !holds ? "good" : "calm"}>{holds ? "held" : state}</Chip>
          </span>
          <button type="button" class="plain" aria-pressed={holds} onClick={() => setHolds(!holds)}>
            Hold
          </button>
        </span>
      }
    >
      <Table
        label="Live"
        rows={lines}
        keyOf={(row, place) => `${row.request} ${row.at} ${lines.length - place}`}
        empty="Nothing has ended yet."
        columns={[
          { name: "Time", tight: true, cell: (row) => clock(row.at) },
          { name: "Status", cell: (row) => <Chip tone={row.status >= 400 || row.fault ? "bad" : "good"}>{row.status || row.end}</Chip> },
          { name: "Key", cell: (row) => row.client },
          { name: "Model", cell: (row) => (row.provider ? `${row.provider}:${row.model}` : "nowhere") },
          { name: "After", right: true, cell: (row) => seconds(row.seconds) },
          { name: "Tokens in", right: true, cell: (row) => count(row.input_tokens) },
          { name: "Tokens out", right: true, cell: (row) => count(row.output_tokens) },
          { name: "Repairs", cell: (row) => Object.keys(row.repairs).join(", ") },
          { name: "Fault", cell: (row) => row.fault },
          { name: "Request", cell: (row) => <code>{row.request}</code> },
        ]}
      />
    </Card>
  );
}
