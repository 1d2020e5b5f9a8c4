// The list of what happened around the chosen moment.
import { byId, element, tail } from "../base/dom.js";
import { formatBytes, formatCount } from "../base/format.js";
import { eventsAround } from "../data/events.js";
import { change, state } from "../data/state.js";

/** Entries before and after the moment. */
const REACH = 60;

export class EventList {
  /** `go` shows a moment. */
  constructor(store, texts, go) {
    Object.assign(this, { store, texts, go });
    const moves = [["events-back", -REACH], ["events-on", REACH]];
    for (const [id, by] of moves) byId(id).addEventListener("click", () => go(state.moment + by));
    byId("events").addEventListener("keydown", (event) => {
      const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      const row = by && this.rows[this.rows.indexOf(event.target) + by];
      if (!by) return;
      event.preventDefault();
      event.stopPropagation();
      row?.focus();
      row?.click();
    });
  }

  draw() {
    this.texts.want();
    const events = eventsAround(this.store, state.moment, REACH);
    if (!events) return;
    const [list, panel] = [byId("events"), byId("panel-events")];
    const focused = list.contains(document.activeElement);
    this.rows = events.map((event) => this.row(event));
    list.replaceChildren(...this.rows);
    const here = events.map(({ at }) => at <= state.moment).lastIndexOf(true);
    // Of several events of one entry, the one that was pressed.
    const pressed = events.findIndex((one) => one.at === state.moment && one.life && one.life.index === state.selected?.index);
    const row = this.rows[pressed < 0 ? here : pressed];
    if (!row) return;
    row.setAttribute("aria-current", "true");
    if (focused) row.focus({ preventScroll: true });
    panel.scrollTop = row.offsetTop - panel.offsetTop - panel.clientHeight / 2;
  }

  row({ at, action, size, stream, life, text }) {
    const place = text ?? (life ? this.texts.place(life.site) || this.texts.label(life.label) || "no stack recorded" : "");
    const onclick = () => {
      change({ selected: life ?? null });
      this.go(at);
    };
    const bytes = size === undefined ? "" : formatBytes(size);
    return element("button", { class: "event", title: place, "data-testid": "event", onclick }, [
      element("span", { class: "soft", text: formatCount(at) }),
      element("span", { class: action === "oom" ? "no" : "", text: action }),
      element("span", { text: bytes }),
      tail("soft place", place),
      element("span", { class: "soft", text: stream === undefined ? "" : this.texts.stream(stream) }),
    ]);
  }
}
