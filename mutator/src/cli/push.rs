//! Options for sending profiles.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::parse::{duration, label};
use crate::push::Kind;

/// The server, and how profiles are sent to it.
#[derive(Debug, Args)]
#[group(id = "of_push")]
pub struct Push {
    /// Address of the server, http or https: its root, or the exact address that takes profiles
    #[arg(long, value_name = "URL")]
    pub to: String,
    /// Kind of server [default: by the end of the address, else pyroscope]
    #[arg(long = "as", value_name = "KIND")]
    pub kind: Option<Kind>,
    /// Send the calls since the last time, at this interval until the session is over (10s, 1m)
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub every: Option<Duration>,
    /// Leave out calls that were counted before
    #[arg(long, requires = "every")]
    pub from_now: bool,
    /// Name of the program at the server [default: the name of its file]
    #[arg(long)]
    pub name: Option<String>,
    /// Label to add to host, pid, exe and the labels of the profile; NAME= leaves one out
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    pub labels: Vec<(String, String)>,
    /// Header of each request; @FILE reads one header per line and hides them from other users, who
    /// can see arguments
    #[arg(long = "header", value_name = "NAME: VALUE")]
    pub headers: Vec<String>,
    /// Metric to send [default: all]
    #[arg(long)]
    pub metric: Option<String>,
    /// Maximum time for one request
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s")]
    pub timeout: Duration,
    /// How long to retry at the end if the server accepts nothing
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "20s")]
    pub give_up: Duration,
    /// File for the calls that the server has not accepted at the end, to be pushed later; %r is
    /// the rank in an MPI job
    #[arg(short, long)]
    pub output: Option<PathBuf>,
}
