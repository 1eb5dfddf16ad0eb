// needs: node:nodejs
// grants: mprotect PROT_EXEC for its JIT, a large virtual space, AF_NETLINK ROUTE, epoll, eventfd, inotify
"use strict";
const assert = require("assert");
const { execFileSync, fork } = require("child_process");
const { once } = require("events");
const fs = require("fs");
const http = require("http");
const os = require("os");
const { Worker, isMainThread, parentPort } = require("worker_threads");

async function main() {
	if (process.argv[2] === "child") {
		process.once("message", (n) => process.send(n * 2, () => process.disconnect()));
		return;
	}
	const interfaces = os.networkInterfaces();
	assert.deepStrictEqual(Object.keys(interfaces), ["lo"]);
	assert(os.cpus().length >= 1 && os.totalmem() > 0 && os.freemem() > 0 && os.uptime() > 0);
	assert.strictEqual(os.userInfo().username, "user");
	assert.strictEqual(os.tmpdir(), "/session/tmp");

	const server = http.createServer((request, response) => response.end(request.url)).listen(0, "127.0.0.1");
	await once(server, "listening");
	const answer = await fetch(`http://localhost:${server.address().port}/path`);
	assert.strictEqual(await answer.text(), "/path");
	server.closeAllConnections();
	server.close();

	const worker = new Worker(__filename);
	assert.deepStrictEqual(await once(worker, "message"), ["from a thread"]);
	const child = fork(__filename, ["child"]);
	child.send(21);
	assert.strictEqual((await once(child, "message"))[0], 42);
	assert.strictEqual(execFileSync("sh", ["-c", "echo $0"]).toString(), "sh\n");

	const folder = fs.mkdtempSync(os.tmpdir() + "/node-");
	const watcher = fs.watch(folder);
	const changed = once(watcher, "change");
	await fs.promises.writeFile(folder + "/file", "x");
	assert.strictEqual((await changed)[1], "file");
	watcher.close();

	const wasm = Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0, 1, 7, 1, 96, 2, 127, 127, 1, 127, 3, 2, 1, 0, 7, 7,
		1, 3, 97, 100, 100, 0, 0, 10, 9, 1, 7, 0, 32, 0, 32, 1, 106, 11);
	assert.strictEqual((await WebAssembly.instantiate(wasm)).instance.exports.add(2, 3), 5);
	// Long enough for the optimizing compiler.
	let sum = 0;
	for (let i = 0; i < 5e6; i++)
		sum = (sum + i) % 1000003;
	assert(sum >= 0);
	require("crypto").pbkdf2Sync("a", "b", 1000, 32, "sha256");
	console.log("ok");
}

if (isMainThread)
	main().catch((error) => {
		console.error(error);
		process.exit(1);
	});
else
	parentPort.postMessage("from a thread");
