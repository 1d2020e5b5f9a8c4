// The tables of the panel: what other settings would have done, and what is known of the run.
import { byId, element, fillFigures } from "./dom.js";
import { formatBytes, formatCount } from "./format.js";

/** Fills the what-if panel. */
export function fillWhatIf({ summary, rows }) {
  const panel = byId("panel-whatif");
  const text = summary || NOT_ASKED;
  panel.append(element("p", { text, "data-testid": "whatif-summary" }));
  if (rows.length === 0) return;
  const best = rows.find((row) => row.recommended && row.conf);
  if (best) panel.append(confRow(best.conf));
  const head = ["Setting", "Device", "Outcome", "Held at most", "Retries", "Driver"].map((text, i) =>
    element("th", { text, class: i > 2 ? "number" : "", scope: "col" }),
  );
  const body = rows.map((row) =>
    element("tr", { class: row.recommended ? "best" : "", title: row.conf ?? "" }, [
      element("td", { text: row.name }),
      element("td", { text: row.capacity === null ? "any" : formatBytes(row.capacity) }),
      element("td", { text: outcome(row), class: row.fits ? "" : "no" }),
      element("td", { text: formatBytes(row.reserved_peak), class: "number" }),
      element("td", { text: formatCount(row.retries), class: "number" }),
      element("td", { text: `${(row.driver_ns / 1e6).toFixed(1)} ms`, class: "number" }),
    ]),
  );
  panel.append(
    element("table", { "data-testid": "whatif-table" }, [
      element("thead", {}, [element("tr", {}, head)]),
      element("tbody", {}, body),
    ]),
  );
}

const NOT_ASKED = "Not worked out for this page. The command granule whatif tries other settings on the same file.";

function outcome(row) {
  return row.fits ? "fits" : `${formatCount(row.refused)} refused`;
}

function confRow(conf) {
  const text = `PYTORCH_CUDA_ALLOC_CONF=${conf}`;
  const button = element("button", {
    text: "Copy",
    onclick: async () => {
      await navigator.clipboard?.writeText(text);
      button.textContent = "Copied";
    },
  });
  return element("p", { class: "row" }, [element("code", { text }), button]);
}

/** Fills the panel about the run. `go` shows a moment. */
export function fillRun(about, go) {
  const panel = byId("panel-run");
  const figures = element("dl", { class: "figures" });
  fillFigures(figures, [
    ["Entries", formatCount(about.length)],
    ["Allocations", formatCount(about.allocations)],
    ["Most live", formatBytes(about.most.bytes)],
    ...(about.spans > 0 ? [["Most held", formatBytes(about.reservedMost.bytes)]] : []),
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
    ["Refused requests", about.refusals.map(({ at, size, place }) => [at, `${formatBytes(size)} ${place}`])],
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
