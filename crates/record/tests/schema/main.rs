//! The result files as a contract: what is written can be read back and is the same, and the names
//! in it are those of the golden files beside this one. A file that somebody kept must stay
//! readable, so a golden file may grow, but nothing in it may change.
#![expect(clippy::unwrap_used, reason = "clippy allows it in tests, but not in what they share")]

mod bench_relay;
mod campaign;
mod choices;
mod clock;
mod clock_compare;
mod compare;
mod cycle;
mod cycle_predict;
mod cycle_test;
mod golden;
mod host;
mod host_all;
mod host_clock;
mod host_delay;
mod host_interrupt;
mod host_nic;
mod host_switch;
mod host_timer;
mod launch;
mod path_stall;
mod path_tcp;
mod path_udp;
mod query;
mod relay_tree;
mod round_trip;
mod strategies;
