//! The harness of the end-to-end tests: it drives the built `ipath` command from outside, with
//! small target programs and with gdb as an independent oracle.
//!
//! A test here knows only the command-line contract and the profile format, nothing of ipath's
//! crates. A failure is a panic whose message names the command, its output and a folder with the
//! state of the processes involved.

pub mod apart;
pub mod command;
pub mod compare;
pub mod compile;
pub mod debug_server;
pub mod dump;
pub mod each_way;
pub mod elf32;
pub mod epoch;
pub mod exact;
pub mod exported;
pub mod faulty;
pub mod fold;
pub mod gcov;
pub mod halo;
pub mod headers;
pub mod inside;
pub mod inside_stepped;
pub mod inside_trips;
pub mod instrument;
pub mod lines;
pub mod memory_group;
pub mod oracle;
pub mod own_times;
pub mod page;
pub mod place;
pub mod pointed;
pub mod profile;
pub mod program;
pub mod projects;
pub mod pty;
pub mod questions;
pub mod racing;
pub mod receiver;
pub mod redis;
pub mod schema;
pub mod session;
pub mod shm;
pub mod simulated;
pub mod snapshot;
pub mod stands;
pub mod stepped;
pub mod stepped_where;
pub mod survive;
pub mod symbols;
pub mod target;
pub mod terminal;
pub mod told;
pub mod tools;
pub mod trace;
pub mod valgrind;
