//! The HTTP client. Each request has a time limit. Redirects are not followed, so that secrets go
//! to no other server.

use std::io::{ErrorKind, Read};
use std::time::{Duration, SystemTime};

use ureq::config::Config;
use ureq::http::HeaderMap;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Error};

use super::{Answer, Headers, Outcome, Request, Server};
use ipath_base::error::io_text;

/// The most bytes of an answer that are read.
const MAX_ANSWER_BYTES: u64 = 64 << 10;

/// Sends requests to a server.
#[derive(Clone, Debug)]
pub struct Client {
    agent: Agent,
    server: Server,
    headers: Headers,
}

impl Client {
    /// Creates a client that sends `headers` with each request to `server`.
    ///
    /// # Errors
    /// The address uses https, and the system has no trusted certificates.
    pub fn new(server: Server, headers: Headers) -> Result<Self, String> {
        let config = Config::builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            // Requests are so far apart that a server may close an idle connection.
            .max_idle_connections(0)
            .user_agent(concat!("ipath/", env!("CARGO_PKG_VERSION")));
        let config = if server.url().starts_with("https:") {
            config.tls_config(tls()?)
        } else {
            config
        };
        Ok(Self {
            agent: config.build().new_agent(),
            server,
            headers,
        })
    }

    /// The server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Sends a request. Returns its outcome within the time limit.
    pub fn send(&self, request: &Request, limit: Duration) -> Outcome {
        let outcome = match self.answer(request, limit) {
            Ok(answer) => self.server.judge(&answer),
            Err(error) => outcome(error, limit),
        };
        let hidden = |text: String| self.headers.hidden_in(&text);
        match outcome {
            Outcome::Accepted => Outcome::Accepted,
            Outcome::Later(cause, asked) => Outcome::Later(hidden(cause), asked),
            Outcome::Refused(cause) => Outcome::Refused(hidden(cause)),
        }
    }

    fn answer(&self, request: &Request, limit: Duration) -> Result<Answer, Error> {
        let query = request
            .query
            .iter()
            .map(|(name, value)| (*name, value.as_str()));
        let mut asked = self.agent.post(&request.url).query_pairs(query);
        for (name, value) in self.headers.iter() {
            asked = asked.header(name, value);
        }
        let mut asked = asked.header("Content-Type", request.media_type);
        if let Some(encoding) = request.encoding {
            asked = asked.header("Content-Encoding", encoding);
        }
        let asked = asked.config().timeout_global(Some(limit)).build();
        let mut response = asked.send(&request.body[..])?;
        let mut body = Vec::new();
        // A partial body is good enough for a message.
        let _ = response
            .body_mut()
            .as_reader()
            .take(MAX_ANSWER_BYTES)
            .read_to_end(&mut body);
        let headers = response.headers();
        let grpc = text(headers, "grpc-status");
        Ok(Answer {
            status: response.status().as_u16(),
            retry_after: text(headers, "retry-after").and_then(|text| time_from_now(&text)),
            location: text(headers, "location"),
            grpc: grpc.map(|status| (status, text(headers, "grpc-message").unwrap_or_default())),
            body,
        })
    }
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    let value = headers.get(name)?;
    Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
}

/// Parses `Retry-After`: seconds, or a date (RFC 9110, 10.2.3). `None` for other text, or a date in
/// the past.
fn time_from_now(text: &str) -> Option<Duration> {
    let seconds = text.trim().parse().ok().map(Duration::from_secs);
    let date = || httpdate::parse_http_date(text.trim()).ok();
    seconds.or_else(|| date()?.duration_since(SystemTime::now()).ok())
}

/// A TLS configuration with rustls. It uses the certificates that the system trusts, or those in
/// `SSL_CERT_FILE` and `SSL_CERT_DIR`.
fn tls() -> Result<TlsConfig, String> {
    // Fails if a provider is installed already, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let cause = found.errors.first().map(|e| format!(": {e}"));
        let cause = cause.unwrap_or_default();
        return Err(format!("no certificates are found on this system{cause}"));
    }
    let own = |der: &_| Certificate::from_der(AsRef::<[u8]>::as_ref(der)).to_owned();
    let certificates: Vec<Certificate<'static>> = found.certs.iter().map(own).collect();
    let roots = RootCerts::new_with_certs(&certificates);
    Ok(TlsConfig::builder().root_certs(roots).build())
}

/// The outcome of a request without an answer.
fn outcome(error: Error, limit: Duration) -> Outcome {
    let later = |cause: String| Outcome::Later(cause, None);
    match error {
        Error::Timeout(_) => later(format!("no answer within {:.1} s", limit.as_secs_f64())),
        // ureq reports errors of rustls as this kind.
        Error::Io(error) if error.kind() == ErrorKind::InvalidData => {
            Outcome::Refused(format!("TLS: {error}"))
        }
        Error::Io(error) => later(io_text(&error)),
        Error::HostNotFound => later("its name is not known".to_owned()),
        Error::ConnectionFailed | Error::BodyStalled | Error::Protocol(_) => {
            later(error.to_string())
        }
        Error::Rustls(error) => Outcome::Refused(format!("TLS: {error}")),
        Error::Tls(text) => Outcome::Refused(format!("TLS: {text}")),
        error => Outcome::Refused(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_says_when_by_seconds_or_by_a_date() {
        assert_eq!(time_from_now(" 7 "), Some(Duration::from_secs(7)));
        let date = SystemTime::now() + Duration::from_secs(1000);
        let time = time_from_now(&httpdate::fmt_http_date(date)).unwrap();
        assert!(time > Duration::from_secs(900) && time <= Duration::from_secs(1000));
        assert_eq!(time_from_now("Thu, 01 Jan 1970 00:00:00 GMT"), None);
        assert_eq!(time_from_now("soon"), None);
    }
}
