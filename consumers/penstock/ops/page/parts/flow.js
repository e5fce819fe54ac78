// From the store to the topic: how busy each part is, and where an object spends its time.
const LIMITS = { store: "fetch", model: "model", kafka: "answers", worker: "loop", skew: "input" };
function flow(status) {
  const { flow, window, rates } = status, busy = flow.busy;
  const twice = Object.values(status.hedged_reads || {}).reduce((all, one) => all + one.won + one.lost, 0);
  const reads = status.stores.reduce((most, one) => one.in_flight / one.limit > most.in_flight / most.limit ? one : most);
  const parts = [
    ["input", "Kafka in", rate(flow.arrived_per_s) + "/s", null, "waiting: " + behind(status)],
    ["fetch", "store, fetch", percent(busy.fetchers), busy.fetchers,
      reads.in_flight + " of " + reads.limit + " reads (" + reads.held_by + "), " + ms(flow, "fetch") + " to the first byte" +
      (twice ? "; " + count(twice) + " late reads sent twice" : "")],
    ["decode", "decode", percent(busy.decoders), busy.decoders, ms(flow, "decode") + " an object"],
    ["wait", "window", percent(flow.batch.fill), null,
      count(window.rows) + " rows wait, of " + count(window.streams) + " streams"],
    ["model", "model", percent(busy.calls), busy.calls,
      window.calls + " of " + window.most_calls + " calls, " + ms(flow, "call") + " each"],
    ["loop", "this worker", percent(busy.loop), busy.loop, "its event loop"],
    ["answers", "Kafka out", rate(flow.delivered_per_s) + "/s", null, ms(flow, "publish") + " to be acknowledged"],
  ];
  return [make("ol", null, "flow", ...parts.map(([key, name, figure, share, below]) => {
    const limit = flow.bound_by && LIMITS[flow.bound_by] === key;
    const item = make("li", null, limit ? "limit" : "", make("span", name), make("b", figure, "num"));
    if (share !== null) item.append(bar(share));
    item.append(make("small", limit ? "the limit; " + below : below));
    return item;
  }))];
}
const ms = (flow, part) => known(flow.way_ms[part]) ? millis(flow.way_ms[part]) : "–";
const PARTS = { kafka_in: "in", queue: "queue", fetch: "fetch", decode: "decode", wait: "wait",
  call: "call", hold_back: "hold-back", publish: "publish" };
function way(status) {
  const { flow, bound_ms: bound } = status, spent = flow.way_ms;
  const sum = Object.keys(PARTS).reduce((all, part) => all + (spent[part] || 0), 0);
  if (!sum) return [make("p", "nothing was delivered in the last ten seconds", "dim")];
  const scale = Math.max(sum, bound || 0), list = make("dl", null, "way");
  let at = 0;
  for (const [part, name] of Object.entries(PARTS)) {
    const track = make("div", null, "track"), piece = make("i");
    piece.style.left = 100 * at / scale + "%";
    piece.style.width = 100 * (spent[part] || 0) / scale + "%";
    at += spent[part] || 0;
    track.append(piece);
    if (bound) {
      const line = make("u");
      line.style.left = "min(calc(100% - 2px), " + 100 * bound / scale + "%)";
      track.append(line);
    }
    list.append(make("dt", name), make("dd", null, "", track), make("dd", millis(spent[part])));
  }
  return [list, make("p", "mean " + millis(sum) + " an object" +
    (bound ? "; the dashed line is the bound, " + bound + " ms" : ""), "dim")];
}
const CLOSED = { rows: "full of rows", bytes: "full of bytes", deadline: "oldest waited enough",
  idle: "a call was free", drain: "partition handed back" };
function batches(status) {
  const { batch } = status.flow, most = status.window.max_rows;
  if (!known(batch.rows_mean)) return [make("p", "no batch in the last ten seconds", "dim")];
  const all = Object.values(batch.closed_by).reduce((a, b) => a + b, 0), list = make("dl", null, "why");
  for (const [why, n] of Object.entries(batch.closed_by).filter((one) => one[1] > 0))
    list.append(make("dt", CLOSED[why] || why), make("dd", null, "", bar(n / all, "plain")),
      make("dd", rate(n) + "/s"));
  return [make("p", rate(batch.rows_mean) + " rows a batch of at most " + count(most)),
    bar(batch.fill, "plain"), list];
}
