//! What a client asks, and what it is answered.

use std::sync::Arc;

/// Most headers of a request.
const MOST_HEADERS: usize = 64;

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Status code, and what that is called.
    pub status: (u16, &'static str),
    /// Media type.
    pub kind: &'static str,
    /// The content, which many answers may share.
    pub text: Arc<str>,
}

impl Answer {
    /// A line of text.
    pub fn line(status: (u16, &'static str), text: String) -> Self {
        Self {
            status,
            kind: "text/plain; charset=utf-8",
            text: text.into(),
        }
    }
}

/// What the head of a request says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) accept: String,
}

impl Asked {
    /// True of GET and HEAD.
    pub(super) fn is_read(&self) -> bool {
        matches!(self.method.as_str(), "GET" | "HEAD")
    }
}

/// What a head asks for; nothing yet where it is not all of it.
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
    // With the server named, as to a proxy (RFC 9112, 3.2.2).
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
