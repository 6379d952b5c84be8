"""A server that receives profiles like Pyroscope and Parca, and gives prepared answers.

receiver.py serve FOLDER PORT [CERTIFICATE KEY]
    Prints `ready PORT`. Each request takes the next line of FOLDER/plan as its answer: `ok`,
    `STATUS [RETRY_AFTER [TEXT]]`, `to URL` (a redirect), `page` (200 and HTML),
    `grpc STATUS MESSAGE`, or `hang SECONDS`. Without a line the answer is `ok`. `{token}` in TEXT is
    replaced by the received token. Appends each request to FOLDER/requests as a line of JSON, and
    writes its body to a file in FOLDER.
receiver.py read FOLDER PROTO_FOLDER...
    Prints the accepted requests as JSON. protoc decodes the bodies with the definitions in these
    folders.
"""

import gzip
import json
import os
import re
import ssl
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


def trailer(status, message):
    text = f"grpc-status: {status}\r\ngrpc-message: {message}\r\n".encode()
    return b"\x80" + len(text).to_bytes(4, "big") + text


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def next_answer(self):
        plan = os.path.join(self.server.folder, "plan")
        lines = open(plan).read().splitlines() if os.path.exists(plan) else []
        with open(plan + ".new", "w") as rest:
            rest.write("".join(line + "\n" for line in lines[1:]))
        os.rename(plan + ".new", plan)
        return lines[0] if lines else "ok"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        folder = self.server.folder
        number = self.server.count = self.server.count + 1
        name = f"{os.getpid()}.{number}.body"
        with open(os.path.join(folder, name), "wb") as file:
            file.write(body)
        answer = self.next_answer()
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        headers = {key.lower(): value for key, value in self.headers.items()}
        said = {"path": url.path, "query": query, "headers": headers, "answer": answer, "body": name}
        with open(os.path.join(folder, "requests"), "a") as log:
            log.write(json.dumps(said) + "\n")
        self.answer(answer, url.path.endswith("/WriteRaw"), headers.get("authorization", ""))

    def answer(self, answer, is_parca, token):
        kind, _, rest = answer.partition(" ")
        if kind == "hang":
            time.sleep(float(rest))
            self.close_connection = True
            return
        status, more, body = 200, {}, b""
        if kind == "ok" and is_parca:
            more, body = {"Content-Type": "application/grpc-web+proto"}, b"\0\0\0\0\0" + trailer(0, "")
        elif kind == "grpc":
            code, _, message = rest.partition(" ")
            body = trailer(code, message)
        elif kind == "to":
            status, more = 307, {"Location": rest}
        elif kind == "page":
            more, body = {"Content-Type": "text/html"}, b"<!doctype html>"
        elif kind != "ok":
            after, _, text = rest.partition(" ")
            status = int(kind)
            body = text.encode().decode("unicode_escape").replace("{token}", token).encode()
            if after not in ("", "-"):
                more["Retry-After"] = after
        self.send_response(status)
        for key, value in more.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def serve(folder, port, *files):
    server = ThreadingHTTPServer(("127.0.0.1", int(port)), Receiver)
    server.daemon_threads = True
    server.folder, server.count = folder, 0
    if files:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*files)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    print("ready", server.server_address[1], flush=True)
    server.serve_forever()


def message(lines):
    """Parses protoc's text of a message into a dict of fields, each with a list of its values."""
    fields = {}
    for line in lines:
        line = line.strip()
        if line == "}":
            break
        if line.endswith("{"):
            fields.setdefault(line[:-2], []).append(message(lines))
        else:
            key, _, value = line.partition(": ")
            fields.setdefault(key, []).append(value)
    return fields


def decoded(data, kind, folders, file):
    include = [word for folder in folders for word in ("-I", folder)]
    command = ["protoc", *include, f"--decode={kind}", file]
    text = subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True).stdout.decode()
    # protoc prints unknown fields by their numbers.
    assert not re.search(r"^\s*\d", text, re.M), text
    return message(iter(text.splitlines()))


def unquoted(text):
    """Decodes a string or bytes of protobuf's text format."""
    escapes = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}

    def byte(found):
        code = found.group(1)
        return bytes([int(code, 8)]) if code.isdigit() else escapes.get(code, code)

    return re.sub(rb"\\([0-7]{3}|.)", byte, text[1:-1].encode(), flags=re.S)


def pprof(data, folders):
    """The sums by path, the time range, the keys of labels and the period of a pprof profile."""
    profile = decoded(gzip.decompress(data), "perftools.profiles.Profile", folders, "profile.proto")
    strings = [unquoted(text).decode() for text in profile["string_table"]]
    name = lambda entry, field: strings[int(entry.get(field, ["0"])[0])]
    functions = {f["id"][0]: name(f, "name") for f in profile["function"]}
    places = {at["id"][0]: [functions[line["function_id"][0]] for line in at["line"]] for at in profile["location"]}
    types = [name(kind, "type") for kind in profile["sample_type"]]
    sums, labels = {}, set()
    for sample in profile["sample"]:
        path = " ".join(name for at in sample["location_id"] for name in places[at])
        values = sums.setdefault(path, dict.fromkeys(types, 0))
        assert len(sample["value"]) == len(types), sample
        for kind, value in zip(types, sample["value"]):
            values[kind] += int(value)
        labels.update(name(label, "key") for label in sample.get("label", []))
    period = profile["period_type"][0]
    return {
        "sums": sums,
        "labels": sorted(labels),
        "from": int(profile["time_nanos"][0]),
        "ns": int(profile["duration_nanos"][0]),
        "period": [name(period, "type"), name(period, "unit"), int(profile["period"][0])],
    }


def read(folder, *folders):
    accepted = []
    path = os.path.join(folder, "requests")
    for line in open(path) if os.path.exists(path) else []:
        request = json.loads(line)
        if request["answer"] != "ok":
            continue
        body = open(os.path.join(folder, request["body"]), "rb").read()
        if request["path"].endswith("/WriteRaw"):
            length = int.from_bytes(body[1:5], "big")
            assert body[0] == 0 and len(body) == 5 + length, body[:5]
            kind = "parca.profilestore.v1alpha1.WriteRawRequest"
            raw = decoded(body[5:], kind, folders, "parca/profilestore/v1alpha1/profilestore.proto")
            [series] = raw["series"]
            [sample] = series["samples"]
            labels = series["labels"][0]["labels"]
            request["series"] = {unquoted(l["name"][0]).decode(): unquoted(l["value"][0]).decode() for l in labels}
            body = unquoted(sample["raw_profile"][0])
        accepted.append({**request, "profile": pprof(body, folders)})
    json.dump(accepted, sys.stdout)


if __name__ == "__main__":
    {"serve": serve, "read": read}[sys.argv[1]](*sys.argv[2:])
