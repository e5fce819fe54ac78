// The first line: what is wrong, in words, and what to do.
let spoken = "";
function verdict(problems, well, title) {
  const [first, ...others] = problems, box = $("verdict");
  box.className = first ? first.level : title === "All is well" ? "good" : "";
  put(box, [problems, first ? null : [title, well]], () => {
    if (!first) return [make("p", title, "first"), make("p", well)];
    const parts = [make("p", sentence(first), "first"), ...below(first)];
    if (others.length) parts.push(make("ul", null, "", ...others.map((one) => make("li", null, "",
      make("strong", sentence(one), one.level === "bad" ? "failed" : "warned"),
      ...below(one)))));
    return parts;
  });
  document.title = (first ? (first.level === "bad" ? "✗ " : "! ") : "") + "penstock";
  // A screen reader reads the line out when the problems change, not when only a number changes.
  const news = problems.map((one) => one.what.replace(/[\d.,]+/g, "")).join() || title;
  if (news !== spoken) $("spoken").textContent = first ? first.what + (/[.?!]$/.test(first.what) ? " " : ". ") + first.do : title;
  spoken = news;
}
// What the cause holds back, and what to do.
const below = (one) => [one.holds, one.do].filter(Boolean).map((text) => make("p",
  /^penstock /.test(text) ? text : text.slice(0, 1).toUpperCase() + text.slice(1)));
// Begins with a capital letter, unless it begins with a stream's name.
const sentence = ({ what, stream }) => stream && what.startsWith(stream) ? what :
  what.slice(0, 1).toUpperCase() + what.slice(1);
function silent(s) {
  if (!$("verdict")) return say("no answer for " + lasting(s), "bad");
  verdict([{ level: "bad", kind: "silent", stream: null,
    what: "this worker has not answered for " + Math.round(s) + " s",
    do: "Its log says why if it ended. What follows is old; the page goes on when it answers" }], "", "");
}
