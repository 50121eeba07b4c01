// A client of Socket.IO that writes what happens to it as lines of JSON, and says the lines of its standard input.
"use strict";

const { io } = require("socket.io-client");
const { WebSocket } = require("ws");

const [url, name] = process.argv.slice(2);
const tell = (event, told = {}) => console.log(JSON.stringify({ event, ...told }));

// The handshake of a connection that begins as WebSocket, whose fields the client below does not show.
const direct = new WebSocket(url.replace("http", "ws") + "/socket.io/?EIO=4&transport=websocket");
direct.on("upgrade", ({ headers }) => {
  tell("accepted", { cookies: headers["set-cookie"], from: headers["x-from"] });
  direct.on("open", () => direct.close());
});

const socket = io(url, {
  extraHeaders: { cookie: `who=${name}; other=1`, "x-token": "t" },
  reconnectionDelay: 50,
});
socket.io.on("open", () => {
  const { engine } = socket.io;
  tell("open", { transport: engine.transport.name });
  engine.once("upgrade", () => tell("upgrade", { transport: engine.transport.name }));
});
socket.on("connect", () => tell("connect"));
socket.on("disconnect", (reason, details) => tell("disconnect", { reason, code: details?.context?.code }));
for (const event of ["headers", "said"]) {
  socket.on(event, (told) => tell(event, { told }));
}

require("node:readline")
  .createInterface({ input: process.stdin })
  .on("line", (word) => socket.emit("say", word, (answer) => tell("answer", { answer })))
  .on("close", () => process.exit(0));
