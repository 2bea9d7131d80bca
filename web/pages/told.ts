// What the server tells, by its own names (src/turnwise/gateway/page_views.py and admin.py).

export interface Session {
  name: string;
  csrf: string;
  can_change: boolean;
  has_tail: boolean;
}

export interface Now {
  now: number;
  open: number | null;
  minutes: { minute: number; requests: number; failed: number }[];
  first_token: { of: number; p50: number | null; p99: number | null };
  upstreams: { name: string; left_alone: boolean }[];
  providers: { provider: string; model: string; requests: number; failed: number }[];
}

export interface Sum {
  name: string;
  requests: number;
  usd: string;
  unknown: number;
  input_tokens: number;
  output_tokens: number;
}

export interface Spend {
  by: "team" | "purpose";
  day: Sum[];
  model: Sum[];
  team?: Sum[];
  purpose?: Sum[];
}

export interface Repair {
  kind: string;
  family: string;
  model: string;
  times: number;
  requests: number;
  last_day: string;
  whose: string;
  rule: string;
  source: string;
  example: string;
}

export interface Repairs {
  providers: { provider: string; requests: number; repaired: number; kinds: Repair[] }[];
}

export interface Failures {
  days: number;
  rows: {
    at: number;
    request: string;
    session: string;
    provider: string;
    model: string;
    purpose: string;
    outcome: string;
    seconds: number | null;
  }[];
}

export interface Owner {
  name: string;
  added: string;
  user: string;
  team: string;
  rights: string;
  models: string[];
  limits: Record<string, string>;
  zone: string;
  unknown_price: string;
  expires: string;
  revoked: string;
  last_used: string;
}

export interface Owners {
  keys: Owner[];
  users: Owner[];
  teams: Owner[];
  budgets: Record<string, Record<string, string>>;
}

export interface Tail {
  at: number;
  request: string;
  client: string;
  family: string;
  kind: string;
  provider: string;
  model: string;
  status: number;
  end: string;
  seconds: number;
  requests: number;
  input_tokens: number;
  output_tokens: number;
  repairs: Record<string, number>;
  fault: string;
}

export const PERIODS = ["minute", "day", "week", "month"];
export const LIMITS = [...PERIODS.flatMap((period) => ["usd", "tokens", "requests"].map((what) => `${what}/${period}`)), "streams"];
