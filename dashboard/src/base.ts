// Where the dashboard is mounted. The server writes it into <base href>.

/** The mount path, with a slash at both ends. */
export const BASE: string = new URL(document.baseURI).pathname.replace(/[^/]*$/, "");

/** The whole address of a path below the mount path. */
export const absolute = (path: string): string => new URL(path.replace(/^\//, ""), new URL(BASE, location.origin)).href;
