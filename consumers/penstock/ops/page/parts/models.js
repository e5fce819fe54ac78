// The models with their breakers and calls, the shadow, the regions.
function health(model) {
  if (!known(model.answers)) return ["not asked yet", "dim"];
  if (!model.answers) return ["is silent", "bad"];
  return model.breaker_open ? ["breaker open", "bad"] : ["answers", "good"];
}
function models(status) {
  const rows = status.models || [{ ...status.model, window: status.window }];
  const more = status.models ? [["failed calls", "wide"], ["rows", "wide"]] : [];
  const parts = [table("Models",
    [["model", "text"], ["state", "text"], "calls now", "allowed", "rows waiting", ...more],
    rows.map((one) => {
      const state = health(one), cells = [one.name + (one.version ? " " + one.version : ""),
        make("span", state[0], state[1] + " badge"), one.window.calls + " of " + one.window.most_calls,
        count(one.calls_allowed), count(one.window.rows)];
      if (!status.models) return cells;
      const all = Object.values(one.calls).reduce((a, b) => a + b, 0);
      return [...cells, count(all - (one.calls.answered || 0)), count(one.rows)];
    }))];
  return [...parts, ...shadow(status.shadow), ...region(status.region)];
}
function shadow(one) {
  if (!one) return [];
  const parts = [make("p", one.rows ? "Shadow " + one.model + ": " + percent(one.agreed / one.rows, 2) +
    " of " + count(one.rows) + " rows agree (" + one.interval.map((n) => percent(n, 2)).join(" to ") + ")" :
    "Shadow " + one.model + ": nothing is compared yet")];
  if (known(one.away_s)) parts.push(make("p", "the shadow has not answered for " + lasting(one.away_s), "warn"));
  if (one.is_over) parts.push(make("p", "the shadow ended by a fault of its own", "bad"));
  if (one.worst.length) parts.push(table("Streams that agree least with the shadow",
    [["stream", "text"], "rows compared", "agree"],
    one.worst.map((row) => [row.stream, count(row.rows), percent(row.agreed / row.rows, 2)])));
  return parts;
}
function region(one) {
  if (!one) return [];
  const fails = Object.values(one.failovers).reduce((a, b) => a + b, 0);
  return [make("p", "Region " + one.name + ": " + percent(one.local_share) + " read locally, " +
    count(fails) + " fail-overs"),
    ...Object.entries(one.others).map(([name, other]) => make("p", "Region " + name + ": " +
      (known(other.lag) ? count(other.lag) + " behind, workers of its own: " + count(other.workers) :
        "nobody knows") + (other.helped ? "; it is helped" : ""), other.helped ? "warn" : "dim"))];
}
