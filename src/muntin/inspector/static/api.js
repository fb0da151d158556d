// Asking the server. Every question is a GET; a newer one of the same kind ends the older.

const running = new Map();

export class Refused extends Error {}

export async function ask(name, query = {}, kind = null) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined);
  const control = new AbortController();
  if (kind !== null) {
    running.get(kind)?.abort();
    running.set(kind, control);
  }
  const answer = await fetch(`api/${name}?${new URLSearchParams(given)}`, {
    signal: control.signal,
    credentials: "same-origin",
    cache: "no-store",
  });
  if (answer.status === 401) {
    throw new Refused("This address is no longer valid. Open the one that muntin inspect printed.");
  }
  const told = await answer.json();
  if (!answer.ok) throw new Refused(told.error ?? `The server said ${answer.status}.`);
  return told;
}

export const aborted = (error) => error.name === "AbortError";
