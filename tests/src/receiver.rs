//! A server for profiles, started by a test on a port of its own: tests/programs/receiver.py.

use crate::command::Run;
use crate::compile::source;
use crate::place::{Scratch, workspace};
use crate::target::Target;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Where Debian has the definition of pprof.
const PPROF: &str = "/usr/share/gocode/src/github.com/google/pprof/proto";

/// The server, and what it has been sent.
pub struct Receiver {
    /// None while it is down.
    server: Option<Target>,
    scratch: Scratch,
    port: String,
    /// Certificate and key.
    files: Vec<String>,
}

/// A profile that the server has accepted.
pub struct Accepted(
    /// As the server shows it.
    pub Value,
);

impl Receiver {
    /// One that answers what `plan` says, a line a request.
    pub fn start(plan: &[&str]) -> Self {
        Self::with(plan, &[])
    }

    /// The same with a certificate and its key.
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

    /// Has the next requests be answered so.
    pub fn plan(&self, plan: &[&str]) {
        let lines: String = plan.iter().map(|line| format!("{line}\n")).collect();
        fs::write(self.scratch.file("plan"), lines).expect("a file of its own");
    }

    /// Goes on, at the same address.
    pub fn up(&mut self) {
        let mut args = vec!["serve".to_owned(), self.folder(), self.port.clone()];
        args.extend(self.files.iter().cloned());
        let script = source("receiver.py").display().to_string();
        args.insert(0, script);
        // The whole line, which comes in pieces where Python does not buffer.
        let server = Target::start("python3", &args).await_output("\n");
        let port = server.stdout();
        let port = port.trim().strip_prefix("ready ").expect("its port");
        port.clone_into(&mut self.port);
        self.server = Some(server);
    }

    /// Ends it.
    pub fn down(&mut self) {
        self.server = None;
    }

    fn folder(&self) -> String {
        self.scratch.path().display().to_string()
    }

    /// Its address without a path.
    pub fn address(&self) -> String {
        let scheme = if self.files.is_empty() {
            "http"
        } else {
            "https"
        };
        format!("{scheme}://127.0.0.1:{}", self.port)
    }

    /// What has come, whatever it was answered.
    pub fn requests(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.scratch.file("requests")).unwrap_or_default();
        let lines = text.lines();
        lines
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }

    /// The body of one of these.
    pub fn body(&self, request: &Value) -> PathBuf {
        let name = request["body"].as_str().expect("the name of a file");
        self.scratch.file(name)
    }

    /// How many have been accepted so far.
    pub fn accepted_count(&self) -> usize {
        let requests = self.requests();
        requests.iter().filter(|r| r["answer"] == "ok").count()
    }

    /// The profiles that it has accepted, as the public definitions have them.
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
    /// A parameter of the request's address.
    pub fn query(&self, name: &str) -> &str {
        self.0["query"][name].as_str().unwrap_or_default()
    }

    /// What it covers: when it began, and for how long, in ns.
    pub fn time(&self) -> (u64, u64) {
        let number = |name: &str| self.0["profile"][name].as_u64().expect("a number");
        (number("from"), number("ns"))
    }
}

/// The sums of a metric over all profiles by path, of the two innermost functions.
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
