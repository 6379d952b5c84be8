//! Profiles for servers that store the profiles of many machines: the requests for each kind of
//! server, and the meaning of its answers.
//!
//! The command chooses the profiles and the times.

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
