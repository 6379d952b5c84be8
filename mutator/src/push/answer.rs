//! The answer of a server, and the outcome that it means.

use std::time::Duration;

/// The answer to a request.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The HTTP status of the answer.
    pub status: u16,
    /// The time until a retry, from the header `Retry-After`.
    pub retry_after: Option<Duration>,
    /// The target of a redirect.
    pub location: Option<String>,
    /// The gRPC status and message, if they are in headers of the answer.
    pub grpc: Option<(String, String)>,
    /// The start of the body.
    pub body: Vec<u8>,
}

/// The outcome of sending a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server has the profile.
    Accepted,
    /// The server does not have the profile, and may accept it later. With the cause, and the delay
    /// that the server requests.
    Later(String, Option<Duration>),
    /// The server rejects the profile.
    Refused(String),
}

impl Answer {
    /// The outcome by the HTTP status alone. The body of a successful answer may still report a
    /// rejection.
    pub(super) fn outcome(&self) -> Outcome {
        let said = || match self.words() {
            words if words.is_empty() => self.title(),
            words => format!("{}: {words}", self.title()),
        };
        match self.status {
            200..=299 => Outcome::Accepted,
            // RFC 9110, 15.5.9 and 15.6; RFC 6585, 4.
            408 | 429 | 500..=599 => Outcome::Later(said(), self.retry_after),
            300..=399 => Outcome::Refused(match &self.location {
                Some(elsewhere) => {
                    format!("{} to {elsewhere}, which is not followed", self.title())
                }
                None => self.title(),
            }),
            _ => Outcome::Refused(said()),
        }
    }

    fn title(&self) -> String {
        let status = ureq::http::StatusCode::from_u16(self.status).ok();
        let reason = status.and_then(|status| status.canonical_reason());
        format!("{} {}", self.status, reason.unwrap_or_default())
            .trim_end()
            .to_owned()
    }

    /// The start of the answer's text.
    fn words(&self) -> String {
        const MAX_CHARS: usize = 300;
        let text = String::from_utf8_lossy(&self.body);
        text.trim().chars().take(MAX_CHARS).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_say_whether_it_is_worth_trying_again() {
        let of = |status: u16| {
            let body = b"because\n".to_vec();
            let retry_after = Some(Duration::from_secs(7));
            Answer {
                status,
                retry_after,
                body,
                ..Answer::default()
            }
            .outcome()
        };
        assert_eq!(of(204), Outcome::Accepted);
        let seven = Some(Duration::from_secs(7));
        let later = |text: &str| Outcome::Later(text.to_owned(), seven);
        assert_eq!(of(503), later("503 Service Unavailable: because"));
        assert_eq!(of(429), later("429 Too Many Requests: because"));
        assert_eq!(of(599), later("599: because"));
        let refused = |text: &str| Outcome::Refused(text.to_owned());
        assert_eq!(of(401), refused("401 Unauthorized: because"));
        assert_eq!(of(302), refused("302 Found"));
    }
}
