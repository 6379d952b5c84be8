//! The supported servers, and requests to send them profiles.

use clap::ValueEnum;
use ureq::http::Uri;

use super::{Answer, Outcome, Series, otlp, parca, pyroscope};
use ipath_profile::Profile;
use ipath_profile::export::{Callers, ExportError, to_pprof, to_pprof_message};

/// The kinds of servers that profiles are sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Grafana Pyroscope, and what else takes its POST /ingest
    Pyroscope,
    /// Parca, by gRPC-Web
    Parca,
    /// What takes OpenTelemetry's profiles by OTLP/HTTP, whose definition is in development: that
    /// of opentelemetry-proto in November 2026
    Otlp,
}

/// A server that takes profiles.
#[derive(Clone, Debug)]
pub struct Server {
    kind: Kind,
    /// The address for requests and messages, such as `http://host:4040/ingest`.
    url: String,
}

/// A POST request to a server of profiles.
#[derive(Clone, Debug)]
pub struct Request {
    pub(super) url: String,
    /// The names and values of the query's parameters, not yet encoded.
    pub(super) query: Vec<(&'static str, String)>,
    /// The media type of the body.
    pub(super) media_type: &'static str,
    /// The compression of the body, unless the media type implies it.
    pub(super) encoding: Option<&'static str>,
    pub(super) body: Vec<u8>,
}

impl Server {
    /// Parses an address: the root of a server, a folder, or the exact address for profiles. The
    /// exact address also determines the kind of server, unless `kind` is given.
    ///
    /// # Errors
    /// The address is invalid. The message does not contain it, since it may contain secrets.
    pub fn at(url: &str, kind: Option<Kind>) -> Result<Self, String> {
        let uri: Uri = url
            .parse()
            .map_err(|_| "that is not an address".to_owned())?;
        let (scheme, authority) = match (uri.scheme_str(), uri.authority()) {
            (Some(scheme @ ("http" | "https")), Some(authority)) => (scheme, authority),
            _ => return Err("an address begins with http:// or https://".to_owned()),
        };
        if authority.as_str().contains('@') {
            return Err("an address is public, and must not contain a password".to_owned());
        }
        if uri.query().is_some() || url.contains('#') {
            return Err("an address has no parameters".to_owned());
        }
        let path = uri.path().trim_end_matches('/');
        // OTLP is in development, so it is never guessed.
        let mut by_path = [Kind::Pyroscope, Kind::Parca].into_iter();
        let by_path = by_path.find(|kind| path.ends_with(kind.path()));
        let kind = kind.or(by_path).unwrap_or(Kind::Pyroscope);
        let rest = if path.ends_with(kind.path()) {
            ""
        } else {
            kind.path()
        };
        Ok(Self {
            kind,
            url: format!("{scheme}://{authority}{path}{rest}"),
        })
    }

    /// The address for profiles.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The request that sends a profile as part of this series.
    ///
    /// # Errors
    /// The profile cannot be exported.
    pub fn request(
        &self,
        series: &Series,
        profile: &Profile,
        metric: Option<&str>,
    ) -> Result<Request, ExportError> {
        let pprof = || {
            let mut pprof = Vec::new();
            to_pprof(profile, metric, Callers::default(), None, &mut pprof)?;
            Ok::<_, ExportError>(pprof)
        };
        let (query, media_type, body) = match self.kind {
            Kind::Pyroscope => pyroscope::request(series, profile, pprof()?),
            Kind::Parca => parca::request(series, pprof()?),
            Kind::Otlp => {
                let message = to_pprof_message(profile, metric)?;
                let (media_type, body) = otlp::request(series, &message)?;
                (Vec::new(), media_type, body)
            }
        };
        Ok(Request {
            url: self.url.clone(),
            query,
            media_type,
            encoding: (self.kind == Kind::Otlp).then_some("gzip"),
            body,
        })
    }

    /// The outcome that the server's answer means.
    pub fn judge(&self, answer: &Answer) -> Outcome {
        match (answer.outcome(), self.kind) {
            (Outcome::Accepted, Kind::Parca) => parca::outcome(answer),
            (Outcome::Accepted, Kind::Otlp) => otlp::outcome(answer),
            (outcome, _) => outcome,
        }
    }
}

impl Kind {
    /// The end of the address that takes profiles.
    fn path(self) -> &'static str {
        match self {
            Self::Pyroscope => pyroscope::PATH,
            Self::Parca => parca::PATH,
            Self::Otlp => otlp::PATH,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_which_server_it_is() {
        let at = |url: &str, kind| Server::at(url, kind).map(|server| server.url);
        let parca = "/parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw";
        for (url, kind, expected) in [
            ("http://h:4040", None, "http://h:4040/ingest".to_owned()),
            ("https://h/p/", None, "https://h/p/ingest".to_owned()),
            (
                "http://[::1]:1/ingest",
                None,
                "http://[::1]:1/ingest".to_owned(),
            ),
            ("http://h", Some(Kind::Parca), format!("http://h{parca}")),
            (
                "http://h:4318",
                Some(Kind::Otlp),
                "http://h:4318/v1development/profiles".to_owned(),
            ),
            (
                &format!("http://h/p{parca}"),
                None,
                format!("http://h/p{parca}"),
            ),
        ] {
            assert_eq!(at(url, kind), Ok(expected));
        }
        for wrong in [
            "h:4040",
            "ftp://h",
            "http://u:s3cr3t@h",
            "http://h/?t=s3cr3t",
            "",
            "http://",
        ] {
            let error = at(wrong, None).unwrap_err();
            assert!(!error.contains("s3cr3t"), "{error}");
        }
    }
}
