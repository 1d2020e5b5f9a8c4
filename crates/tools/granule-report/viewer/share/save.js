// What the reader can keep of a run: the picture, tables of it, and the link.
import { css, palette, SHADES } from "../base/colours.js";
import { byId, copy, element } from "../base/dom.js";
import { formatCount } from "../base/format.js";
import { momentOf } from "../data/moment.js";
import { NEVER } from "../data/store.js";
import { state } from "../data/state.js";
import { csvFile, saveFile } from "./file.js";
import { savePng } from "./picture.js";

/** Fills the dialog. `app` has the pictures, the data and the names. */
export function fillSave(app) {
  const { about } = app;
  const at = (kind) => `${about.title}-entry-${state.moment}${kind}`;
  const table = (kind, rows) => async () => {
    await app.texts.want();
    const now = await chosenMoment(app.store);
    saveFile(at(kind), csvFile(rows(app, now)));
  };
  const entries = [
    ["picture", "Picture (PNG)", "The chart and what is below it, as they are now.", () => savePicture(app, at(".png"))],
    ["live", "Live now (CSV)", "Each allocation at the chosen moment, with its stack.", table("-live.csv", liveRows)],
    ["sites", "Live by call site (CSV)", "Bytes and allocations of each line at that moment.", table("-sites.csv", siteRows)],
    ["link", "Copy the link", "The moment, the colours, the zoom and what is open.", ({ target }) => copy(window.location.href, target)],
  ];
  if (about.whatIf.devices.length > 0) {
    const save = () => saveFile(`${about.title}-settings.csv`, csvFile(settingRows(about.whatIf)));
    entries.splice(3, 0, ["whatif", "Other settings (CSV)", "The table of what other settings would have done.", save]);
  }
  const rows = entries.map(([id, text, what, onclick]) =>
    element("p", { class: "row" }, [
      element("button", { text, onclick, "data-testid": `save-${id}` }),
      element("span", { class: "soft", text: what }),
    ]),
  );
  const held = about.contents.map(({ what, count, example }) =>
    element("li", {}, [`${formatCount(count)} ${what[count === 1 ? 0 : 1]}, such as `, element("code", { text: example })]),
  );
  const box = [
    element("h3", { text: "Before you send the page: it holds" }),
    element("ul", { "data-testid": "contents" }, held),
    element("p", { class: "soft", text: "Made with granule report --anonymous, a page has placeholders in the place of paths, names and texts." }),
  ];
  const close = element("button", { text: "Close", onclick: () => byId("save").close() });
  byId("save").append(element("h2", { text: "Save or share" }), ...rows, ...box, close);
  // The next time another link is to be copied.
  byId("save").addEventListener("close", () => {
    entries.forEach(([, text], i) => {
      rows[i].querySelector("button").textContent = text;
    });
  });
}

/** What there is at the chosen moment, once it is unpacked. */
async function chosenMoment(store) {
  for (;;) {
    const now = momentOf(store, state.moment);
    if (now) return now;
    await new Promise((done) => requestAnimationFrame(done));
  }
}

function savePicture({ about, chart, look, map, flame }, name) {
  const flames = state.below === "flame";
  const way = about.ways[state.way];
  const { theme } = look;
  const keys = way.names.map((category, index) => [css(look.palette[index][SHADES >> 1]), category]);
  if (about.spans > 0) keys.push([theme.reserved, "reserved"]);
  if (about.capacity) keys.push([theme.capacity, "capacity"]);
  if (about.refusals.length > 0) keys.push([theme.alarm, "refused"]);
  keys.push([theme.accent, "the chosen moment"]);
  const shown = `entries ${formatCount(state.from)} to ${formatCount(Math.min(state.to, about.length))}`;
  savePng(name, {
    title: about.title,
    subtitle: `by ${way.title.toLowerCase()} · ${shown} · at ${chart.store.describe(state.moment)}`,
    keys,
    parts: [
      { heading: "Memory over time", canvas: chart.canvas },
      flames ? { heading: "Live, by call stack: width is bytes, colour is file", canvas: flame.canvas }
        : { heading: "Address space: grey is free", canvas: map.canvas },
    ],
    theme,
  });
}

/** What is live at the chosen moment, and what waits for another stream. Addresses are as people write them. */
function liveRows({ store, texts }, now) {
  const head = ["bytes", "address", "state", "begin", "end", "stream", "pool", "label", "place", "stack"];
  const stacks = new Map();
  const stackOf = (site) => stacks.get(site) ?? stacks.set(site, stackText(texts, site)).get(site);
  const rows = Array.from({ length: now.lives.count }, (_, i) => {
    const { size, address, begin, end, stream, pool, label, site } = now.lives;
    return [
      size[i],
      store.formatAddress(address[i]),
      now.waiting[i] ? "waiting" : "live",
      begin[i],
      end[i] === NEVER ? "" : end[i],
      texts.stream(stream[i]),
      texts.pool(pool[i]),
      texts.label(label[i]),
      texts.place(site[i]),
      stackOf(site[i]),
    ];
  });
  return [head, ...rows];
}

/** The outermost frame first, as tools for stacks have it. */
function stackText(texts, site) {
  const frames = texts.siteStack(site).reverse();
  return frames.map(({ name, file, line }) => `${name} (${file}:${line})`).join(";");
}

function siteRows({ texts }, now) {
  const sites = new Map();
  for (let i = 0; i < now.lives.count; i += 1) {
    if (now.waiting[i]) continue;
    const place = texts.place(now.lives.site[i]) || "no stack recorded";
    const sum = sites.get(place) ?? { bytes: 0, count: 0 };
    sum.bytes += now.lives.size[i];
    sum.count += 1;
    sites.set(place, sum);
  }
  const sorted = [...sites].sort(([, a], [, b]) => b.bytes - a.bytes);
  return [["place", "bytes", "allocations"], ...sorted.map(([place, { bytes, count }]) => [place, bytes, count])];
}

function settingRows({ devices }) {
  const rows = devices.flatMap(({ verdict, rows: settings }) =>
    settings.map((row) => [verdict, row.name, row.refused, row.retries, row.reserved_peak, row.driver_ns]),
  );
  return [["device", "setting", "refused", "retries", "reserved_bytes", "driver_ns"], ...rows];
}
