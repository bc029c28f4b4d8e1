// The shape of an error message: what stays when numbers, ids and quoted texts are taken out. Two
// runs failed alike if their workflow, code and shape are the same.

/** The message with a star for each word that differs between two of a kind. An id is one word, dashes and
 * all: some of its parts may have no digit. */
export function shape(message: string): string {
  return message
    .replace(/"[^"]*"|“[^”]*”|'[^']*'/g, "*")
    .replace(/[\p{L}\p{N}-]*\p{N}[\p{L}\p{N}-]*/gu, "*")
    .replace(/\*(?:[-.:/]?\*)+/g, "*");
}
