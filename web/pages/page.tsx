// The page: who may see it, and which view is seen.

import { Failed, Refused, TextField, call, onSignedOut, said, setWord } from "@turnwise/kit";
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ErrorsView, LiveView } from "./errors";
import { KeysView } from "./keys";
import type { Session } from "./told";
import { NowView, RepairsView, SpendView } from "./views";

const VIEWS: { id: string; name: string; of: (session: Session) => boolean }[] = [
  { id: "now", name: "Now", of: () => true },
  { id: "spend", name: "Spend", of: () => true },
  { id: "repairs", name: "Repairs", of: () => true },
  { id: "keys", name: "Keys and budgets", of: (session) => session.can_change },
  { id: "errors", name: "Errors", of: () => true },
  { id: "live", name: "Live", of: (session) => session.has_tail },
];

function seenView(session: Session): string {
  const asked = window.location.hash.slice(1);
  return VIEWS.some((view) => view.id === asked && view.of(session)) ? asked : "now";
}

function Views(props: { session: Session; signOut: () => void }) {
  const [view, setView] = useState(seenView(props.session));
  useEffect(() => {
    const changed = (): void => setView(seenView(props.session));
    window.addEventListener("hashchange", changed);
    return () => window.removeEventListener("hashchange", changed);
  }, []);
  const own = VIEWS.filter((one) => one.of(props.session));
  return (
    <>
      <header class="top">
        <span class="brand">turnwise</span>
        <nav aria-label="Views">
          {own.map((one) => (
            <a key={one.id} href={`#${one.id}`} aria-current={one.id === view ? "page" : undefined}>
              {one.name}
            </a>
          ))}
        </nav>
        <span class="who">
          {props.session.name ? <span class="note">{props.session.name}</span> : null}
          <button type="button" class="plain" onClick={props.signOut}>
            Sign out
          </button>
        </span>
      </header>
      <main>
        <h1>{own.find((one) => one.id === view)?.name}</h1>
        {view === "now" ? <NowView /> : null}
        {view === "spend" ? <SpendView /> : null}
        {view === "repairs" ? <RepairsView /> : null}
        {view === "keys" ? <KeysView /> : null}
        {view === "errors" ? <ErrorsView /> : null}
        {view === "live" ? <LiveView /> : null}
      </main>
    </>
  );
}

function SignIn(props: { error: string; signIn: (key: string) => Promise<void> }) {
  const [key, setKey] = useState("");
  const [error, setError] = useState(props.error);
  const send = async (): Promise<void> => {
    setKey("");
    setError("");
    await props.signIn(key.trim()).catch((failed: unknown) => setError(said(failed)));
  };
  return (
    <main class="door">
      <h1>turnwise</h1>
      <form
        class="card"
        onSubmit={(event) => {
          event.preventDefault();
          void send();
        }}
      >
        <TextField
          label="Admin key"
          isSecret
          value={key}
          set={setKey}
          required
          hint="It is exchanged for a session of eight hours and kept nowhere. turnwise gateway keys add --admin NAME makes one."
        />
        {error ? <Failed error={error} /> : null}
        <button type="submit">Sign in</button>
      </form>
    </main>
  );
}

function Page() {
  const [session, setSession] = useState<Session | null>(null);
  const [state, setState] = useState<"asking" | "out" | "in">("asking");
  const [error, setError] = useState("");
  const begin = (told: Session): void => {
    setWord(told.csrf);
    setSession(told);
    setError("");
    setState("in");
  };
  const signIn = async (key: string): Promise<void> => begin(await call<Session>("POST", "/page/session", { key }));
  const end = (why: string): void => {
    setWord("");
    setSession(null);
    setError(why);
    setState("out");
  };
  useEffect(() => {
    onSignedOut(() => end("The session has ended."));
    // A key of one use stands behind `#`, which no browser sends; it leaves the address before anything else happens.
    const once = /^#once=([\w-]{20,})$/.exec(window.location.hash)?.[1];
    if (once !== undefined) window.history.replaceState(null, "", "/");
    const first = once === undefined ? call<Session>("GET", "/page/session").then(begin) : signIn(once);
    first.catch((failed: unknown) => {
      const isNew = failed instanceof Refused && failed.status === 401 && once === undefined;
      end(isNew ? "" : said(failed));
    });
  }, []);
  const signOut = (): void => {
    call("DELETE", "/page/session").then(
      () => end(""),
      (failed: unknown) => end(said(failed)),
    );
  };
  if (state === "asking") return <main class="door" aria-busy="true" />;
  if (state === "out" || session === null) return <SignIn key={error} error={error} signIn={signIn} />;
  return <Views session={session} signOut={signOut} />;
}

const place = document.getElementById("page");
if (place !== null) render(<Page />, place);
