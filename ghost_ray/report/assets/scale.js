"use strict";
// Numbers, texts and scales of charts: where a value is drawn and how it is written.
const Scale = (() => {
  const FONT = 12;
  const ruler = document.createElement("canvas").getContext("2d");
  const measure = (text) => {
    ruler.font = `${FONT}px ${getComputedStyle(document.body).fontFamily}`;
    return ruler.measureText(text).width;
  };
  const shorten = (text, room) => {
    if (measure(text) <= room) return text;
    let kept = text.length;
    while (kept > 1 && measure(`${text.slice(0, kept)}…`) > room) kept -= 1;
    return `${text.slice(0, kept)}…`;
  };

  // ---- numbers as people read them ---------------------------------------------------------------------------------
  const digits = (value, count) => {
    const size = Math.abs(value);
    if (size < 1e-12) return "0";
    if (size < 1e-4 || size >= 1e7) return value.toExponential(Math.min(count - 1, 2)).replace("-", "−").replace("e+", "e");
    return Number(value.toPrecision(count)).toLocaleString("en", { maximumFractionDigits: 9 }).replace("-", "−");
  };
  const format = (axis, value, count = 4) => {
    if (axis.scale === "category") return value;
    if (axis.one_minus) return digits(1 - value, 5);
    return axis.percent ? `${digits(100 * value, count)}\u00a0%` : digits(value, count);
  };

  // ---- scales ------------------------------------------------------------------------------------------------------
  const niceStep = (span, parts) => {
    const rough = span / Math.max(parts, 1);
    const power = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough * 0.999) * power;
  };
  const linearTicks = ([low, high], parts) => {
    const step = niceStep(high - low, parts);
    const first = Math.ceil(low / step - 1e-9);
    const count = Math.floor(high / step + 1e-9) - first + 1;
    return Array.from({ length: Math.max(count, 0) }, (_, i) => Number(((first + i) * step).toPrecision(12)));
  };
  const logTicks = ([low, high]) => {
    const [first, last] = [Math.ceil(low - 1e-9), Math.floor(high + 1e-9)];
    const factors = last - first >= 2 ? [1] : [1, 2, 5];
    const ticks = [];
    for (let power = Math.floor(low); power <= last; power += 1) {
      for (const factor of factors) {
        const at = power + Math.log10(factor);
        if (at >= low - 1e-9 && at <= high + 1e-9) ticks.push(factor * 10 ** power);
      }
    }
    return ticks;
  };
  const oneMinusTicks = ([low, high]) => {
    const shown = (values) => values.filter((v) => Math.log10(v) >= low && Math.log10(v) <= high);
    const decades = shown([1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.9]);
    return decades.length > 3 ? decades : shown([1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 0.6, 0.9]);
  };

  // The ends of an axis, in its own measure (logarithms on a logarithmic one).
  const domain = (axis, values, room, zoomed) => {
    if (zoomed) return zoomed;
    const log = axis.scale === "log";
    if (axis.range) return log ? axis.range.map(Math.log10) : axis.range;
    const known = values.filter((value) => value !== null && (!log || value > 0));
    if (known.length === 0) return log ? [-1, 0] : [0, 1];
    if (log) {
      const ends = [Math.log10(Math.min(...known)), Math.log10(Math.max(...known))];
      return room.exact ? ends : [Math.floor(ends[0]), Math.ceil(ends[1])];
    }
    let [low, high] = [Math.min(...known), Math.max(...known)];
    if (room.zero) [low, high] = [Math.min(low, 0), Math.max(high, 0)];
    if (low === high) [low, high] = room.zero ? [0, 1] : [low - 0.5, high + 0.5];
    if (room.exact) return [low - room.pad * (high - low), high + room.pad * (high - low)];
    const step = niceStep(high - low, 5);
    return [Math.floor(low / step + 1e-9) * step, Math.ceil(high / step - 1e-9) * step];
  };
  const makeScale = (axis, ends, from, to) => {
    if (axis.scale === "category") {
      const step = (to - from) / axis.order.length;
      return { at: (name) => from + step * (axis.order.indexOf(name) + 0.5), step: Math.abs(step), ends };
    }
    const [low, high] = ends;
    const measure = axis.scale === "log" ? (v) => Math.log10(Math.max(v, 1e-300)) : (v) => v;
    return {
      ends,
      at: (value) => from + ((to - from) * (measure(value) - low)) / (high - low),
      back: (pixel) => low + ((high - low) * (pixel - from)) / (to - from),
    };
  };
  const ticksOf = (axis, ends, parts) => {
    if (axis.scale === "category") return axis.order;
    if (axis.one_minus) return oneMinusTicks([Math.min(...ends), Math.max(...ends)]);
    if (axis.ordinal) return linearTicks(ends, parts).filter(Number.isInteger);
    return axis.scale === "log" ? logTicks(ends) : linearTicks(ends, parts);
  };

  return { measure, shorten, format, domain, makeScale, ticksOf };
})();
