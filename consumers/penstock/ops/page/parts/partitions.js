// The partitions of the whole group, as Kafka tells them. The partitions of our own workers have
// more figures.
const MOST_SHOWN = 64;
function partitions(ours, group) {
  const name = (one) => one.topic + "/" + one.partition, all = new Map();
  for (const one of group ? group.partitions : []) all.set(name(one), {
    ...one, lag: Math.max(0, one.end - (one.committed ?? 0)), owed: null, stopped: [], cursor: null,
    owner: one.owner ? (one.host || "") + " " + one.owner.slice(-8) : null });
  for (const one of ours) all.set(name(one), { ...all.get(name(one)), ...one,
    cursor: one.next_offset, owner: one.by });
  const rows = [...all.values()].sort((a, b) => b.stopped.length - a.stopped.length ||
    (b.lag || 0) - (a.lag || 0) || (a.topic < b.topic ? -1 : 1) || a.partition - b.partition);
  const topics = new Set(rows.map((one) => one.topic)).size > 1;
  if (!rows.length) return [make("p", "no partition is assigned", "dim")];
  const parts = [table("Partitions of the group",
    [["partition", "text"], ["owner", "text"], "behind", "owed", ["next offset", "wide"],
      ["committed", "wide"], ["state", "text"]],
    rows.slice(0, MOST_SHOWN).map((one) => {
      const state = one.stopped.length ? ["stopped", "bad"] : one.owner ? ["runs", "good"] :
        ["no owner", "warn"];
      return [topics ? name(one) : one.partition, one.owner || "nobody", count(one.lag),
        count(one.owed), count(one.cursor), count(one.committed), make("span", state[0], state[1] + " badge")];
    }))];
  if (rows.length > MOST_SHOWN) parts.push(
    make("p", count(rows.length - MOST_SHOWN) + " more are less far behind", "dim"));
  if (group && group.why) parts.push(make("p", "Kafka does not tell of the others: " + group.why, "bad"));
  return parts;
}
