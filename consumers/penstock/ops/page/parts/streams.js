// Streams, those in most trouble first.
function streams(rows, others, known_) {
  const wanted = ($("wanted") ? $("wanted").value : "").trim().toLowerCase();
  const found = rows.filter((one) => one.stream.toLowerCase().includes(wanted));
  put($("streams"), [found, others, wanted], () => {
    if (!rows.length) return [make("p", "no stream has sent anything yet", "dim")];
    const lines = found.map((one) => streamRow(one));
    if (others && !wanted) lines.push(streamRow({ ...others,
      stream: "all others: " + count(known_ - rows.length) }));
    return [table("Streams, those in most trouble first",
      [["stream", "text"], ["state", "text"], ["p99, ten minutes", "wide"], "p99", ["p50", "wide"],
        ["age, ten minutes", "wide"], "age", ["heard", "wide"], ["model", "wide"], ["rows/s", "wide"], ["owed", "wide"], ["rejected", "wide"]],
      lines)];
  });
}
// What a row takes, and the share of all of the model's time.
function modelTime(one) {
  const cell = make("span", (known(one.row_ms) ? millis(one.row_ms) + ", " : "") + percent(one.model_share));
  if (known(one.cost_per_million)) cell.title = rate(one.cost_per_hour) + " an hour, " + rate(one.cost_per_million) + " a million predictions";
  return cell;
}
function streamRow(one) {
  const state = make("span", one.state, one.level), name = make("span", one.stream);
  state.classList.add("badge");
  if (one.last_message) state.title = one.last_message;
  return [name, state, one.spark ? spark(one.spark, "p99 in ms of " + one.stream) : "",
    millis(one.p99_ms), millis(one.p50_ms),
    one.ages_s ? spark(one.ages_s, "age in seconds of " + one.stream, { least: 1 }) : "",
    lasting(one.age_s), lasting(one.heard_s), modelTime(one), rate(one.rows_per_s), count(one.owed), count(one.rejected)];
}
