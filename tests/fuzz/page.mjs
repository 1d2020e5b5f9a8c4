// The decoder of the page of `granule report`, with sections of any bytes: it ends soon, with columns no longer than the section,
// or with an error. V8's own coverage says which code an input reaches; inputs that reach something new are changed further.
//
//   node tests/fuzz/page.mjs --seconds 120          from the kept inputs on
//   node tests/fuzz/page.mjs --seconds 120 --keep   and keeps those that reach something new
//   node tests/fuzz/page.mjs --input FILE           one input
import { Session } from "node:inspector";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { deflateRawSync } from "node:zlib";
import { LIFE_COLUMNS, Store } from "../../crates/tools/granule-report/viewer/data/store.js";
import { Texts } from "../../crates/tools/granule-report/viewer/data/texts.js";
import { momentOf } from "../../crates/tools/granule-report/viewer/data/moment.js";

const CORPUS = new URL("corpus/page.bin", import.meta.url);
const VIEWER = "/granule-report/viewer/";
const LONGEST = 2048;
/** A section of so few bytes is read at once. */
const MOST_MILLISECONDS = 1000;
const SECTIONS = ["classes", "level-0-0", "interval-0-0", "texts"];
const ABOUT = { devices: ["one"], addressShift: 9, addressBase: "4096", intervals: [[0, 0]], ways: [{ names: ["a", "b"] }], leaf: 6 };

const sections = new Map();
globalThis.document = { readyState: "complete", getElementById: (id) => ({ textContent: sections.get(id) ?? "" }) };

function put(id, bytes) {
  sections.set(id, deflateRawSync(bytes, { level: 1 }).toString("base64"));
}

function ensure(holds, what) {
  if (!holds) throw new Error(`broken: ${what}`);
}

/** Waits for what a store is asked for. */
async function wanted(store, ask) {
  let reading;
  store.read = (...all) => (reading = Store.prototype.read.apply(store, all));
  ask();
  await reading;
  return ask();
}

/** Reads what the page would read. */
async function decode(input) {
  const section = SECTIONS[(input[0] ?? 0) % SECTIONS.length];
  const bytes = input.subarray(1);
  for (const id of SECTIONS) put(id, new Uint8Array(16));
  put("about", Buffer.from(JSON.stringify(ABOUT)));
  put(section, bytes);
  const store = new Store(() => {});
  await store.open();
  if (section === "texts") {
    const texts = new Texts(store, () => {});
    await texts.want();
    for (let site = 0; site <= texts.siteNode.length; site += 1) {
      ensure(texts.siteStack(site).length <= bytes.length, "a stack is longer than the section");
    }
    ensure(texts.strings.length <= bytes.length && texts.frameName.length <= bytes.length, "columns without bytes");
  } else {
    const tile = await wanted(store, () => (section === "level-0-0" ? store.tile(0, 0) : store.interval(0, 0)));
    ensure(tile.lives.count <= bytes.length + 16, "columns without bytes");
    for (const name of LIFE_COLUMNS) ensure(tile.lives[name].length === tile.lives.count, `${name} has another length`);
    if (section !== "level-0-0") ensure(momentOf(store, 1) !== null, "there is a moment");
  }
}

function unpack(packed) {
  const inputs = [];
  for (let at = 0; at < packed.length; ) {
    const end = at + 4 + packed.readUInt32LE(at);
    inputs.push(new Uint8Array(packed.subarray(at + 4, end)));
    at = end;
  }
  return inputs;
}

function pack(inputs) {
  const length = (input) => Buffer.from(Uint32Array.of(input.length).buffer);
  return Buffer.concat(inputs.flatMap((input) => [length(input), Buffer.from(input)]));
}

const session = new Session();
session.connect();
const post = (method, parameters) =>
  new Promise((done, fail) => session.post(method, parameters, (error, answer) => (error ? fail(error) : done(answer))));

/** How often each piece of the viewer ran since the last time, by powers of two. */
async function reached() {
  const { result } = await post("Profiler.takePreciseCoverage");
  const found = [];
  for (const script of result.filter(({ url }) => url.includes(VIEWER))) {
    for (const { ranges } of script.functions) {
      for (const { startOffset, endOffset, count } of ranges) {
        if (count) found.push(`${script.scriptId} ${startOffset} ${endOffset} ${Math.ceil(Math.log2(count))}`);
      }
    }
  }
  return found;
}

/** Numbers that are the same each time. */
let seed = 7;
function below(bound) {
  seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
  return Math.floor((seed / 2 ** 32) * bound);
}

function changed(input, others) {
  let bytes = Array.from(input);
  for (let n = 1 + below(4); n > 0; n -= 1) {
    const at = below(bytes.length + 1);
    const how = below(5);
    if (how === 0) bytes.splice(at, 0, below(256));
    else if (how === 1) bytes.splice(at, 1 + below(4));
    else if (how === 2) bytes.splice(at, 0, ...others[below(others.length)].slice(0, 64));
    else if (at < bytes.length) bytes[at] = how === 3 ? below(256) : [0, 1, 127, 128, 255][below(5)];
  }
  return Uint8Array.from(bytes.slice(0, LONGEST));
}

async function main() {
  const option = (name) => process.argv.indexOf(name);
  if (option("--input") > 0) return decode(new Uint8Array(readFileSync(process.argv[option("--input") + 1])));
  const seconds = option("--seconds") > 0 ? Number(process.argv[option("--seconds") + 1]) : 10;
  await post("Profiler.enable");
  await post("Profiler.startPreciseCoverage", { callCount: true, detailed: true });
  const kept = existsSync(CORPUS) ? unpack(readFileSync(CORPUS)) : [];
  const waiting = [...kept, ...SECTIONS.map((_, n) => Uint8Array.of(n, 1, 1, 1, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1))];
  const [known, corpus, began] = [new Set(), [], Date.now()];
  let runs = 0;
  while (waiting.length > 0 || Date.now() - began < seconds * 1000) {
    const input = waiting.pop() ?? changed(corpus[below(corpus.length)], corpus);
    const from = Date.now();
    try {
      await decode(input);
    } catch (error) {
      if (!(error instanceof Error) || error.message.startsWith("broken: ")) return finding(input, error);
    }
    if (Date.now() - from > MOST_MILLISECONDS) return finding(input, new Error(`it took ${Date.now() - from} ms`));
    runs += 1;
    const fresh = (await reached()).filter((one) => !known.has(one));
    if (fresh.length > 0) {
      fresh.forEach((one) => known.add(one));
      corpus.push(input);
    }
  }
  const [took, size] = [(Date.now() - began) / 1000, pack(corpus).length];
  console.log(`page: ${runs} runs, ${Math.round(runs / took)}/s, ${known.size} pieces reached, ${corpus.length} inputs of ${size} bytes`);
  if (option("--keep") > 0) writeFileSync(CORPUS, pack(corpus));
}

function finding(input, error) {
  const file = fileURLToPath(new URL(`findings/page-${Date.now()}`, import.meta.url));
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, input);
  console.log(`page: ${error.stack}\nAgain: node tests/fuzz/page.mjs --input ${file}`);
  process.exitCode = 1;
}

await main();
