//! A server for profiles that a test starts on its own port: tests/programs/receiver.py.

use crate::command::Run;
use crate::compile::source;
use crate::place::{Scratch, workspace};
use crate::target::Target;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The folder of Debian's definition of pprof.
const PPROF: &str = "/usr/share/gocode/src/github.com/google/pprof/proto";

/// The server and the requests that it has received.
pub struct Receiver {
    /// None while it is down.
    server: Option<Target>,
    scratch: Scratch,
    port: String,
    /// The files of certificate and key; empty for a server without TLS.
    files: Vec<String>,
}

/// A profile that the server has accepted.
pub struct Accepted(
    /// The profile, as the server prints it.
    pub Value,
);

impl Receiver {
    /// A server that answers according to `plan`, one line per request; receiver.py lists the
    /// answers.
    pub fn start(plan: &[&str]) -> Self {
        Self::with(plan, &[])
    }

    /// Like [`Self::start`], with a certificate and its key.
    pub fn with(plan: &[&str], files: &[&Path]) -> Self {
        let mut receiver = Self {
            server: None,
            scratch: Scratch::new("receiver"),
            port: "0".to_owned(),
            files: files.iter().map(|f| f.display().to_string()).collect(),
        };
        receiver.plan(plan);
        receiver.up();
        receiver
    }

    /// Sets the answers to the next requests, in place of those not yet given.
    pub fn plan(&self, plan: &[&str]) {
        let lines: String = plan.iter().map(|line| format!("{line}\n")).collect();
        fs::write(self.scratch.file("plan"), lines).expect("a file of its own");
    }

    /// Starts the server, at the address of an earlier start, and waits until it listens.
    pub fn up(&mut self) {
        let mut args = vec!["serve".to_owned(), self.folder(), self.port.clone()];
        args.extend(self.files.iter().cloned());
        let script = source("receiver.py").display().to_string();
        args.insert(0, script);
        // Wait for the whole line. Python may write it in pieces if it does not buffer.
        let server = Target::start("python3", &args).await_output("\n");
        let port = server.stdout();
        let port = port.trim().strip_prefix("ready ").expect("its port");
        port.clone_into(&mut self.port);
        self.server = Some(server);
    }

    /// Stops the server.
    pub fn down(&mut self) {
        self.server = None;
    }

    fn folder(&self) -> String {
        self.scratch.path().display().to_string()
    }

    /// Its URL without a path.
    pub fn address(&self) -> String {
        let scheme = if self.files.is_empty() {
            "http"
        } else {
            "https"
        };
        format!("{scheme}://127.0.0.1:{}", self.port)
    }

    /// All requests so far in the order of their arrival, whatever their answers.
    pub fn requests(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.scratch.file("requests")).unwrap_or_default();
        let lines = text.lines();
        lines
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }

    /// The path of the file with the body of a request.
    pub fn body(&self, request: &Value) -> PathBuf {
        let name = request["body"].as_str().expect("the name of a file");
        self.scratch.file(name)
    }

    /// The number of requests accepted so far.
    pub fn accepted_count(&self) -> usize {
        let requests = self.requests();
        requests.iter().filter(|r| r["answer"] == "ok").count()
    }

    /// The profiles that it has accepted, decoded by the public definitions.
    pub fn accepted(&self) -> Vec<Accepted> {
        let protos = workspace().join("tests/protos");
        let read = Run::new("python3").arg(source("receiver.py"));
        let read = read.args(["read", &self.folder(), PPROF]).arg(protos);
        let all = read.run().expect(0).json();
        let all = all.as_array().expect("a list").iter();
        all.cloned().map(Accepted).collect()
    }
}

impl Accepted {
    /// A query parameter of the request; empty if it has none of this name.
    pub fn query(&self, name: &str) -> &str {
        self.0["query"][name].as_str().unwrap_or_default()
    }

    /// The start of the profile, in nanoseconds since 1970-01-01, and its duration in nanoseconds.
    pub fn time(&self) -> (u64, u64) {
        let number = |name: &str| self.0["profile"][name].as_u64().expect("a number");
        (number("from"), number("ns"))
    }
}

/// The sums of a metric over all profiles, by the two innermost functions of the path.
pub fn sums(accepted: &[Accepted], metric: &str) -> BTreeMap<String, i64> {
    let mut sums = BTreeMap::new();
    for profile in accepted {
        let paths = profile.0["profile"]["sums"].as_object().expect("sums");
        for (path, values) in paths {
            let names: Vec<&str> = path.split(' ').take(2).collect();
            *sums.entry(names.join(" ")).or_default() += values[metric].as_i64().expect("a sum");
        }
    }
    sums
}
