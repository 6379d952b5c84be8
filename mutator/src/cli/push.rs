//! Where profiles are sent, and how.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::parse::{duration, label};
use crate::push::Kind;

/// Where profiles are sent, and how.
#[derive(Debug, Args)]
#[group(id = "of_push")]
pub struct Push {
    /// Address of the server, http or https: its root, or the very address that takes profiles
    #[arg(long, value_name = "URL")]
    pub to: String,
    /// Kind of server [default: what the end of the address says, else pyroscope]
    #[arg(long = "as", value_name = "KIND")]
    pub kind: Option<Kind>,
    /// Send what has come since the last time, until the session is over (10s, 1m)
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub every: Option<Duration>,
    /// Leave out what was counted before
    #[arg(long, requires = "every")]
    pub from_now: bool,
    /// What the program is called at the server [default: the name of its file]
    #[arg(long)]
    pub name: Option<String>,
    /// Label of what is sent, beside host, pid, exe and those of the profile; NAME= leaves one out
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    pub labels: Vec<(String, String)>,
    /// Header of each request; @FILE has one a line, which other users do not see as they see arguments
    #[arg(long = "header", value_name = "NAME: VALUE")]
    pub headers: Vec<String>,
    /// Metric to send [default: all]
    #[arg(long)]
    pub metric: Option<String>,
    /// Longest time for one request
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s")]
    pub timeout: Duration,
    /// How long, at the end, is tried again what is not accepted
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "20s")]
    pub give_up: Duration,
    /// Profile to write of what is not accepted at the end, which can be pushed later; %r is the rank in an MPI job
    #[arg(short, long)]
    pub output: Option<PathBuf>,
}
