// Calls to the server that the page came from. The word that goes with each change lives in memory alone.

export class Refused extends Error {
  constructor(readonly status: number, message: string, readonly waitS: number) {
    super(message);
  }
}

let word = "";

export function setWord(told: string): void {
  word = told;
}

export async function call<T>(method: string, path: string, body?: unknown): Promise<T> {
  const headers: Record<string, string> = method === "GET" ? {} : { "x-turnwise-page": word };
  if (body !== undefined) headers["content-type"] = "application/json";
  const sent = body === undefined ? null : JSON.stringify(body);
  const response = await fetch(path, { method, headers, body: sent, cache: "no-store", redirect: "error" });
  const told: unknown = await response.json().catch(() => ({}));
  if (!response.ok) {
    const error = (told as { error?: { message?: string } }).error;
    const waitS = Number(response.headers.get("retry-after") ?? 0);
    throw new Refused(response.status, error?.message ?? `the server answered ${response.status}`, waitS);
  }
  return told as T;
}

export function said(error: unknown): string {
  return error instanceof Refused ? error.message : "the gateway cannot be reached";
}
