// Call sites with their bytes at each run's peak.
import { byId, element } from "../base/dom.js";
import { formatBytes, formatCount } from "../base/format.js";

/** Rows shown; the saved table has all. */
const MOST_ROWS = 200;

/** What a row's difference is. */
function differenceOf(runs) {
  return runs.length === 2 ? `${runs[1].name} − ${runs[0].name}` : "most − least";
}

export function fillTable({ runs, rows }) {
  const numbers = [...runs.map((run) => run.name), differenceOf(runs)];
  const head = [element("th", { text: "Call site", scope: "col" }), ...numbers.map((text) => element("th", { text, class: "number", scope: "col" }))];
  const body = rows.slice(0, MOST_ROWS).map(({ name, bytes, difference }) =>
    element("tr", { "data-testid": "site" }, [
      element("td", { text: name }),
      ...bytes.map((one) => element("td", { text: one > 0 ? formatBytes(one) : "–", class: "number" })),
      element("td", { text: `${difference > 0 && runs.length === 2 ? "+" : ""}${formatBytes(difference)}`, class: "number" }),
    ]),
  );
  const table = element("table", {}, [element("thead", {}, [element("tr", {}, head)]), element("tbody", {}, body)]);
  byId("sites").append(element("h2", { text: "Live at each run's peak, by call site, the largest difference first" }), table);
  if (rows.length <= MOST_ROWS) return;
  byId("sites").append(element("p", { class: "soft", text: `and ${formatCount(rows.length - MOST_ROWS)} more, which Save table has` }));
}

/** The whole table, for a file. */
export function tableRows({ runs, rows }) {
  const head = ["call_site", ...runs.map((run) => run.name), differenceOf(runs)];
  return [head, ...rows.map(({ name, bytes, difference }) => [name, ...bytes, difference])];
}
