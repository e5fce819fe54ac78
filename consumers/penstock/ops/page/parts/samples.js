// Rows beside their predictions, if http.samples allows it. The rows are asked for while somebody looks.
const SAMPLES_MS = 2000;
let sampling = false, askedMs = 0, samplesFound = [];
// From a path to its picture. A picture is fetched with the token in a header; an <img> could not send that header.
const pictures = new Map();
async function picture(path, image) {
  if (!pictures.has(path)) pictures.set(path, fetch(path.slice(1), { headers: authorization() })
    .then((answer) => answer.ok ? answer.blob() : null).then((blob) => blob && URL.createObjectURL(blob), () => null));
  const url = await pictures.get(path);
  if (url) image.src = url;
}
async function forget(wanted) {
  for (const [path, url] of [...pictures]) if (!wanted.has(path)) {
    pictures.delete(path);
    URL.revokeObjectURL(await url);
  }
}
async function samples(may) {
  $("samples-panel").hidden = !may;
  if (may && !sampling && Date.now() - askedMs >= SAMPLES_MS) {
    sampling = true;
    askedMs = Date.now();
    try {
      const answer = await fetch("api/samples", { cache: "no-store", headers: authorization() });
      if (answer.ok) samplesFound = (await answer.json()).samples;
      forget(new Set(samplesFound.map((one) => one.picture)));
    } catch {
      // The rows are asked for again with the next update. If the worker is silent, the first line
      // of the page says so.
    }
    sampling = false;
  }
  if (may) showSamples();
}
function showSamples() {
  const wanted = $("wanted").value.trim().toLowerCase();
  const found = samplesFound.filter((one) => one.stream.toLowerCase().includes(wanted));
  put($("samples"), found, () => {
    if (!found.length) return [make("p", "no row of these streams was answered since somebody looks", "dim")];
    const list = make("ul", null, "samples", ...found.map(sampleOf));
    list.tabIndex = 0;
    return [list];
  });
}
function sampleOf(one) {
  const item = make("li"), place = one.topic + "/" + one.partition + ", offset " + one.offset + ", row " + one.row;
  if (one.picture) {
    const image = make("img");
    image.alt = "row " + one.row + " of " + one.stream;
    picture(one.picture, image);
    item.append(image);
  }
  item.append(make("div", null, "", make("p", null, "", make("strong", one.stream + " "),
    make("small", clock(one.at_ms) + ", " + one.model + ", " + (one.object ? one.object + ", " : "") + place)),
    make("p", null, "", make("code", one.input)),
    known(one.error) ? make("p", one.error, "bad") : make("p", null, "", "→ ", make("code", one.prediction))));
  return item;
}
