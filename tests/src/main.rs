//! The scenarios: what Horolog does in private hosts, with real peers, as root. Each is a function
//! of a module by topic; `listed.rs` lists them with what each needs.
//!
//! `cargo run --release -p horolog-scenarios [-- FILTER]` runs them: those that measure one after
//! the other, because they use the whole machine, and beside them those that wait ([`lane`]). Build
//! `horolog` first; `make scenarios` does all of that. What cannot run here is reported as ignored,
//! with the reason.

mod again;
mod bench;
mod bench_relay;
mod bodies;
mod bodies_limits;
mod bodies_ptp;
mod browser;
mod calibration;
mod campaign_brokers;
mod campaign_control;
mod campaign_install;
mod campaign_lab;
mod campaign_local;
mod campaign_nats;
mod campaign_proxy;
mod campaign_refusals;
mod capture;
mod chronyd;
mod ci_use;
mod clean_system;
mod client;
mod clients;
mod clocks;
mod completions;
mod container;
mod counters;
mod courses;
mod cycle_predict;
mod cycle_program;
mod cycle_run;
mod cycle_test;
mod cycle_watch;
mod death;
mod demo;
mod devices;
mod dissection;
mod documented;
mod establishments;
mod frames;
mod frames_ptp;
mod generator;
mod host_all;
mod host_clocks;
mod host_nics;
mod host_scheduler;
mod kernel_courses;
mod lab;
mod lane;
mod launch_after;
mod launch_at;
mod launch_systemd;
mod leftovers;
mod limiters;
mod listed;
mod live_views;
mod load_command;
mod load_ends;
mod load_engines;
mod load_mix;
mod load_modes;
mod load_offsets;
mod load_ptp;
mod load_refusals;
mod loads;
mod monitoring;
mod mutated;
mod noise;
mod ntpperf;
mod package;
mod pages;
mod pages_figures;
mod pages_looks;
mod pages_of_loads;
mod pages_of_long_runs;
mod pages_variants;
mod path_stall;
mod path_tcp;
mod path_udp;
mod path_udp_forwarder;
mod process;
mod ptp4l;
mod ptp_answers;
mod ptp_master;
mod ptp_replies;
mod ptp_slave;
mod ptp_verdicts;
mod qualification;
mod query;
mod query_ends;
mod queues;
mod random;
mod raw;
mod receivers;
mod refusal;
mod refusals;
mod relay;
mod relay_below;
mod relay_bodies;
mod relay_full;
mod relay_life;
mod relay_tree;
mod replication;
mod replication_changes;
mod replication_load;
mod replication_sockets;
mod replies;
mod requests;
mod runs;
mod runs_compare;
mod runs_damage;
mod scenario;
mod search;
mod server_configuration;
mod server_flood;
mod server_interleaved;
mod server_ke;
mod server_leap;
mod server_limits;
mod server_metrics;
mod server_nts;
mod server_ptp;
mod server_ptp_hostile;
mod server_ptp_masters;
mod server_ptp_monitor;
mod server_ptp_peers;
mod server_reload;
mod server_sandbox;
mod server_sources;
mod slowest;
mod soak;
mod static_binary;
mod supervisor;
mod tallied;
mod verdicts;
mod web;
mod well_behaved_ptp;
mod wrong_master;
mod wrong_server;

use std::process::ExitCode;

use listed::lanes;
use scenario::Need;

const ROOT: &[Need] = &[Need::Root];
const ROOT_AND_IPV6: &[Need] = &[Need::Root, Need::Ipv6];

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some(lab::HELPER) => become_helper(&arguments[2..]),
        Some(soak::MODE) => soak::run(&arguments[2..]),
        Some(lane::BESIDE) => lane::beside(&arguments[2..]),
        Some(name) if name == lane::MEASURING || lane::WAITING.contains(&name) => {
            let name = arguments.remove(1);
            lanes().run_one(&name, &arguments)
        }
        _ => lanes().run(&arguments),
    }
}

fn become_helper(arguments: &[String]) -> ExitCode {
    match lab::helper(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
