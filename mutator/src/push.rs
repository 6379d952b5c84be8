//! Profiles for the servers that keep those of many machines: what a request to each kind looks like, and what an answer means.
//!
//! Not its business: which profiles, and when; that is the command's.

mod answer;
mod client;
mod headers;
mod otlp;
mod parca;
mod pyroscope;
mod series;
mod server;
mod wait;

pub use answer::{Answer, Outcome};
pub use client::Client;
pub use headers::Headers;
pub use series::{Series, label_name};
pub use server::{Kind, Request, Server};
pub use wait::Wait;
