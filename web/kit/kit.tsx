// What pages are made of: tables, bars, tiles, dialogs, and a view that is asked for again and again.

import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { Refused, call, said } from "./calls";

export { Refused, call, said, setWord } from "./calls";
export * from "./words";

let whenSignedOut: () => void = () => undefined;

export function onSignedOut(then: () => void): void {
  whenSignedOut = then;
}

export interface Seen<T> {
  data: T | null;
  error: string;
  again: () => void;
}

/** What the server tells at this path, again every so many seconds while the page is seen; 0: once. */
export function useSeen<T>(path: string, everyS: number): Seen<T> {
  const [data, setData] = useState<T | null>(null);
  const [error, setError] = useState("");
  const [asked, setAsked] = useState(0);
  useEffect(() => {
    let left = false;
    let timer = 0;
    const look = async (): Promise<void> => {
      try {
        const told = document.hidden && data !== null ? null : await call<T>("GET", path);
        if (left) return;
        if (told !== null) setData(told);
        setError("");
      } catch (failed) {
        if (left) return;
        if (failed instanceof Refused && failed.status === 401) whenSignedOut();
        setError(said(failed));
      }
      if (everyS > 0) timer = window.setTimeout(() => void look(), everyS * 1000);
    };
    void look();
    return () => {
      left = true;
      window.clearTimeout(timer);
    };
  }, [path, everyS, asked]);
  return { data, error, again: () => setAsked(asked + 1) };
}

export function Card(props: { title: string; note?: string; side?: ComponentChildren; children: ComponentChildren }) {
  const id = useId();
  return (
    <section class="card" aria-labelledby={id}>
      <header class="card-head">
        <h2 id={id}>{props.title}</h2>
        {props.side}
      </header>
      {props.note ? <p class="note">{props.note}</p> : null}
      {props.children}
    </section>
  );
}

export function Tile(props: { label: string; value: string; note?: string }) {
  return (
    <div class="tile">
      <dt>{props.label}</dt>
      <dd>
        <span class="figure">{props.value}</span>
        {props.note ? <span class="note">{props.note}</span> : null}
      </dd>
    </div>
  );
}

export interface Column<Row> {
  name: string;
  cell: (row: Row) => ComponentChildren;
  right?: boolean;
  tight?: boolean;
}

export function Table<Row>(props: {
  label: string;
  columns: Column<Row>[];
  rows: Row[];
  keyOf: (row: Row, place: number) => string;
  empty: string;
}) {
  if (props.rows.length === 0) return <p class="empty">{props.empty}</p>;
  return (
    <div class="scroll" role="region" aria-label={`${props.label}, table`} tabIndex={0}>
      <table>
        <thead>
          <tr>
            {props.columns.map((column) => (
              <th key={column.name} scope="col" class={column.right ? "right" : ""}>
                {column.name || <span class="hidden">Actions</span>}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {props.rows.map((row, place) => (
            <tr key={props.keyOf(row, place)}>
              {props.columns.map((column) => (
                <td key={column.name} class={column.right ? "right" : column.tight ? "tight" : ""}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** A list of sums, each with a bar of its share of the greatest one. */
export function Bars(props: { rows: { name: string; size: number; value: string; note: string }[]; empty: string }) {
  const most = Math.max(...props.rows.map((row) => row.size), 0);
  if (props.rows.length === 0) return <p class="empty">{props.empty}</p>;
  return (
    <ul class="bars">
      {props.rows.map((row) => (
        <li key={row.name}>
          <span class="bar-name">{row.name}</span>
          <span class="bar-value">{row.value}</span>
          <Meter share={most > 0 ? row.size / most : 0} />
          <span class="note">{row.note}</span>
        </li>
      ))}
    </ul>
  );
}

export function Meter(props: { share: number; tone?: "full" | "near" }) {
  const width = `${Math.round(Math.min(Math.max(props.share, 0), 1) * 1000) / 10}%`;
  return (
    <span class="meter" aria-hidden="true">
      <span class={`fill ${props.tone ?? ""}`} style={{ width }} />
    </span>
  );
}

export function Chip(props: { tone: "good" | "bad" | "calm"; children: ComponentChildren }) {
  return <span class={`chip ${props.tone}`}>{props.children}</span>;
}

export function Failed(props: { error: string }) {
  return (
    <p class="failed" role="alert">
      {props.error}
    </p>
  );
}

export function Waiting() {
  return (
    <p class="empty" role="status">
      Loading
    </p>
  );
}

/** Opens above the page; Escape closes it, and the focus goes back to where it was. */
export function Dialog(props: { title: string; close: () => void; children: ComponentChildren }) {
  const id = useId();
  const own = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    own.current?.showModal();
    return () => {
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog ref={own} aria-labelledby={id} onClose={props.close}>
      <h2 id={id}>{props.title}</h2>
      {props.children}
    </dialog>
  );
}

export function Field(props: { label: string; hint?: string; children: (id: string, hint: string) => ComponentChildren }) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{props.label}</label>
      {props.children(id, `${id}-hint`)}
      <span id={`${id}-hint`} class="note">
        {props.hint ?? ""}
      </span>
    </div>
  );
}

export function TextField(props: {
  label: string;
  value: string;
  set: (value: string) => void;
  hint?: string;
  isSecret?: boolean;
  required?: boolean;
}) {
  return (
    <Field label={props.label} {...(props.hint === undefined ? {} : { hint: props.hint })}>
      {(id, hint) => {
        const own = {
          id,
          "aria-describedby": hint,
          value: props.value,
          required: props.required ?? false,
          autocomplete: "off",
          spellcheck: false,
          onInput: (event: { currentTarget: HTMLInputElement }) => props.set(event.currentTarget.value),
        };
        return props.isSecret ? <input type="password" {...own} /> : <input type="text" {...own} />;
      }}
    </Field>
  );
}

export function Choice(props: { label: string; value: string; set: (value: string) => void; of: [string, string][] }) {
  return (
    <Field label={props.label}>
      {(id) => (
        <select id={id} value={props.value} onChange={(event) => props.set(event.currentTarget.value)}>
          {props.of.map(([value, name]) => (
            <option key={value} value={value}>
              {name}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}
