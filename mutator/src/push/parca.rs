//! Parca: `WriteRaw` of its proto/parca/profilestore/v1alpha1/profilestore.proto, by gRPC-Web, as
//! used by its own web pages.
//!
//! In many versions its JSON gateway is unreachable and answers with a web page.

use prost::Message;

use super::{Answer, Outcome, Series};

/// The path of the address.
pub(super) const PATH: &str = "/parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw";

/// The name of all series. The program's name is the label `job`, as for scraped profiles.
const NAME: &str = "ipath";

/// The length of a gRPC-Web frame's header: its kind, and the length of the data.
const HEAD: usize = 5;
/// The kind of the final frame, which contains the status.
const IS_TRAILER: u8 = 0x80;

/// Status codes for which a retry may succeed (gRPC, "Status codes and their use in gRPC"):
/// deadline exceeded, resource exhausted, aborted, unavailable.
const LATER: [u32; 4] = [4, 8, 10, 14];

#[derive(Clone, PartialEq, Message)]
struct WriteRawRequest {
    #[prost(message, repeated, tag = "2")]
    series: Vec<RawProfileSeries>,
}

#[derive(Clone, PartialEq, Message)]
struct RawProfileSeries {
    #[prost(message, optional, tag = "1")]
    labels: Option<LabelSet>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<RawSample>,
}

#[derive(Clone, PartialEq, Message)]
struct LabelSet {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct RawSample {
    #[prost(bytes = "vec", tag = "1")]
    raw_profile: Vec<u8>,
}

/// The query, the media type and the body.
pub(super) fn request(
    series: &Series,
    pprof: Vec<u8>,
) -> (Vec<(&'static str, String)>, &'static str, Vec<u8>) {
    let mut labels = series.labels.clone();
    labels
        .entry("job".to_owned())
        .or_insert_with(|| series.name.clone());
    let label = |(name, value): (String, String)| Label { name, value };
    let name = label(("__name__".to_owned(), NAME.to_owned()));
    let labels = std::iter::once(name).chain(labels.into_iter().map(label));
    let message = WriteRawRequest {
        series: vec![RawProfileSeries {
            labels: Some(LabelSet {
                labels: labels.collect(),
            }),
            samples: vec![RawSample { raw_profile: pprof }],
        }],
    };
    let message = message.encode_to_vec();
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let head = [&[0][..], &length.to_be_bytes()].concat();
    (
        Vec::new(),
        "application/grpc-web+proto",
        [head, message].concat(),
    )
}

/// The outcome of an answer with a successful HTTP status.
pub(super) fn outcome(answer: &Answer) -> Outcome {
    match answer.grpc.clone().or_else(|| trailer(&answer.body)) {
        Some((status, message)) => match status.parse() {
            Ok(0) => Outcome::Accepted,
            Ok(code) if LATER.contains(&code) => {
                Outcome::Later(said(code, &message), answer.retry_after)
            }
            Ok(code) => Outcome::Refused(said(code, &message)),
            Err(_) => Outcome::Refused("its answer has no status of gRPC".to_owned()),
        },
        None => Outcome::Refused("the server is not Parca".to_owned()),
    }
}

fn said(code: u32, message: &str) -> String {
    match message {
        "" => format!("gRPC status {code}"),
        message => format!("gRPC status {code}: {}", percent_decoded(message)),
    }
}

/// The status and message in the last frame of an answer. `None` without such a frame or status.
fn trailer(mut body: &[u8]) -> Option<(String, String)> {
    while let Some((head, rest)) = body.split_first_chunk::<HEAD>() {
        let [kind, length @ ..] = *head;
        let length = u32::from_be_bytes(length) as usize;
        let (frame, rest) = rest.split_at_checked(length)?;
        if kind & IS_TRAILER != 0 {
            let text = String::from_utf8_lossy(frame);
            let value = |name: &str| {
                let fields = text.lines().filter_map(|line| line.split_once(':'));
                let mut values =
                    fields.filter(|(field, _)| field.trim().eq_ignore_ascii_case(name));
                values.next().map(|(_, value)| value.trim().to_owned())
            };
            return Some((
                value("grpc-status")?,
                value("grpc-message").unwrap_or_default(),
            ));
        }
        body = rest;
    }
    None
}

/// Decodes a message that was percent-encoded for a header.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let code = after
            .get(..2)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let code = code.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (first, code) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(frames: &[(u8, &str)]) -> Answer {
        let frame = |&(kind, text): &(u8, &str)| {
            let length = (text.len() as u32).to_be_bytes();
            [&[kind][..], &length, text.as_bytes()].concat()
        };
        let body = frames.iter().flat_map(frame).collect();
        Answer {
            status: 200,
            body,
            ..Answer::default()
        }
    }

    #[test]
    fn the_status_stands_at_the_end() {
        let of = |frames: &[(u8, &str)]| outcome(&answer(frames));
        assert_eq!(
            of(&[(0, ""), (0x80, "grpc-status: 0\r\n")]),
            Outcome::Accepted
        );
        let refused = of(&[(0x80, "Grpc-Status: 3\r\nGrpc-Message: no%20name %zz%\r\n")]);
        assert_eq!(
            refused,
            Outcome::Refused("gRPC status 3: no name %zz%".to_owned())
        );
        let later = of(&[(0x80, "grpc-status: 14\r\n")]);
        assert_eq!(later, Outcome::Later("gRPC status 14".to_owned(), None));
        let page = Answer {
            body: b"<!doctype html>".to_vec(),
            ..answer(&[])
        };
        for other in [answer(&[]), answer(&[(0, "")]), page] {
            assert!(matches!(outcome(&other), Outcome::Refused(_)), "{other:?}");
        }
    }
}
