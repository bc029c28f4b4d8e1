// The same action on the command line and with curl, ready to paste into a shell.
import { apiUrl } from "../api/client";

/** A word as a POSIX shell reads it. */
export function quote(text: string): string {
  return /^[A-Za-z0-9_./:=@%+,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** A command of words. */
export const cli = (...words: string[]): string => words.map(quote).join(" ");

/** A call with curl. The token comes from the environment, so that it is in no history. */
export function curl(method: string, path: string, body?: string, headers: Record<string, string> = {}): string {
  const lines = [`curl -X ${method} ${quote(apiUrl(path))}`, `-H "Authorization: Bearer $ONWARD_TOKEN"`];
  for (const [name, value] of Object.entries(headers)) lines.push(`-H ${quote(`${name}: ${value}`)}`);
  if (body !== undefined) lines.push("-H 'Content-Type: application/json'", `-d ${quote(body)}`);
  return lines.join(" \\\n  ");
}
