// Streams, those in most trouble first.
function streams(rows, others, known_, bound) {
  const wanted = ($("wanted") ? $("wanted").value : "").trim().toLowerCase();
  const found = rows.filter((one) => one.stream.toLowerCase().includes(wanted));
  put($("streams"), [found, others, bound, wanted], () => {
    if (!rows.length) return [make("p", "no stream has sent anything yet", "dim")];
    const lines = found.map((one) => streamRow(one, bound));
    if (others && !wanted) lines.push(streamRow({ ...others,
      stream: "all others: " + count(known_ - rows.length) }, bound));
    return [table("Streams, those in most trouble first",
      [["stream", "text"], ["state", "text"], ["p99, ten minutes", "wide"], "p99", ["p50", "wide"],
        ["age, ten minutes", "wide"], "age", ["rows/s", "wide"], ["owed", "wide"], ["rejected", "wide"]],
      lines)];
  });
}
function streamState(one, bound) {
  if (one.stopped) return ["stopped", "bad"];
  if (one.age_s >= 2) return ["behind", one.age_s >= 30 ? "bad" : "warn"];
  if (one.last_code && one.rejected) return ["refused: " + one.last_code, "warn"];
  if (known(bound) && one.p99_ms > bound) return ["slow", "warn"];
  return known(one.p99_ms) ? ["on time", "good"] : ["silent", "dim"];
}
function streamRow(one, bound) {
  const state = make("span", ...streamState(one, bound)), name = make("span", one.stream);
  state.classList.add("badge");
  if (one.last_message) state.title = one.last_message;
  return [name, state, one.spark ? spark(one.spark, "p99 in ms of " + one.stream) : "",
    millis(one.p99_ms), millis(one.p50_ms),
    one.ages_s ? spark(one.ages_s, "age in seconds of " + one.stream, { least: 1 }) : "",
    lasting(one.age_s), rate(one.rows_per_s), count(one.owed), count(one.rejected)];
}
