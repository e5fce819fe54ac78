// Each value doubled, by Node's http; the addresses are those of fastapi_model.py.
const http = require("http");
const refused = {};
http.createServer((request, response) => {
  if (request.url === "/large" && request.headers["content-length"] > 1e6)
    return response.writeHead(413, { Connection: "close" }).end();
  const pieces = [];
  request.on("data", (piece) => pieces.push(piece));
  request.on("end", () => {
    if (request.method === "OPTIONS") return response.writeHead(204).end();
    // As who is told 404 asks which models there are. What cannot be parsed would end the process.
    if (!pieces.length) return response.writeHead(400).end();
    const [status, times, row] = (request.url.split("/")[2] || "200-0-any").split("-");
    const rows = JSON.parse(Buffer.concat(pieces));
    const isMeant = row === "any" ? rows.length : rows.some((one) => one[0] === Number(row));
    const before = refused[request.url] || 0;
    if (isMeant && before < Number(times)) {
      refused[request.url] = before + 1;
      if (status === "raise") return response.destroy();
      return response.writeHead(Number(status), { "Retry-After": "0" }).end();
    }
    response.setHeader("Content-Type", "application/json");
    response.end(JSON.stringify(rows.map((one) => 2 * one[0])));
  });
}).listen(Number(process.argv[2]), "127.0.0.1");
