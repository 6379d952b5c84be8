//! `push`: sends profiles to a server that stores the profiles of many machines.
//!
//! Each request contains the increase since the last accepted profile. So nothing is lost while a
//! server is away, and only that one profile is kept: the next accepted profile covers a longer
//! time.

mod part;
mod sending;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, Instant};

use super::looked::Looked;
use super::output::print;
use super::rank_file::names_rank;
use super::remarks::warn;
use super::target::{load, open_all};
use super::watch::hold;
use crate::cli::Push;
use crate::failure::Failure;
use crate::push::{Client, Headers, Outcome, Series, Server, Wait};
use ipath_base::error::io_text;
use ipath_base::hint::{Hint, Words, hint};
use ipath_base::printable::Page;
use ipath_session::session::Session;
use ipath_target::process::Pid;
use ipath_target::signals::Signals;

use part::{OPERATION, Part};
use sending::{Awaited, Heard, Sending, hear};

/// The time between two checks for the end of a session.
const A_LOOK: Duration = Duration::from_millis(200);

/// Sends a profile, or the measurements of the sessions of a process or job.
pub(super) fn push(target: &OsStr, options: &Push) -> Result<(), Failure> {
    let server = Server::at(&options.to, options.kind).map_err(|cause| {
        let failure = Failure::new(OPERATION, "--to", cause);
        failure.hint("http://HOST:PORT; a token goes into IPATH_PUSH_TOKEN or `--header @FILE`")
    })?;
    let url = server.url().to_owned();
    let headers = Headers::of(&options.headers);
    let headers = headers.map_err(|cause| Failure::new(OPERATION, "--header", cause))?;
    let parts = parts(target, options)?;
    let client = Client::new(server, headers);
    let client = client.map_err(|cause| {
        Failure::new(OPERATION, &url, cause).hint("SSL_CERT_FILE names a file with certificates")
    })?;
    let pushing = Pushing {
        ending: options
            .every
            .is_none()
            .then(|| Instant::now() + options.give_up),
        url,
        client,
        labels: options.labels.iter().cloned().collect(),
        options,
        parts,
        signals: hold(OPERATION)?,
        wait: Wait::default(),
        trouble: None,
        next: Instant::now(),
        asked_to_end: None,
        told: Told::default(),
    };
    pushing.run()
}

/// The profiles to send.
fn parts(target: &OsStr, options: &Push) -> Result<Vec<Part>, Failure> {
    let pid = target.to_str().and_then(|text| text.parse::<i32>().ok());
    let Some(pid) = pid.filter(|&pid| pid > 0).map(Pid) else {
        let file = Path::new(target);
        if options.every.is_some() {
            let cause = "--every is for a process: a file does not change";
            return Err(Failure::new(OPERATION, file.display(), cause));
        }
        let profile = load(OPERATION, file)?;
        let part = Part::of_file(file, profile, options.output.as_deref())?;
        return Ok(vec![part]);
    };
    let sessions = open_all(OPERATION, pid, Session::open)?;
    let looked: Vec<Looked> = sessions.into_iter().map(Looked::of).collect();
    let output = options.output.as_deref();
    if let Some(output) = output.filter(|_| looked.len() > 1)
        && !names_rank(output)
    {
        let cause = "one file for several ranks: put %r, the rank, into its name";
        return Err(Failure::new("write", output.display(), cause));
    }
    let part = |looked| Part::of_session(looked, output, options.from_now);
    looked.into_iter().map(part).collect()
}

/// The state of sending profiles to a server.
struct Pushing<'o> {
    url: String,
    client: Client,
    options: &'o Push,
    /// Labels from the command line.
    labels: BTreeMap<String, String>,
    parts: Vec<Part>,
    signals: Signals,
    wait: Wait,
    /// The reason why the last profile was not accepted.
    trouble: Option<String>,
    /// The time of the next request.
    next: Instant,
    /// The deadline of the last attempts, once no more data will come.
    ending: Option<Instant>,
    /// The time of the signal that requested the end.
    asked_to_end: Option<Instant>,
    told: Told,
}

/// The profiles and calls sent so far.
#[derive(Default)]
struct Told {
    profiles: u64,
    calls: u64,
}

/// The reason for stopping.
enum Stopped {
    /// The server refuses the profile, or there is nothing to send.
    Failed(Failure),
    /// The time is up, or a further signal has arrived.
    GivenUp,
}

