// Asking the server. Every question is a GET; a newer one of the same kind ends the older.

const running = new Map();

const GONE = "The inspector no longer answers. Start muntin inspect again, and open the address that it prints.";

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
  }).catch(lost);
  if (answer.status === 401) {
    throw new Refused("This address is no longer valid. Open the one that muntin inspect printed.");
  }
  const told = await answer.json().catch(lost);
  if (!answer.ok) throw new Refused(told.error ?? `The server said ${answer.status}.`);
  return told;
}

// No answer, or the half of one.
function lost(error) {
  throw aborted(error) ? error : new Refused(GONE);
}

export const aborted = (error) => error.name === "AbortError";
