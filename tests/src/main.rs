//! Scenarios: Horolog in lab hosts, with other implementations, as root. Each is a function of a
//! module by topic; `registry.rs` lists them with the needs of each.
//!
//! `cargo run --release -p horolog-scenarios [-- FILTER]` runs them, in queues
//! ([`scenario::Queue`]). Build `horolog` first; `make scenarios` does all of that. A scenario that
//! cannot run on this machine is reported as ignored, with the reason.

mod addresses;
mod af_xdp_queues;
mod bench;
mod bench_relay;
mod browser;
mod calibration;
mod campaign_brokers;
mod campaign_control;
mod campaign_errors;
mod campaign_install;
mod campaign_lab;
mod campaign_local;
mod campaign_nats;
mod campaign_proxy;
mod capture;
mod chronyd;
mod ci_outputs;
mod client;
mod client_fairness;
mod clocks;
mod completions;
mod compliant_clients_ptp;
mod container;
mod counters;
mod cycle_predict;
mod cycle_program;
mod cycle_run;
mod cycle_test;
mod cycle_views;
mod debian_root;
mod demo;
mod denied_syscalls;
mod differential;
mod differential_limits;
mod differential_ptp;
mod documented;
mod faulty_master;
mod faulty_responder;
mod faulty_server;
mod frames;
mod frames_ptp;
mod generator;
mod gnss_receivers;
mod gnss_sentences;
mod group_requests;
mod host_all;
mod host_clocks;
mod host_nics;
mod host_scheduler;
mod interop_clients;
mod isolation;
mod jumbo_frames;
mod lab;
mod launch_after;
mod launch_at;
mod launch_systemd;
mod live_views;
mod load_accounting;
mod load_command;
mod load_engines;
mod load_interruption;
mod load_limits;
mod load_mix;
mod load_modes;
mod load_offsets;
mod load_pages;
mod load_profiles;
mod load_ptp;
mod load_usage_errors;
mod long_run_pages;
mod malformed_flood;
mod monitoring;
mod mutated_frames;
mod ntpperf;
mod nts_ke_load;
mod odd_requests;
mod package;
mod packet_devices;
mod page_interaction;
mod page_samples;
mod pages;
mod path_stall;
mod path_tcp;
mod path_udp;
mod path_udp_forwarder;
mod path_udp_short;
mod process;
mod ptp4l;
mod ptp_master;
mod ptp_messages;
mod ptp_replies;
mod ptp_slave;
mod ptp_verifier_differential;
mod query;
mod query_interruption;
mod query_nts;
mod random;
mod raw_frames;
mod registry;
mod relay;
mod relay_capacity;
mod relay_differential;
mod relay_lengths;
mod relay_lifecycle;
mod relay_tree;
mod relay_xdp;
mod replies;
mod reply_counts;
mod requests;
mod runner;
mod runs;
mod runs_compare;
mod scenario;
mod search;
mod server_configuration;
mod server_crash;
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
mod server_ptp_messages;
mod server_ptp_monitor;
mod server_ptp_peers;
mod server_reload;
mod server_sandbox;
mod server_sources;
mod soak;
mod static_binary;
mod store_corruption;
mod tshark_capture;
mod unsynchronised_server;
mod usage_error;
mod usage_errors;
mod verifier_differential;
mod web;
mod xdp_load_profiles;
mod xdp_relay;
mod xdp_relay_changes;
mod xdp_relay_load;
mod xdp_relay_sockets;

use std::process::ExitCode;

use anyhow::Result;

use scenario::Need;

const ROOT: &[Need] = &[Need::Root];
const ROOT_AND_IPV6: &[Need] = &[Need::Root, Need::Ipv6];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns false if something failed that was reported already.
fn run(arguments: &[String]) -> Result<bool> {
    match arguments.get(1).map(String::as_str) {
        Some(lab::HELPER) => lab::helper(&arguments[2..])?,
        Some(addresses::WITHOUT_IPV6) => addresses::exec_without_ipv6(&arguments[2..])?,
        Some(soak::MODE) => soak::run(&arguments[2..])?,
        Some(soak::ISOLATED_MODE) if arguments.len() == 3 => soak::run_isolated(&arguments[2])?,
        Some(isolation::FIRST_PROCESS) => return isolation::run_first_process(&arguments[2..]),
        Some(runner::ONE) if arguments.len() == 3 => {
            runner::run_one(&arguments[2], registry::all())?;
        }
        Some(runner::IN_SESSION) => {
            return Ok(runner::run_in_session(&arguments[1..], registry::all()));
        }
        _ => return runner::run(arguments.get(1..).unwrap_or_default()),
    }
    Ok(true)
}
