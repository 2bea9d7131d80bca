// How figures and times read. Everything is text for text nodes: nothing here is markup.

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

export function count(value: number): string {
  return whole.format(value);
}

export function short(value: number): string {
  return new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 }).format(value);
}

/** Dollars: cents of large sums, and two places that say something of small ones. */
export function usd(value: number | string): string {
  const amount = Number(value);
  if (amount === 0) return "$0";
  const places = Math.abs(amount) >= 1 ? 2 : Math.min(8, 1 - Math.floor(Math.log10(Math.abs(amount))));
  return `$${new Intl.NumberFormat("en-US", { minimumFractionDigits: 2, maximumFractionDigits: Math.max(2, places) }).format(amount)}`;
}

export function seconds(value: number | null): string {
  if (value === null) return "–";
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  return `${value.toFixed(value < 10 ? 2 : 1)} s`;
}

const two = (value: number): string => String(value).padStart(2, "0");

/** By the reader's own clock. */
export function clock(at: number): string {
  const time = new Date(at * 1000);
  return `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
}

export function dayOf(at: number): string {
  const time = new Date(at * 1000);
  return time.getHours() === 0 ? `${two(time.getMonth() + 1)}-${two(time.getDate())}` : "";
}

export function moment(at: number | string): string {
  const time = new Date(typeof at === "number" ? at * 1000 : at);
  if (Number.isNaN(time.getTime())) return "";
  const day = `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
  return `${day} ${two(time.getHours())}:${two(time.getMinutes())}`;
}

export function many(value: number, one: string): string {
  return `${count(value)} ${one}${value === 1 ? "" : "s"}`;
}
