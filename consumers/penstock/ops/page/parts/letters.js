// Dead letters as they come. With a token they can be counted, and then sent back.
const LETTER_ROWS = 20;
let single = null;
function letters(found, rejected) {
  put($("letters"), [found, actions.length], () => {
    if (!found.length) return [make("p", "no dead letter since the start of this worker", "dim")];
    return [make("ul", null, "letters", ...found.slice(0, LETTER_ROWS).map((one) => {
      const place = one.topic + "/" + one.partition + ", offset " + one.offset +
        (one.object_index ? ", object " + one.object_index : "") + (known(one.row) ? ", row " + one.row : "");
      const item = make("li", null, "", make("strong", one.stream + " "), make("span", one.code + " ", "bad"),
        make("span", one.message + " "), make("small", clock(one.at_ms) + ", " + place + " "));
      if (may("redrive")) item.append(button("send back …", one.at_ms + place + one.code, () => choose(one)));
      return item;
    }))];
  });
  $("redrive").hidden = !may("redrive");
  $("no-token").hidden = may("redrive") || !found.length;
  const names = Object.keys(rejected).join();
  if (shown.get($("code")) !== names) {
    shown.set($("code"), names);
    const before = $("code").value;
    $("code").replaceChildren(option("", "every code"), ...Object.keys(rejected).map((one) => option(one, one)));
    $("code").value = before in rejected ? before : "";
  }
}
function option(value, text) {
  const made = make("option", text);
  made.value = value;
  return made;
}
function field(label, id, made) {
  made.id = id;
  const whole = make("label", label);
  whole.append(made);
  return whole;
}
function redriveForm() {
  const form = make("form"), said = make("output"), since = make("select"), send = make("button", "Send back");
  form.id = "redrive";
  form.hidden = true;
  since.append(option("15m", "the last 15 minutes"), option("1h", "the last hour"),
    option("1d", "the last day"), option("", "all of them"));
  const stream = make("input");
  stream.placeholder = "all; * and ? are wild";
  const latest = make("input"), row = make("label", null, "row", latest, "objects as they are now");
  latest.type = "checkbox";
  latest.id = "latest";
  send.type = "button";
  send.id = "send";
  send.disabled = true;
  said.id = "redriven";
  form.append(field("code", "code", make("select")), field("stream", "stream", stream),
    field("failed in", "since", since), row, make("button", "Count", ""), send, said);
  const changed = () => {
    single = null;
    send.disabled = true;
    said.textContent = "";
  };
  form.addEventListener("input", changed);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    redrive(true);
  });
  send.addEventListener("click", () => redrive(false));
  return form;
}
function choose(letter) {
  $("code").value = letter.code;
  $("stream").value = letter.stream;
  single = { code: letter.code, stream: letter.stream, at_ms: letter.at_ms };
  redrive(true);
  $("redrive").scrollIntoView({ block: "nearest" });
}
async function redrive(dry) {
  const stream = $("stream").value.trim(), chosen = single || { code: $("code").value || null,
    stream: stream || null, glob: true, since: $("since").value || null };
  const said = $("redriven"), send = $("send");
  send.disabled = true;
  said.className = "dim";
  said.textContent = dry ? "reading the dead letters …" : "sending …";
  const answer = await ask("redrive", { ...chosen, latest: $("latest").checked, dry });
  tell(said, answer);
  // Letters that are sent twice are answered twice, so they must be counted again before each sending.
  send.disabled = !dry || !answer.ok || /would send 0 /.test(answer.said);
}
