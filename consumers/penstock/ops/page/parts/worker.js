// The page of a worker, or of several workers under a supervisor.
let chosen = null;
function panel(id, title, width, ...more) {
  const inside = make("div"), whole = make("section", null, "panel " + width, make("h2", title), ...more, inside);
  inside.id = id;
  whole.id = id + "-panel";
  whole.ariaLabel = title;
  return whole;
}
function build() {
  const box = make("section"), search = make("input"), cards = make("div", null, "cards");
  const tabs = make("div", null, "buttons");
  box.id = "verdict";
  box.ariaLabel = "What is wrong";
  tabs.id = "processes";
  cards.id = "cards";
  search.id = "wanted";
  search.type = "search";
  search.placeholder = "find a stream";
  search.ariaLabel = "find a stream";
  search.addEventListener("input", () => last && show(last));
  const list = panel("streams", "Streams", "c12");
  list.firstChild.replaceWith(make("div", null, "head", make("h2", "Streams"), search));
  const lost = panel("letters", "Dead letters", "c6", redriveForm());
  const hint = make("p", "With http.token set they can be sent back from here; or: penstock dlq redrive", "dim");
  hint.id = "no-token";
  lost.append(hint);
  const kill = twice("Kill the worker", "Yes, kill -9", "kill", () => ask("kill", {}));
  kill.id = "kill";
  $("main").replaceChildren(box, panel("stopped", "Stopped lines", ""), kill, tabs, cards,
    make("div", null, "grid", panel("flow", "From the store to the topic", "c12"), list,
      panel("way", "Where an object's time goes", "c6"), panel("batches", "Batches", "c6"),
      panel("peers", "Members of the group", "c12"), panel("partitions", "Partitions", "c6"), lost, panel("samples", "Rows and their predictions", "c12"),
      panel("models", "Models", "c12")));
}
let last = null;
function show(update) {
  if (!$("verdict")) build();
  last = update;
  actions = update.actions;
  const { status, group } = update, workers = status.processes || [status];
  const up = workers.filter((one) => one.assignments);
  const known_ = up[0] || {};
  $("kill").hidden = !may("kill");
  $("about").textContent = known_.input_topic ? known_.input_topic + " → " + known_.output_topic +
    (known_.group ? ", group " + known_.group : "") + ", version " + known_.version +
    ", up " + lasting(known_.uptime_s) : "";
  verdict(status.problems, up.length ? well(up) : "", up.some(begins) ? "It starts" : "All is well");
  const ours = up.flatMap((one) => one.assignments.map((each) => ({ ...each,
    by: one.process === undefined ? "this worker" : "process " + one.process })));
  stopped(ours);
  put($("partitions"), [ours, group], () => partitions(ours, group));
  letters(up.flatMap((one) => one.letters).sort((a, b) => b.at_ms - a.at_ms), sum(up, "rejected"));
  samples(update.samples);
  peers(update.peers, up);
  const one = pick(workers, up);
  for (const id of ["cards", "flow-panel", "streams-panel", "way-panel", "batches-panel", "models-panel"])
    $(id).hidden = !one;
  if (!one) return;
  const changing = { problems: one.problems, flow: one.flow, window: one.window, bound_ms: one.bound_ms, rates: one.rates,
    assignments: one.assignments };
  put($("cards"), { ...changing, history: one.history, budget: one.budget, backlog_s: one.backlog_s,
    counters: one.counters, rejected: one.rejected }, figures);
  put($("flow"), { ...changing, stores: one.stores, hedged_reads: one.hedged_reads }, flow);
  put($("way"), changing, way);
  put($("batches"), changing, batches);
  streams(one.streams, one.streams_others, one.streams_known);
  put($("models"), { model: one.model, models: one.models, window: one.window, shadow: one.shadow,
    region: one.region }, models);
}
// The process whose figures are shown: the chosen one, else the first one that answers.
function pick(workers, up) {
  if (workers.length < 2) return up[0];
  const one = up.find((each) => each.process === chosen) || up[0];
  put($("processes"), [workers.map((each) => [each.process, each.restarts, each.up]), one && one.process],
    () => workers.map((each) => {
      const made = button("process " + each.process + (each.up ? "" : ", away") +
        (each.restarts ? ", started again " + each.restarts + " times" : ""), "process" + each.process, () => {
        chosen = each.process;
        show(last);
      });
      made.ariaPressed = String(one === each);
      return made;
    }));
  return one;
}
function sum(up, name) {
  const all = {};
  for (const one of up) for (const [key, n] of Object.entries(one[name])) all[key] = (all[key] || 0) + n;
  return all;
}
// A latency of the last minute that is beyond the bound, while all is well, tells of what is over: a start, an outage.
// As long as nothing measured is judged (SETTLED_S of the diagnosis).
const begins = (one) => !one.streams_known && one.settled_s < 10;
function well(up) {
  const rows = up.reduce((all, one) => all + one.rates.rows_per_s, 0);
  const streams = Math.max(...up.map((one) => one.streams_known));
  if (!streams) return "nothing was answered yet; waiting in Kafka: " + behind({ assignments: up.flatMap((one) => one.assignments) });
  const p99s = up.map((one) => one.flow.p99_ms);
  const p99 = p99s.some(known) ? Math.max(...p99s.filter(known)) : null, bound = up[0].bound_ms;
  return rate(rows) + " rows a second of " + count(streams) + (streams === 1 ? " stream" : " streams") +
    (known(p99) && !(known(bound) && p99 > bound) ? "; p99 " + millis(p99) + (known(bound) ? ", the bound is " + bound + " ms" : "") : "");
}
