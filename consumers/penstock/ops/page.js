const mib = (n) => (n / 1048576).toLocaleString("en", { maximumFractionDigits: 1 }) + " MiB";
function health(model) {
  if (model.answers === null) return ["–", ""];
  if (!model.answers) return ["is silent", "bad"];
  return model.breaker_open ? ["is ill", "bad"] : ["answers", "good"];
}
const percent = (share) => (100 * share).toFixed(2) + " %";
function shadow(one) {
  if (!one) return [];
  const parts = [make("p", one.rows ? "shadow " + one.model + ": " + percent(one.agreed / one.rows) +
    " of " + count(one.rows) + " rows agree (" + one.interval.map(percent).join(" to ") + ")" :
    "shadow " + one.model + ": nothing is compared yet", "dim")];
  if (one.is_over) parts.push(make("div", "the shadow ended by a fault of its own", "note"));
  if (one.worst.length) parts.push(table(["stream", "rows compared", "agree"],
    one.worst.map((row) => [row.stream, count(row.rows), percent(row.agreed / row.rows)])));
  return parts;
}
function worker(status) {
  const parts = [];
  if (status.process !== undefined) parts.push(make("h2", "process " + status.process));
  if (!status.assignments) {
    parts.push(make("div", status.error, "note"));
    return parts;
  }
  for (const one of status.assignments) {
    for (const stop of one.stopped) {
      const row = stop.row === null ? "" : ", row " + stop.row;
      parts.push(make("div", "line stopped: stream " + stop.stream + " at partition " +
        stop.partition + ", offset " + stop.offset + ", object " + stop.object_index + row + ": " +
        stop.limit + "; now " + stop.code + ": " + stop.message, "note"));
    }
  }
  for (const outage of status.outages)
    parts.push(make("div", "the " + outage.service + " has not answered for " +
      rate(outage.away_s) + " s", "note"));
  const cards = make("div", null, "cards"), budget = card("buffer", mib(status.budget.spent_bytes));
  const bar = make("progress");
  bar.max = status.budget.limit_bytes;
  bar.value = status.budget.spent_bytes;
  budget.append(bar);
  const lags = status.assignments.map((one) => one.lag);
  const model = status.model, window = status.window;
  cards.append(
    card("rows/s", rate(status.rates.rows_per_s)),
    card("objects/s", rate(status.rates.objects_per_s)),
    card("records behind", lags.includes(null) ? "–" : count(lags.reduce((a, b) => a + b, 0))),
    card("oldest waits", rate(status.backlog_s) + " s"),
    card("rows waiting, of " + count(window.streams) + " streams", count(window.rows)),
    card("calls to " + model.name, window.calls + " of " + window.most_calls),
    card("the model", ...health(model)),
    card("rejected", count(status.counters.rejected), status.counters.rejected ? "bad" : ""),
    budget);
  const region = status.region;
  if (region) {
    const local = rate(100 * region.local_share) + " %";
    cards.append(card("local reads, region " + region.name, local,
      region.local_share < 1 ? "bad" : "good"));
    const fails = Object.values(region.failovers).reduce((a, b) => a + b, 0);
    cards.append(card("fail-overs", count(fails), fails ? "bad" : ""));
  }
  parts.push(cards);
  if (status.models) parts.push(table(
    ["model", "state", "calls", "answered", "others", "rows", "rows waiting"],
    status.models.map((one) => {
      const all = Object.values(one.calls).reduce((a, b) => a + b, 0), good = one.calls.answered;
      return [one.name, make("td", ...health(one)), one.window.calls + " of " + one.calls_allowed,
        count(good), count(all - good), count(one.rows), count(one.window.rows)];
    })));
  if (region) for (const [name, one] of Object.entries(region.others))
    parts.push(make("p", "region " + name + ": " +
      (one.lag === null ? "nobody knows" : count(one.lag) + " behind, workers of its own: " +
      count(one.workers)) + (one.helped ? "; it is helped" : ""), one.helped ? "note" : "dim"));
  const codes = Object.entries(status.rejected);
  if (codes.length) parts.push(make("p", "rejected: " +
    codes.map(([code, n]) => code + " " + count(n)).join(", "), "dim"));
  parts.push(...shadow(status.shadow));
  const rows = status.assignments.map((one) => [
    ...[one.partition, one.generation, one.next_offset, one.committed, one.lag, one.owed].map(count),
    make("td", one.stopped.length ? "stopped" : "runs", one.stopped.length ? "bad" : "good")]);
  parts.push(rows.length ? table(["partition", "generation", "next offset", "committed", "behind",
    "objects owed", "state"], rows) : make("p", "no partition is assigned", "dim"));
  return parts;
}
function show(status) {
  const workers = status.processes || [status];
  const known = workers.find((one) => one.input_topic) || {};
  $("about").textContent = known.input_topic ? known.input_topic + " → " + known.output_topic : "";
  $("main").replaceChildren(...workers.flatMap(worker));
}
