// Reading sections: base64, compressed, and in them columns of numbers of seven bits a byte.

export function sectionText(id) {
  return document.getElementById(id).textContent;
}

/** A section's text, once the page has been read so far. */
export async function whenThere(id) {
  if (document.readyState === "loading" && !document.getElementById(id)) {
    await new Promise((done) => document.addEventListener("DOMContentLoaded", done, { once: true }));
  }
  return sectionText(id);
}

/** The bytes of a section's text. */
export async function unpack(text) {
  const stream = new Blob([fromBase64(text)]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const packed = atob(text);
  const bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i += 1) bytes[i] = packed.charCodeAt(i);
  return bytes;
}

/** Reads numbers one after the other. Those beyond 2^53 lose their last digits. */
export class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }

  number() {
    const { bytes } = this;
    let byte = bytes[this.at++];
    if (byte < 0x80) return byte;
    let value = byte & 0x7f;
    let scale = 128;
    do {
      byte = bytes[this.at++];
      value += (byte & 0x7f) * scale;
      scale *= 128;
    } while (byte >= 0x80);
    return value;
  }

  /** How many entries follow. Each takes a byte at least: what a damaged page announces is not made room for. */
  count() {
    const count = this.number();
    if (count > this.bytes.length - this.at) throw new RangeError("the page is damaged: make it anew");
    return count;
  }

  step() {
    const coded = this.number();
    return coded % 2 === 0 ? coded / 2 : -(coded + 1) / 2;
  }

  /** Fills an array with numbers. */
  column(into) {
    for (let i = 0; i < into.length; i += 1) into[i] = this.number();
    return into;
  }

  /** Fills an array with numbers that were written as the steps between them. */
  steps(into) {
    let value = 0;
    for (let i = 0; i < into.length; i += 1) {
      value += this.step();
      into[i] = value;
    }
    return into;
  }

  text(decoder) {
    const length = this.number();
    this.at += length;
    return decoder.decode(this.bytes.subarray(this.at - length, this.at));
  }
}
