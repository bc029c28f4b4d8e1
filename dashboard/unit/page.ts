// What the modules of a page ask of the browser while they are loaded. A test imports it before them.
Object.assign(globalThis, {
  document: { baseURI: "http://onward.test/", hidden: false, addEventListener: () => undefined, removeEventListener: () => undefined },
  location: new URL("http://onward.test/"),
});
