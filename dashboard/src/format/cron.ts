// A cron pattern in words, for the patterns that people write. Others are shown as they are.

const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const SHORT = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const pad = (text: string): string => text.padStart(2, "0");
const isNumber = (text: string): boolean => /^[0-9]+$/.test(text);

/** The pattern in words, or `null` where there are none for it. */
export function cronWords(cron: string): string | null {
  const fields = cron.trim().toLowerCase().split(/\s+/);
  const [minute, hour, date, month, weekday] = (fields.length === 6 && fields[0] === "0" ? fields.slice(1) : fields) as [string, string, string, string, string];
  if (fields.length < 5 || fields.length > 6 || (fields.length === 6 && fields[0] !== "0") || month !== "*") return null;
  const time = timeWords(minute, hour);
  const on = dateWords(date, weekday);
  if (time === null || on === null) return null;
  const every = time.startsWith("every");
  if (on === "") return every ? capital(time) : `Every day ${time}`;
  return every ? `${capital(time)}, ${on}` : `${capital(on)} ${time}`;
}

function timeWords(minute: string, hour: string): string | null {
  const step = /^\*\/([0-9]+)$/;
  if (minute === "*" && hour === "*") return "every minute";
  if (step.test(minute) && hour === "*") return `every ${minute.slice(2)} minutes`;
  if (!isNumber(minute)) return null;
  if (hour === "*") return minute === "0" ? "every hour" : `every hour at ${pad(minute)} past`;
  if (step.test(hour)) return `every ${hour.slice(2)} hours${minute === "0" ? "" : ` at ${pad(minute)} past`}`;
  const hours = hour.split(",");
  return hours.every(isNumber) ? `at ${hours.map((one) => `${pad(one)}:${pad(minute)}`).join(", ")}` : null;
}

function dateWords(date: string, weekday: string): string | null {
  if (date === "*" && (weekday === "*" || weekday === "?")) return "";
  if (date === "*" || date === "?") return weekdayWords(weekday);
  if (weekday !== "*" && weekday !== "?") return null;
  if (date === "l") return "on the last day of the month";
  return isNumber(date) ? `on day ${date} of the month` : null;
}

function weekdayWords(weekday: string): string | null {
  if (weekday === "1-5" || weekday === "mon-fri") return "Monday to Friday";
  const names = weekday.split(",").map(dayName);
  return names.every((name) => name !== null) ? `every ${names.join(" and ")}` : null;
}

function dayName(text: string): string | null {
  const number = isNumber(text) ? Number(text) % 7 : SHORT.indexOf(text.slice(0, 3));
  return DAYS[number] ?? null;
}

const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);
