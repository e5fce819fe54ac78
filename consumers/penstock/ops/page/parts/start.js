// The stream of updates is read while somebody who has the token sees the page. When the stream
// ends, the page asks for it again.
async function view() {
  const stop = viewing = new AbortController(), token = sessionStorage.getItem(KEY);
  try {
    const answer = await fetch("api/live", {
      cache: "no-store", headers: authorization(), signal: stop.signal });
    if (answer.status === 401) {
      viewing = null;
      return refused(token);
    }
    if (!answer.ok) throw new Error((await answer.text()).trim() || "status " + answer.status);
    $("ask").hidden = true;
    $("main").hidden = false;
    await read(answer.body);
  } catch (error) {
    if (stop.signal.aborted) return;
    say("no answer: " + error.message, "bad");
    if (heardMs) unheard();
  }
  if (viewing === stop) viewing = setTimeout(view, AGAIN_MS);
}
function leave() {
  if (viewing instanceof AbortController) viewing.abort();
  else clearTimeout(viewing);
  viewing = null;
}
document.addEventListener("visibilitychange", () => {
  if (document.hidden) leave();
  else if (!viewing && $("ask").hidden) view();
});
$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, $("token").value);
  $("token").value = "";
  view();
});
function unheard() {
  silentSinceMs ||= heardMs || Date.now();
  silent((Date.now() - silentSinceMs) / 1000);
}
setInterval(() => {
  if (document.hidden || !viewing || (Date.now() - heardMs < SILENT_MS && !silentSinceMs)) return;
  unheard();
}, 1000);
// A viewer who has given no token yet is asked for it.
if ("asks" in document.body.dataset && !sessionStorage.getItem(KEY)) refused(null);
else view();
