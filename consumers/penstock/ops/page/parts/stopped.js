// Partitions and streams that stand still at a dead letter, and how each can go on.

// A stream's name, quoted so that a shell takes it as one word, whatever characters it has.
function quoted(name) {
  return /^[\w@%+=:,./-]+$/.test(name) ? name : "'" + name.replaceAll("'", "'\"'\"'") + "'";
}

function stopped(ours) {
  const stops = ours.flatMap((one) => one.stopped.map((stop) => ({ topic: one.topic, ...stop })));
  $("stopped-panel").hidden = !stops.length;
  put($("stopped"), [stops, actions.length], () => stops.map((stop) => {
    const row = known(stop.row) ? ", row " + stop.row : "", said = make("output");
    const key = stop.topic + stop.partition + stop.offset + stop.stream;
    const box = make("div", null, "stop", make("p", null, "", make("strong", stop.stream),
      " stands still at " + stop.topic + "/" + stop.partition + ", offset " + stop.offset + ", object " +
      stop.object_index + row + ", since " + clock(stop.since_ms) + ": " + stop.limit),
      make("p", stop.code + ": " + stop.message, "bad"));
    const goOn = async (verb) => {
      said.textContent = "asking …";
      tell(said, await ask("line", { verb, stream: stop.stream }));
    };
    if (may("line")) box.append(make("div", null, "buttons",
      button("Go on at this object", "resume" + key, () => goOn("resume")),
      twice("Skip this object", "Yes, answer it by its error", "skip" + key, () => goOn("skip"))), said);
    else box.append(make("p", null, "dim", "Mend the cause, then start the worker again, or: ",
      make("code", "penstock dlq resume " + quoted(stop.stream)), ". To have the object answered by its error: ",
      make("code", "penstock dlq skip " + quoted(stop.stream))));
    return box;
  }));
}
