// Finding allocations: by what is in their stack or label, by size, by address.
import { byId, element, tail } from "../base/dom.js";
import { formatBytes, formatCount, formatCounted, parseBytes } from "../base/format.js";
import { change, lifeAt } from "../data/state.js";

/** Allocations listed at most; the search goes on to count the others. */
const MOST_LISTED = 200;
const MOST_SITES = 100;

/** What a text asks for, or `null` if it asks for nothing. */
export function parseQuery(text) {
  const trimmed = text.trim();
  if (!trimmed) return null;
  if (/^0x[0-9a-f]+$/i.test(trimmed)) return { kind: "address", value: BigInt(trimmed) };
  const compared = /^(<=|>=|<|>|=)?\s*([0-9].*)$/.exec(trimmed);
  const bytes = compared ? parseBytes(compared[2]) : NaN;
  if (!Number.isNaN(bytes)) return { kind: "size", sign: compared[1] ?? "=", value: bytes };
  return { kind: "text", value: trimmed.toLowerCase() };
}

export class Search {
  constructor(store, texts, show) {
    Object.assign(this, { store, texts, show });
    this.run = 0;
  }

  /** Begins a search; the one before ends. Results are shown as they come. */
  async start(text) {
    this.run += 1;
    const run = this.run;
    const query = parseQuery(text);
    const results = byId("search-results");
    delete results.dataset.found;
    results.replaceChildren();
    this.say("");
    change({ sites: null });
    if (!query) return;
    this.say("searching…");
    // Whatever is found is listed with its call site.
    await this.texts.want();
    if (run !== this.run) return;
    if (query.kind === "text") await this.sites(query.value, run);
    else await this.allocations(this.test(query), run);
    // What the finished list is of, for who reads the page by program.
    if (run === this.run) results.dataset.found = text;
  }

  say(text) {
    byId("search-status").textContent = text;
  }

  test({ kind, sign, value }) {
    if (kind === "address") {
      const offset = Number(value - this.store.addressBase);
      return (lives, i) => lives.address[i] <= offset && offset < lives.address[i] + lives.size[i];
    }
    const tests = {
      "=": (size) => size === value,
      "<": (size) => size < value,
      "<=": (size) => size <= value,
      ">": (size) => size > value,
      ">=": (size) => size >= value,
    };
    return (lives, i) => tests[sign](lives.size[i]);
  }

  /** Call sites with the text in a function's or file's name, and labels with it. */
  async sites(text, run) {
    const { texts } = this;
    const { strings: has, frames: frameHas } = texts.having(text);
    // A node comes after the one outside of it, so one pass is enough.
    const nodeHas = new Uint8Array(texts.nodeFrame.length + 1);
    texts.nodeFrame.forEach((frame, i) => {
      nodeHas[i + 1] = frameHas[frame] || nodeHas[texts.nodeOutside[i]] ? 1 : 0;
    });
    const found = [];
    texts.siteNode.forEach((node, site) => {
      if (nodeHas[node] && texts.siteCount[site] > 0) found.push(site);
    });
    found.sort((a, b) => texts.siteAtPeak[b] - texts.siteAtPeak[a] || texts.siteCount[b] - texts.siteCount[a]);
    const labels = new Set();
    texts.labels.forEach((string, label) => {
      if (has[string]) labels.add(label);
    });
    if (found.length === 0 && labels.size === 0) {
      this.say("Nothing has that in a function's, file's or label's name.");
      return;
    }
    const sites = new Set(found);
    change({ sites: sites.size > 0 ? sites : null });
    const rows = found.slice(0, MOST_SITES).map((site) => this.siteRow(site));
    const heading = element("h3", { text: formatCounted(found.length, "call site") });
    if (found.length > 0) byId("search-results").append(heading, ...rows);
    await this.allocations((lives, i) => sites.has(lives.site[i]) || labels.has(lives.label[i]), run);
  }

  siteRow(site) {
    const { texts } = this;
    const place = texts.place(site);
    const count = `${formatCount(texts.siteCount[site])} ×, up to ${formatBytes(texts.siteLargest[site])}`;
    const peak = texts.siteAtPeak[site] > 0 ? `; ${formatBytes(texts.siteAtPeak[site])} at the peak` : "";
    return element(
      "button",
      { class: "entry", title: `${place}\n${count}${peak}`, onclick: () => change({ sites: new Set([site]) }) },
      [tail("name", place), element("span", { class: "soft", text: count })],
    );
  }

  /** Goes through all allocations, section by section, without keeping the page from drawing. */
  async allocations(test, run) {
    const list = element("div", { "data-testid": "search-allocations" });
    byId("search-results").append(element("h3", { text: "Allocations" }), list);
    const intervals = this.store.about.intervals;
    let [found, bytes] = [0, 0];
    for (let i = 0; i < intervals.length; i += 1) {
      const { lives } = await this.store.once(...intervals[i]);
      if (run !== this.run) return;
      for (let at = 0; at < lives.count; at += 1) {
        if (!test(lives, at)) continue;
        found += 1;
        bytes += lives.size[at];
        if (found <= MOST_LISTED) list.append(this.row(lifeAt(lives, at)));
      }
      const part = i + 1 < intervals.length ? `, ${Math.round((100 * (i + 1)) / intervals.length)} % searched` : "";
      this.say(`${formatCounted(found, "allocation")}, ${formatBytes(bytes)} in all${part}`);
      // The next picture comes first.
      await new Promise((done) => setTimeout(done));
    }
    if (found > MOST_LISTED) list.append(element("p", { class: "soft", text: `The first ${MOST_LISTED} are listed.` }));
  }

  row(life) {
    const where = life.begin === 0 ? "before the history" : `entry ${formatCount(life.begin)}`;
    const place = this.texts.place(life.site);
    return element("button", { class: "entry", "data-testid": "found", onclick: () => this.show(life) }, [
      element("span", { text: formatBytes(life.size) }),
      tail("name soft", place),
      element("span", { class: "soft", text: where }),
    ]);
  }
}
