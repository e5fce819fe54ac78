// The members of the group that http.peers names, as their own pages tell.
function peers(found, ours) {
  $("peers-panel").hidden = !found;
  if (!found) return;
  const self = new Set(ours.map((one) => one.host + one.pid));
  put($("peers"), found.members.length ? { ...found, age_s: 0 } : found, () => {
    const parts = [table("Members of the group",
      [["member", "text"], "partitions", "behind", ["oldest waits", "wide"], ["rows/s", "wide"], ["p99", "wide"],
        ["first line", "text"]],
      found.members.map((one) => [...peerName(one, self), ...peerFigures(one), peerLine(one)]))];
    if (found.left_out) parts.push(make("p", count(found.left_out) + " more were not asked", "dim"));
    return parts;
  });
}
function peerName(one, self) {
  const name = make("span", one.host || one.peer);
  if (one.host) name.append(make("small", " " + one.peer, "dim"));
  if (one.pids && one.pids.some((pid) => self.has(one.host + pid))) name.append(make("small", " this one", "dim"));
  return [name];
}
const peerFigures = (one) => one.why ? ["–", "–", "–", "–", "–"] : [count(one.partitions), count(one.lag),
  lasting(one.backlog_s), rate(one.rows_per_s), millis(one.p99_ms)];
function peerLine(one) {
  if (one.why) return make("span", "silent: " + one.why, "bad");
  return one.first ? make("span", one.first, one.level === "bad" ? "bad" : "warn") : make("span", "all is well", "good");
}
