// The sites of a scenes worker: for each its members, its last scenes and its completeness.
const STATE = { present: "good", late: "bad", gone: "dim" };
const share = (n) => (100 * n).toLocaleString("en", { maximumFractionDigits: 1 }) + " %";
function member(one, now) {
  const skew = one.skew_ms === null ? "–" : one.skew_ms + " ms";
  return [one.member, make("span", one.state, STATE[one.state]), skew,
    rate(Math.max(0, now - one.heard) / 1000) + " s ago"];
}
function curve(steps) {
  const line = make("div", null, "curve");
  for (const step of steps) {
    const bar = make("i");
    bar.title = clock(step.since) + ": " + share(step.present) + " of the places taken, " +
      step.complete + " of " + step.scenes + " scenes complete";
    bar.style.height = Math.max(1, 100 * step.present) + "%";
    line.append(bar);
  }
  return line;
}
const lost = ({ lost, sites }) => [...(lost ? [lost] : []), ...sites.filter((one) => one.lost).map(
  (one) => "site " + one.site + ": " + one.lost)].map((text) => make("p", text, "bad"));
function site(one) {
  const counts = one.counts, closed = ["complete", "members", "quorum", "deadline"];
  const scenes = closed.reduce((sum, why) => sum + (counts[why] || 0), 0);
  const cards = make("div", null, "cards"), latest = one.completeness.at(-1);
  const here = one.members.filter((each) => each.state === "present").length;
  cards.append(
    card("members present", here + " of " + one.members.length,
      here === one.members.length ? "good" : "bad"),
    card("places taken now", latest ? share(latest.present) : "–"),
    card("scenes", count(scenes)),
    card("undecided", count(one.open)),
    card("in no scene", count(one.in_no_scene), one.lost ? "bad" : ""));
  const others = Object.entries(counts).filter(([what]) => what !== "arrived").map(
    ([what, n]) => what + " " + count(n)).join(", ");
  return [make("h2", one.site), cards, curve(one.completeness),
    make("p", "arrived " + count(counts.arrived || 0) + "; " + others, "dim"),
    table("Members of " + one.site, [["member", "text"], ["state", "text"], "skew", "heard"],
      one.members.map((each) => member(each, Date.now()))),
    table("Last scenes of " + one.site,
      [["last scenes", "text"], ["closed by", "text"], "present", "span", ["absent", "text"]], one.last.slice(0, 8).map(
      (scene) => [clock(scene.time), scene.closed_by, scene.present + " of " + scene.members,
        scene.span_ms + " ms", scene.absent.join(", ")]))];
}
const silent = (s) => say("no answer for " + Math.round(s) + " s", "bad");
function show({ status }) {
  $("about").textContent = status.input_topic + " → " + status.output_topic + ", partitions " +
    (status.partitions.join(", ") || "none");
  $("main").replaceChildren(...lost(status), ...status.sites.flatMap(site));
}
