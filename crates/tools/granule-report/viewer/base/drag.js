// Drags, and turns of the wheel: on any picture, and on charts that show a window.

/** A drag is more than this many pixels; less is a click. */
const STILL = 4;

/** Calls `start`, then `move` with what has been moved since, then `click` if it was none. */
export function onDrag(canvas, { start, move, click }) {
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    canvas.focus({ preventScroll: true });
    const origin = start?.(event);
    let dragged = false;
    const moved = (next) => {
      const [x, y] = [next.clientX - event.clientX, next.clientY - event.clientY];
      dragged ||= Math.hypot(x, y) > STILL;
      if (dragged) move(x, y, origin, next);
    };
    const ended = (last) => {
      canvas.removeEventListener("pointermove", moved);
      canvas.removeEventListener("pointerup", ended);
      canvas.removeEventListener("pointercancel", ended);
      if (!dragged && last.type === "pointerup") click?.(last);
    };
    canvas.addEventListener("pointermove", moved);
    canvas.addEventListener("pointerup", ended);
    canvas.addEventListener("pointercancel", ended);
  });
}

/** How much a turn of the wheel zooms. */
export function factorOf(event) {
  const lines = event.deltaMode === 1 ? 33 : 1;
  // Browsers turn the wheel sideways while shift is held.
  const turned = event.deltaY || event.deltaX;
  return Math.exp(Math.min(Math.max(turned * lines, -300), 300) * 0.0022);
}

/** Has the wheel zoom and drags move the window of a chart. */
export function moveAndZoom(chart, view, click) {
  const { canvas } = chart;
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) && !event.shiftKey;
    if (sideways) view.move(event.deltaX / chart.plot.width);
    else if (event.shiftKey || event.offsetX < chart.plot.left) {
      view.zoomBytes(factorOf(event), chart.bytesAt(event.offsetY));
    } else view.zoom(factorOf(event), chart.placeAt(event.offsetX));
  }, { passive: false });
  onDrag(canvas, {
    start: () => ({ ...view.shown }),
    move: (x, y, before) => {
      const { width, height } = chart.plot;
      const places = (x / width) * (before.to - before.from);
      const bytes = (y / height) * (before.high - before.low);
      view.show(before.from - places, before.to - places);
      view.showBytes(before.low + bytes, before.high + bytes);
    },
    click,
  });
}
