//! Requests and answers of the HTTP server.

use std::sync::Arc;

/// The most headers of a request.
const MOST_HEADERS: usize = 64;

/// An answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code and its reason phrase.
    pub status: (u16, &'static str),
    /// The media type of the content.
    pub kind: &'static str,
    /// The content, which may be shared between answers.
    pub text: Arc<str>,
}

impl Answer {
    /// An answer of one line of text.
    pub fn line(status: (u16, &'static str), text: String) -> Self {
        Self {
            status,
            kind: "text/plain; charset=utf-8",
            text: text.into(),
        }
    }
}

/// The parsed head of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) method: String,
    /// The requested path, without a query.
    pub(super) path: String,
    /// The values of all headers `Accept`, joined by commas.
    pub(super) accept: String,
}

impl Asked {
    /// True for GET and HEAD.
    pub(super) fn is_read(&self) -> bool {
        matches!(self.method.as_str(), "GET" | "HEAD")
    }
}

/// Parses the head of a request. `None` if it is not complete yet. An error if it is malformed.
pub(super) fn parse(head: &[u8]) -> Result<Option<Asked>, httparse::Error> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    if request.parse(head)?.is_partial() {
        return Ok(None);
    }
    let accepts = request.headers.iter();
    let accepts = accepts.filter(|header| header.name.eq_ignore_ascii_case("Accept"));
    let accepts: Vec<_> = accepts
        .map(|header| String::from_utf8_lossy(header.value))
        .collect();
    let target = request.path.unwrap_or_default();
    // The absolute form, as sent to a proxy (RFC 9112, 3.2.2).
    let target = match target.split_once("://") {
        Some((scheme, named)) if scheme.eq_ignore_ascii_case("http") => {
            named.find('/').map_or("/", |at| &named[at..])
        }
        _ => target,
    };
    let path = target.split('?').next().unwrap_or_default();
    Ok(Some(Asked {
        method: request.method.unwrap_or_default().to_owned(),
        path: path.to_owned(),
        accept: accepts.join(","),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_whole() {
        let text =
            b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\nACCEPT: one\r\nAccept: two\r\n\r\nbody";
        let end = text.len() - 4;
        for len in 0..end {
            assert_eq!(parse(&text[..len]), Ok(None), "{len}");
        }
        let asked = Asked {
            method: "GET".to_owned(),
            path: "/metrics".to_owned(),
            accept: "one,two".to_owned(),
        };
        assert_eq!(parse(text), Ok(Some(asked)));
        for (target, path) in [
            ("http://a:1/metrics?x", "/metrics"),
            ("HTTP://a:1/metrics", "/metrics"),
            ("http://a", "/"),
            ("/metrics?of=http://a/b", "/metrics"),
            ("*", "*"),
        ] {
            let head = format!("GET {target} HTTP/1.1\r\n\r\n");
            let asked = parse(head.as_bytes()).unwrap().unwrap();
            assert_eq!(asked.path, path, "{target}");
        }
        assert!(parse(b"\0\0\0").is_err());
        assert!(parse(b"GET /metrics HTTP/9.9\r\n\r\n").is_err());
    }
}
