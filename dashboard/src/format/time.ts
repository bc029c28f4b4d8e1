// Times and durations as people read them. Pure, but for the time zone of the browser.

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** A duration in at most two units: 84 ms, 3.2 s, 4 m 12 s, 2 h 5 m, 3 d 4 h. */
export function duration(ms: number): string {
  const whole = Math.max(0, ms);
  if (whole < 0.5) return "0 ms";
  if (whole < SECOND) return `${whole < 10 && whole % 1 ? whole.toFixed(1) : Math.round(whole)} ms`;
  if (whole < 10 * SECOND) return `${(Math.floor(whole / 10) / 100).toFixed(whole % SECOND ? 2 : 0)} s`;
  if (whole < MINUTE) return `${(Math.floor(whole / 100) / 10).toFixed(1)} s`;
  if (whole < HOUR) return two(whole, MINUTE, "m", SECOND, "s");
  if (whole < DAY) return two(whole, HOUR, "h", MINUTE, "m");
  return two(whole, DAY, "d", HOUR, "h");
}

function two(ms: number, big: number, bigName: string, small: number, smallName: string): string {
  const rest = Math.floor((ms % big) / small);
  return rest ? `${Math.floor(ms / big)} ${bigName} ${rest} ${smallName}` : `${Math.floor(ms / big)} ${bigName}`;
}

/** What a `Date` can hold, before and after 1970: the farthest ends of a calendar. */
export const TIME_MAX = 8.64e15;

/** Said of a time that no calendar has; stores hold such times for what is never due. */
export const NEVER = "never";

/** Whether a calendar has this time. */
export const isTime = (at: number): boolean => Math.abs(Number(at)) <= TIME_MAX;

/** How long ago or ahead, in one unit: now, 12 s ago, in 4 m. */
export function relative(at: number, now: number): string {
  if (!isTime(at)) return NEVER;
  const distance = Math.abs(now - at);
  if (distance < 1500) return "now";
  const text = one(distance);
  return at > now ? `in ${text}` : `${text} ago`;
}

function one(ms: number): string {
  if (ms < 90 * SECOND) return `${Math.round(ms / SECOND)} s`;
  if (ms < 90 * MINUTE) return `${Math.round(ms / MINUTE)} m`;
  if (ms < 36 * HOUR) return `${Math.round(ms / HOUR)} h`;
  return `${Math.round(ms / DAY)} d`;
}

const pad = (number: number, width = 2): string => String(number).padStart(width, "0");

/** The local date and time, always as wide: 2026-11-15 19:04:31. */
export function local(at: number): string {
  if (!isTime(at)) return NEVER;
  const date = new Date(at);
  return `${day(at)} ${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
}

export function day(at: number): string {
  if (!isTime(at)) return NEVER;
  const date = new Date(at);
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
}

/** The local time of day, to the millisecond. */
export function clock(at: number): string {
  if (!isTime(at)) return NEVER;
  const date = new Date(at);
  return `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}.${pad(date.getMilliseconds(), 3)}`;
}

/** The time in UTC, as in logs. */
export const utc = (at: number): string => (isTime(at) ? new Date(at).toISOString() : NEVER);

const WEEKDAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];

/** A time to come, in words: today at 18:00, tomorrow at 03:00, Monday 23 November at 03:00. */
export function inWords(at: number, now: number): string {
  if (!isTime(at)) return NEVER;
  const date = new Date(at);
  const seconds = date.getSeconds() ? `:${pad(date.getSeconds())}` : "";
  const time = `${pad(date.getHours())}:${pad(date.getMinutes())}${seconds}`;
  if (day(at) === day(now)) return `today at ${time}`;
  if (day(at) === day(now + DAY)) return `tomorrow at ${time}`;
  const year = date.getFullYear() === new Date(now).getFullYear() ? "" : ` ${date.getFullYear()}`;
  return `${WEEKDAYS[date.getDay()]} ${date.getDate()} ${MONTHS[date.getMonth()]}${year} at ${time}`;
}

/** The name of the browser's time zone. */
export const zone = (): string => Intl.DateTimeFormat().resolvedOptions().timeZone;