impl Pushing<'_> {
    fn run(mut self) -> Result<(), Failure> {
        let Err(stopped) = self.until_done() else {
            let Told { profiles, calls } = self.told;
            self.signals.release();
            let what = match profiles {
                1 => "1 profile".to_owned(),
                n => format!("{n} profiles"),
            };
            let text = format!("{what} of {calls} calls sent to {}\n", self.url);
            return print(&Page::of(&text));
        };
        let (mut left, mut kept) = (0_u64, Vec::new());
        for part in self.parts.iter_mut().filter(|part| !part.is_done) {
            part.look();
            left = left.saturating_add(part.calls_left());
            match part.keep() {
                Ok(written) => kept.extend(written),
                Err((path, error)) => warn(&format!("write {path}: {}", io_text(&error))),
            }
        }
        self.signals.release();
        let failure = match stopped {
            Stopped::Failed(failure) => failure,
            Stopped::GivenUp => {
                let cause = self.trouble.as_deref();
                let cause = cause.unwrap_or("ipath was ended before the server accepted them");
                let cause = format!("{left} calls were not accepted: {cause}");
                Failure::new(OPERATION, &self.url, cause)
            }
        };
        // The data of a file is in that file already.
        let may_keep = self.parts.iter().any(Part::is_session) && failure.hint_text().is_none();
        Err(match (kept.is_empty(), may_keep) {
            (false, _) => failure.hint(match kept.len() {
                1 => hint!("{} keeps the calls that were not accepted", Words(&kept)),
                _ => hint!("{} keep the calls that were not accepted", Words(&kept)),
            }),
            (true, true) => failure.hint("-o FILE keeps calls that are not accepted"),
            (true, false) => failure,
        })
    }

    fn until_done(&mut self) -> Result<(), Stopped> {
        loop {
            let is_last = self.ending.is_some();
            let is_sent = self.round()?;
            // Counts up to the request to end must be sent too.
            if self.parts.iter().all(|part| part.is_done) || (is_last && is_sent) {
                return Ok(());
            }
            self.rest()?;
        }
    }

    /// Sends all pending profiles. Returns true if all are accepted.
    fn round(&mut self) -> Result<bool, Stopped> {
        let began = Instant::now();
        for at in 0..self.parts.len() {
            let part = &mut self.parts[at];
            if part.is_done {
                continue;
            }
            let is_over = part.look();
            let lost = std::mem::take(&mut part.lost);
            if lost > 0 {
                let who = &part.who;
                warn(&format!(
                    "{OPERATION} {who}: {lost} calls have moved to other paths, and are counted \
                    twice"
                ));
            }
            let Some(rest) = &mut part.rest else {
                part.is_done = is_over;
                continue;
            };
            let series = Series::of(rest, self.options.name.as_deref(), &self.labels);
            let (calls, ns) = (rest.calls(), rest.session.elapsed_ns);
            // The series contains them.
            let labels = std::mem::take(&mut rest.target.labels);
            let metric = self.options.metric.as_deref();
            let request = self.client.server().request(&series, rest, metric);
            rest.target.labels = labels;
            let request = request.map_err(|e| {
                let hint = e.hint().map(Hint::from);
                Stopped::Failed(Failure::new(OPERATION, &part.who, e).maybe_hint(hint))
            })?;
            let limit = self.limit()?;
            let sending = Sending::begin(&self.client, request, limit);
            let sending = sending
                .map_err(|e| Stopped::Failed(Failure::new(OPERATION, &self.url, io_text(&e))))?;
            match self.outcome(sending)? {
                Outcome::Accepted => {
                    self.told.profiles += 1;
                    self.told.calls = self.told.calls.saturating_add(calls);
                    self.wait = Wait::default();
                    let part = &mut self.parts[at];
                    part.accepted();
                    part.is_done = is_over;
                    if self.trouble.take().is_some() {
                        let seconds = ns as f64 / 1e9;
                        warn(&format!(
                            "{OPERATION} {}: accepted again, one profile of {seconds:.1} s",
                            self.url
                        ));
                    }
                }
                Outcome::Later(cause, asked) => {
                    if self.trouble.as_ref() != Some(&cause) {
                        warn(&format!(
                            "{OPERATION} {}: {cause}: ipath will try again",
                            self.url
                        ));
                    }
                    self.trouble = Some(cause);
                    let now = Instant::now();
                    let left = self.ending.map(|end| end.saturating_duration_since(now));
                    self.next = now + self.wait.after(asked, left);
                    return Ok(false);
                }
                Outcome::Refused(cause) => {
                    return Err(Stopped::Failed(Failure::new(OPERATION, &self.url, cause)));
                }
            }
        }
        self.next = match (self.ending, self.options.every) {
            (None, Some(every)) => began + every,
            _ => began,
        };
        Ok(true)
    }

    /// The longest time for one request. An error if no time is left.
    fn limit(&self) -> Result<Duration, Stopped> {
        let Some(end) = self.ending else {
            return Ok(self.options.timeout);
        };
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            Err(Stopped::GivenUp)
        } else {
            Ok(left.min(self.options.timeout))
        }
    }

    /// Waits for an outcome. The first signal does not abandon a request in progress: the server
    /// may accept it, and the data would be sent again.
    fn outcome(&mut self, sending: Sending) -> Result<Outcome, Stopped> {
        loop {
            match hear(&self.signals, Awaited::Outcome(&sending, self.ending)) {
                Heard::Signal => self.end()?,
                Heard::Outcome(outcome) => return Ok(outcome),
                Heard::Nothing => {}
            }
        }
    }

    /// Waits until the next request is due. An error if that is after the deadline.
    fn rest(&mut self) -> Result<(), Stopped> {
        if self.ending.is_some_and(|end| self.next >= end) {
            return Err(Stopped::GivenUp);
        }
        loop {
            let now = Instant::now();
            if now >= self.next {
                return Ok(());
            }
            match hear(&self.signals, Awaited::Time(A_LOOK.min(self.next - now))) {
                Heard::Signal => {
                    self.end()?;
                    self.next = now;
                }
                Heard::Outcome(_) | Heard::Nothing => {}
            }
            if self.ending.is_none() && self.parts.iter().all(Part::is_over) {
                self.ending = Some(now + self.options.give_up);
                self.next = now;
            }
        }
    }

    /// Handles a signal. After the first one, pending data is still sent. A further one is an
    /// error.
    fn end(&mut self) -> Result<(), Stopped> {
        /// Signals within this time count as one: timeout(1) sends its signal to the program and to
        /// the program's group.
        const AT_ONCE: Duration = Duration::from_millis(250);
        let now = Instant::now();
        let is_first = self.ending.is_none();
        let is_same = || self.asked_to_end.is_some_and(|at| now - at < AT_ONCE);
        if !is_first && !is_same() {
            return Err(Stopped::GivenUp);
        }
        self.signals.end_is_under_way();
        if is_first {
            self.asked_to_end = Some(now);
            self.ending = Some(now + self.options.give_up);
        }
        Ok(())
    }
}
