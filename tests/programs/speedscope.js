/* Serves speedscope's page with a profile, opens it in Chromium with `#profileURL=`, and reads its
 * list of functions.
 *
 *     speedscope.js FOLDER PROFILE USER
 *
 * FOLDER contains the page. The browser creates the folder USER for its own data. Prints the text
 * of the page, which includes the name of the profile, and a line `SYMBOL<tab>TOTAL<tab>SELF` for
 * each function. There is no time limit: the page posts its result when it is complete. */
const fs = require('fs'), http = require('http'), path = require('path'), { spawn } = require('child_process');
const [folder, profile, user] = process.argv.slice(2);
const look = String.raw`<script>
const seen = what => new Promise(done => {
    const look = () => { const found = what(); if (found) done(found); else setTimeout(look, 20); };
    look();
});
const named = text => [...document.querySelectorAll("div")].find(d => d.textContent.endsWith(text) && !d.querySelector("div"));
(async () => {
    (await seen(() => named("Sandwich"))).click();
    // The list of profiles is a table, too.
    const functions = () => [...document.querySelectorAll("tr")].filter(row => row.cells[0].textContent.includes("%"));
    const rows = await seen(() => { const rows = functions(); return rows.length && rows; });
    const lines = [document.body.innerText.replaceAll("\t", " ")];
    for (const { cells: [total, own, name] } of rows) lines.push([name, total, own].map(cell => cell.textContent).join("\t"));
    await fetch("/said", { method: "POST", body: lines.join("\n") });
})();
</script>`;
let browser;
const server = http.createServer((request, response) => {
    const name = new URL(request.url, "http://localhost").pathname;
    if (name === "/said") {
        let said = "";
        request.on("data", part => said += part);
        request.on("end", () => {
            browser.on("exit", () => { console.log(said); process.exit(0); });
            browser.kill();
        });
        return;
    }
    const file = name === "/profile.json" ? profile : path.join(folder, name);
    fs.readFile(file, (error, bytes) => {
        if (error) { response.writeHead(404); response.end(); return; }
        const types = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".json": "application/json" };
        response.writeHead(200, { "Content-Type": types[path.extname(name)] || "application/octet-stream" });
        response.end(name === "/index.html" ? bytes.toString().replace("</body>", () => look + "</body>") : bytes);
    });
});
server.listen(0, "127.0.0.1", () => {
    const page = `http://127.0.0.1:${server.address().port}/index.html#profileURL=/profile.json`;
    // speedscope needs WebGL. Without a graphics card Chromium provides it with SwiftShader.
    const options = ["--headless", "--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--remote-debugging-port=0"];
    browser = spawn("chromium", [...options, "--user-data-dir=" + user, page], { stdio: "ignore" });
    browser.on("error", error => { throw error; });
});
