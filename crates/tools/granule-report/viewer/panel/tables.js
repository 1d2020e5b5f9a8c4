// What is said in words: the verdict, what other settings would have done, and what is known of the run.
import { byId, copy, element, fillFigures } from "../base/dom.js";
import { formatBytes, formatCount, formatCounted, formatShort } from "../base/format.js";

/** Kinds of refused requests that get a button at the top; all requests are in the panel about the run. */
const MOST_BUTTONS = 3;

/** Fills the top: what the run came to, and where requests were refused. `go` shows a moment. */
export function fillVerdict({ verdict, refusals }, go) {
  const kinds = new Map();
  for (const refusal of refusals) {
    const kind = `${refusal.size} ${refusal.place}`;
    if (!kinds.has(kind)) kinds.set(kind, []);
    kinds.get(kind).push(refusal);
  }
  const buttons = [...kinds.values()].slice(0, MOST_BUTTONS).map((kind) => refusalButton(kind, go));
  byId("verdict").hidden = !verdict && buttons.length === 0;
  byId("verdict").append(element("p", { text: verdict }), ...buttons);
  if (kinds.size <= MOST_BUTTONS) return;
  const more = `The panel Run has ${formatCounted(kinds.size - MOST_BUTTONS, "other kind")}.`;
  byId("verdict").append(element("p", { class: "soft", text: more }));
}

/** Shows the requests of a kind, one after the other. */
function refusalButton(kind, go) {
  const [{ size, why }] = kind;
  const times = kind.length > 1 ? ` ${formatCount(kind.length)} times` : "";
  const text = `${formatBytes(size)} refused${times}${why ? `: ${why}` : ""}`;
  const title = kind.length > 1 ? "Show this moment; press again for the next one" : "Show this moment";
  let next = 0;
  const onclick = () => {
    go(kind[next].at);
    next = (next + 1) % kind.length;
  };
  return element("button", { class: "refusal", "data-testid": "refusal", text, title, onclick });
}

/** The devices of the file, in place of the heading where there are several. */
export function fillDevices(devices, chosen) {
  byId("title").hidden = devices.length > 1;
  byId("device").hidden = devices.length < 2;
  byId("device").append(...devices.map((text, value) => element("option", { text, value, selected: value === chosen ? "" : null })));
  byId("device").addEventListener("change", ({ target }) => {
    window.location.hash = `device=${target.value}`;
  });
}

/** Says what the chart's lines are. */
export function fillLines({ spans, capacity, refusals }) {
  const lines = [
    ["live", "least live in a column"],
    ...(spans > 0 ? [["reserved", "reserved"]] : []),
    ...(capacity ? [["capacity", "capacity"]] : []),
    ...(refusals.length > 0 ? [["refused", "refused"]] : []),
  ];
  const entries = lines.map(([kind, text]) => element("span", {}, [element("i", { class: `line ${kind}` }), text]));
  byId("chart-lines").append(...entries);
}

/** Fills the what-if panel. */
export function fillWhatIf({ summary, devices }) {
  const panel = byId("panel-whatif");
  const text = summary || (devices.length === 0 ? NOT_ASKED : "");
  if (text) panel.append(element("p", { text, "data-testid": "whatif-summary" }));
  for (const { verdict, steps, rows } of devices) {
    panel.append(element("h3", { text: verdict }));
    if (steps.length > 0) panel.append(stepsRow(steps.join("\n")));
    panel.append(whatIfTable(rows));
  }
}

function whatIfTable(rows) {
  const head = ["Setting", "Outcome", "Reserved", "Driver"].map((text, i) =>
    element("th", { text, class: i > 1 ? "number" : "", scope: "col" }),
  );
  const body = rows.map((row) =>
    element("tr", { class: row.recommended ? "best" : "" }, [
      element("td", {}, breakable(row.name)),
      element("td", { text: outcome(row), class: row.refused > 0 ? "no" : "" }),
      element("td", { text: formatBytes(row.reserved_peak), class: "number" }),
      element("td", { text: formatShort(row.driver_ns), class: "number" }),
    ]),
  );
  return element("table", { "data-testid": "whatif-table" }, [
    element("thead", {}, [element("tr", {}, head)]),
    element("tbody", {}, body),
  ]);
}

/** A setting's name, which may go on in the next line behind its signs. */
function breakable(name) {
  return name.split(/(?<=[_:,=])/).flatMap((part) => [part, element("wbr")]);
}

const NOT_ASKED = "Not worked out for this page. The command granule whatif tries other settings on the same file.";

function outcome({ refused, retries }) {
  if (refused > 0) return `${formatCount(refused)} refused`;
  return retries > 0 ? `fits, ${retries === 1 ? "1 retry" : `${formatCount(retries)} retries`}` : "fits";
}

function stepsRow(text) {
  const button = element("button", { text: "Copy", onclick: () => copy(text, button) });
  return element("p", { class: "row" }, [element("code", {}, breakable(text)), button]);
}

/** Fills the panel about the run. `go` shows a moment. */
export function fillRun(about, go) {
  const panel = byId("panel-run");
  const figures = element("dl", { class: "figures" });
  fillFigures(figures, [
    ["Entries", formatCount(about.length)],
    ["Allocations", formatCount(about.allocations)],
    ["Live at most", formatBytes(about.most.bytes)],
    ...(about.spans > 0 ? [["Reserved at most", formatBytes(about.reservedMost.bytes)]] : []),
    ...(about.capacity ? [["Capacity", formatBytes(about.capacity)]] : []),
    ["Iterations", formatCount(about.iterations.length)],
    ["Refused requests", formatCount(about.refusals.length)],
    ...about.facts,
  ]);
  panel.append(figures);
  if (about.remarks.length > 0) {
    panel.append(element("h3", { text: "What is not exact" }));
    panel.append(...about.remarks.map((text) => element("p", { class: "soft", text })));
  }
  const marks = [
    ["Refused requests", about.refusals.map(({ at, size, place, why }) => [at, [formatBytes(size), place, why].filter(Boolean).join(" · ")])],
    ["Notes", about.notes],
    ["Iterations", about.iterations.map(([at, number]) => [at, `iteration ${number}`])],
  ];
  for (const [heading, list] of marks) {
    if (list.length === 0) continue;
    panel.append(element("h3", { text: heading }));
    panel.append(...list.slice(0, 200).map(([at, text]) => markRow(at, text, go)));
    if (list.length > 200) panel.append(element("p", { class: "soft", text: `and ${formatCount(list.length - 200)} more` }));
  }
}

function markRow(at, text, go) {
  return element("button", { class: "entry", onclick: () => go(at) }, [
    element("span", { class: "name", text }),
    element("span", { class: "soft", text: formatCount(at) }),
  ]);
}
