// The figures at a glance, each with its last ten minutes.
const WINDOWS = 60;
function spark(values, label, { line = null, least = 0 } = {}) {
  // The whole width stands for ten minutes, even if fewer values are known.
  values = [...Array(Math.max(0, WINDOWS - values.length)).fill(null), ...values];
  const found = values.filter(known);
  const svg = draw("svg", { class: "spark", viewBox: "0 0 100 100", preserveAspectRatio: "none",
    role: "img", "aria-label": label + (found.length ? ", now " + rate(found.at(-1)) + ", at most " +
      rate(Math.max(...found)) : ", nothing yet") });
  const top = Math.max(...found, line === null ? 0 : 1.15 * line, least) || 1;
  const step = 100 / Math.max(1, values.length - 1), runs = [];
  values.forEach((value, at) => {
    if (!known(value)) return runs.push([]);
    if (!runs.length) runs.push([]);
    runs.at(-1).push((at * step).toFixed(1) + " " + (97 - 94 * value / top).toFixed(1));
  });
  for (const run of runs.filter((one) => one.length)) {
    // A single value is drawn as a short line.
    const points = run.length > 1 ? run : [run[0], (parseFloat(run[0]) - 2) + " " + run[0].split(" ")[1]];
    svg.append(draw("path", { class: "area", d: "M" + points.join("L") + "L" +
      points.at(-1).split(" ")[0] + " 100L" + points[0].split(" ")[0] + " 100Z" }),
      draw("path", { d: "M" + points.join("L") }));
  }
  if (line !== null) {
    const at = 97 - 94 * line / top;
    svg.append(draw("line", { x1: 0, x2: 100, y1: at, y2: at }));
  }
  return svg;
}
// A figure has the colour of the problem that it shows.
const level = (status, ...kinds) => status.problems.find((one) => kinds.includes(one.kind))?.level || "";
const LIMITING = ["starved", "model", "store", "kafka", "worker", "skew"];
function figures(status) {
  const { flow, history, budget } = status, bound = status.bound_ms;
  const full = budget.spent_bytes / budget.limit_bytes;
  return [
    card("latency, p99", millis(flow.p99_ms), level(status, "late", "over_bound"),
      make("small", "p50 " + millis(flow.p50_ms) + (known(bound) ? "; bound " + bound + " ms" : "")),
      spark(history.p99_ms, "p99 in ms, ten minutes", { line: bound })),
    card("rows a second", rate(status.rates.rows_per_s), "",
      make("small", rate(status.rates.objects_per_s) + " objects"),
      spark(history.rows_per_s, "rows a second, ten minutes")),
    card("oldest waits", lasting(status.backlog_s), level(status, "stopped", "away", "late", "backlog"),
      make("small", known(flow.drain_s) ? "done in " + lasting(flow.drain_s) : "in Kafka: " + behind(status)),
      spark(history.backlog_s, "seconds behind, ten minutes", { least: 2 })),
    card("busy", percent(flow.utilisation), level(status, ...LIMITING),
      make("small", flow.bound_by ? "the limit: " + flow.bound_by : "nothing limits it"),
      spark(history.utilisation, "share busy, ten minutes", { least: 1 })),
    card("buffer", percent(full), level(status, "buffer"),
      make("small", mib(budget.spent_bytes) + " of " + mib(budget.limit_bytes)), bar(full)),
    card("rejected", count(status.counters.rejected), level(status, "refused"),
      make("small", codes(status.rejected))),
  ];
}
function behind(status) {
  const lags = status.assignments.map((one) => one.lag);
  return !lags.length || lags.some((one) => !known(one)) ? "not known" :
    count(lags.reduce((a, b) => a + b, 0)) + " records";
}
const codes = (rejected) => Object.entries(rejected).map(([code, n]) => code + " " + count(n))
  .join(", ") || "none since the start";
function bar(share, kind) {
  const inside = make("i", null, kind || (share >= .9 ? "full" : share >= .6 ? "busy" : ""));
  inside.style.width = 100 * Math.min(1, Math.max(0, share || 0)) + "%";
  return make("div", null, "bar", inside);
}
