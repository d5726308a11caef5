// The Prometheus exposition text, and what follows from two readings of it. Pure: no page, no clock of its own.

const LINE = /^([a-zA-Z_:][\w:]*)(\{.*\})?\s+(\S+)/;

/**
 * Sums over all label values, by name without the prefix before the colon: `{values: {name: n}, histograms: {name: [[le, n]]}}`.
 * Several engines and API processes add up; shares (`..._perc`) are averaged.
 */
export function parse(text) {
  const values = {};
  const counts = {};
  const buckets = {};
  for (const line of text.split("\n")) {
    const match = line[0] === "#" ? null : LINE.exec(line);
    if (!match) continue;
    const name = match[1].slice(match[1].indexOf(":") + 1);
    const value = Number(match[3]);
    if (name.endsWith("_bucket")) addBucket(buckets, name.slice(0, -"_bucket".length), match[2], value);
    values[name] = (values[name] ?? 0) + value;
    counts[name] = (counts[name] ?? 0) + 1;
  }
  for (const name of Object.keys(values)) if (name.endsWith("_perc")) values[name] /= counts[name];
  const histograms = {};
  for (const [name, byEdge] of Object.entries(buckets)) histograms[name] = [...byEdge].sort((a, b) => a[0] - b[0]);
  return { values, histograms };
}

function addBucket(buckets, name, labels, value) {
  const edge = /[{,]le="([^"]+)"/.exec(labels ?? "")?.[1];
  if (edge === undefined) return;
  const byEdge = (buckets[name] ??= new Map());
  const le = edge === "+Inf" ? Infinity : Number(edge);
  byEdge.set(le, (byEdge.get(le) ?? 0) + value);
}

/** How much a counter grew from `before` to `now`; null where it is missing. A restart counts from zero. */
export function growth(before, now, name) {
  const [a, b] = [before.values[name], now.values[name]];
  if (a === undefined || b === undefined) return null;
  return b >= a ? b - a : b;
}

/**
 * The quantile `q` (0 to 1) of what a histogram gained between two readings, by linear interpolation within a bucket, as
 * Prometheus' `histogram_quantile` does it. Null where nothing was gained.
 */
export function quantile(before, now, name, q) {
  const then = new Map(before.histograms[name] ?? []);
  const gained = (now.histograms[name] ?? []).map(([le, count]) => [le, count - (then.get(le) ?? 0)]);
  const total = gained.at(-1)?.[1] ?? 0;
  if (!(total > 0)) return null;
  const rank = q * total;
  let [lower, below] = [0, 0];
  for (const [le, count] of gained) {
    if (count >= rank) {
      if (le === Infinity) return lower;
      return lower + ((le - lower) * (rank - below)) / Math.max(count - below, Number.EPSILON);
    }
    [lower, below] = [le, count];
  }
  return lower;
}
