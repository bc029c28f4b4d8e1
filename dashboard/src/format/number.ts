// Numbers and names as people read them.

/** A count with thin spaces between thousands: 12 403. */
export function count(number: number): string {
  return String(Math.round(number)).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
}

/** A count in few characters: 12.4k, 3.1M. */
export function short(number: number): string {
  if (number < 10_000) return count(number);
  if (number < 1_000_000) return `${trim(number / 1000)}k`;
  return `${trim(number / 1_000_000)}M`;
}

const trim = (number: number): string => (number < 100 ? number.toFixed(1).replace(/\.0$/, "") : String(Math.round(number)));

/** A count with its noun: 1 run, 3 runs. */
export const many = (number: number, noun: string, plural = `${noun}s`): string => `${count(number)} ${number === 1 ? noun : plural}`;

/** The end of an id: its random part tells neighbours apart, where its beginning is the time. */
export const shortId = (id: string): string => (id.length > 14 ? id.slice(-8) : id);

/** A share of a whole. */
export function percent(part: number, whole: number): string {
  if (!whole) return "–";
  const share = (part / whole) * 100;
  return share > 0 && share < 1 ? "<1 %" : `${Math.round(share)} %`;
}
