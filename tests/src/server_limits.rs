//! Scenarios of rate limits, access lists and kisses in XDP: bursts pass and their excess does not,
//! denied clients get no reply or a kiss, and a flood from spoofed addresses locks out no known
//! client.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_time::NtpTimestamp;
use horolog_wire::ntp::Header;

use crate::client::{self, ClientOutcome, SteadyClient};
use crate::load_command::{only_trial, result_of};
use crate::process::{Engine, Server, server_address};
use crate::scenario::Scenario;
use crate::{ROOT, server_limits};

/// Time in which all replies arrive, expected and unexpected ones.
const QUIET_PERIOD: Duration = Duration::from_millis(500);
/// Long enough for a reply of a busy host, short enough for many requests where some are lost.
const TIMEOUT: Duration = Duration::from_millis(200);
/// Least number of addresses of a flood, each of which sends one request.
const FLOOD_ADDRESSES_MIN: u64 = 10_000_000;
/// Variation of resident memory without any cause in the scenario.
const MEMORY_NOISE_BYTES: u64 = 1 << 20;

pub(crate) fn all() -> Vec<Scenario> {
    Vec::from(crate::scenarios!(ROOT, server_limits:
        a_burst_passes_and_its_excess_does_not,
        denied_clients_get_no_reply_or_a_kiss,
        a_spoofed_flood_does_not_lock_out_known_clients,
    ))
}

/// Sends `count` requests at once from one socket and returns all replies.
fn send_at_once(lab: &Lab, server: SocketAddr, count: u64) -> Result<Vec<Header>> {
    let socket = client::socket(lab.client(), server, QUIET_PERIOD)?;
    for token in 1..=count {
        socket.send_to(&client::request(4, NtpTimestamp::from_bits(token)), server)?;
    }
    let mut replies = Vec::new();
    let mut buffer = [0; 1024];
    while let Ok(length) = socket.recv(&mut buffer) {
        replies.push(Header::parse(&buffer[..length])?.0);
    }
    Ok(replies)
}

fn start_xdp_server(arguments: &[&str]) -> Result<(Lab, Server, SocketAddr)> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let server = Server::start(lab.server(), Engine::Xdp, &[at], arguments)?;
    Ok((lab, server, at))
}

fn read_counter(server: &Server, pointer: &str) -> Result<u64> {
    let status = server.status()?;
    let number = status.pointer(pointer).and_then(serde_json::Value::as_u64);
    number.with_context(|| format!("no {pointer} in {status}"))
}

/// Eight requests at once, as sent by iburst, get replies; the excess does not, except for one kiss
/// if RATE kisses are enabled.
pub(crate) fn a_burst_passes_and_its_excess_does_not() -> Result<()> {
    let (lab, server, at) = start_xdp_server(&["--limit-rate", "0.01"])?;
    let replies = send_at_once(&lab, at, 8)?;
    ensure!(replies.len() == 8, "{} replies to 8 requests", replies.len());
    ensure!(replies.iter().all(|reply| reply.stratum != 0), "unexpected kiss: {replies:?}");
    let replies = send_at_once(&lab, at, 8)?;
    ensure!(replies.is_empty(), "{} replies to the excess", replies.len());
    let limited = read_counter(&server, "/xdp_counters/dropped/limited")?;
    ensure!(limited == 8, "{limited} requests are counted as limited");

    let (lab, server, at) =
        start_xdp_server(&["--limit-rate", "0.01", "--limit-burst", "2", "--kiss-rate"])?;
    let replies = send_at_once(&lab, at, 8)?;
    let kisses = replies.iter().filter(|reply| &reply.reference_id == b"RATE").count();
    ensure!((replies.len(), kisses) == (3, 1), "{replies:?}");
    ensure!(read_counter(&server, "/xdp_counters/kisses/rate")? == 1, "kisses are not counted");
    Ok(())
}

/// Denied clients get no reply, or a DENY kiss; the longest prefix decides.
pub(crate) fn denied_clients_get_no_reply_or_a_kiss() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let (at, own) = (server_address(&lab, false)?, lab.client().first_interface().ipv4.to_string());
    let replies_with = |arguments: &[&str]| {
        let server = Server::start(lab.server(), Engine::Xdp, &[at], arguments)?;
        let replies = send_at_once(&lab, at, 1)?;
        let denied = read_counter(&server, "/xdp_counters/dropped/denied")?;
        Ok::<_, anyhow::Error>((replies, denied))
    };
    let (replies, denied) = replies_with(&["--deny", &own])?;
    ensure!(replies.is_empty() && denied == 1, "denied: {replies:?}, {denied}");
    let (replies, denied) = replies_with(&["--allow", "198.51.100.0/24"])?;
    ensure!(replies.is_empty() && denied == 1, "not allowed: {replies:?}, {denied}");
    let (replies, _) = replies_with(&["--deny", "0.0.0.0/0", "--allow", &own])?;
    ensure!(replies.len() == 1 && replies[0].stratum != 0, "allowed: {replies:?}");
    let (replies, _) = replies_with(&["--deny", &own, "--kiss-deny"])?;
    let is_kiss = replies.len() == 1 && replies[0].stratum == 0;
    ensure!(is_kiss && &replies[0].reference_id == b"DENY", "no DENY kiss: {replies:?}");
    Ok(())
}

/// Returns the memory of the server's BPF maps in bytes, from the `memlock` of its descriptors.
fn map_bytes(server: &Server) -> Result<u64> {
    let pid = server.status()?["pid"].as_u64().context("no pid")?;
    let mut sum = 0;
    for descriptor in fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        // The connection to the status socket has been closed meanwhile.
        let text = fs::read_to_string(descriptor?.path()).unwrap_or_default();
        let bytes = text.lines().find_map(|line| line.strip_prefix("memlock:"));
        sum += bytes.map_or(Ok(0), |bytes| bytes.trim().parse::<u64>())?;
    }
    ensure!(sum > 0, "no map among the descriptors of process {pid}");
    Ok(sum)
}

/// A flood from more than ten million spoofed addresses is subject to the limit of new clients. A
/// known client still receives replies, and neither the server nor its maps use more memory.
pub(crate) fn a_spoofed_flood_does_not_lock_out_known_clients() -> Result<()> {
    let (lab, server, at) =
        start_xdp_server(&["--limit-rate", "500", "--limit-new-clients", "100"])?;
    let socket = client::socket(lab.client(), at, TIMEOUT)?;
    client::query(&socket, at)?;
    let before = read_counter(&server, "/resident_bytes")?;
    let maps = map_bytes(&server)?;
    let known = SteadyClient::start(socket, at, Duration::from_millis(5));
    let target = at.ip().to_string();
    let mut addresses = 0;
    // A slow host needs more time for as many addresses.
    for seconds in ["7", "14"] {
        // No address recurs before all have been used.
        let flood = ["--engine", "xdp", "-r", "1500k", "-t", seconds, "--random-sources"];
        let arguments = [&[target.as_str(), "--source", "10.0.0.0/8"], &flood[..]].concat();
        let result = result_of(lab.client(), &arguments)?;
        let trial = only_trial(&result)?;
        ensure!(trial.received < trial.sent / 20, "{} of {}", trial.received, trial.sent);
        addresses = addresses.max(trial.sent);
        if addresses >= FLOOD_ADDRESSES_MIN {
            break;
        }
    }
    let ClientOutcome { requests, answered, .. } = known.end()?;
    // A full link loses packets of every client. A new client would receive almost no reply.
    ensure!(
        requests > 0 && answered * 10 >= requests * 9,
        "{answered} replies to {requests} requests"
    );
    ensure!(addresses >= FLOOD_ADDRESSES_MIN, "a flood from only {addresses} addresses");
    let new_clients = read_counter(&server, "/xdp_counters/dropped/new_clients")?;
    ensure!(new_clients > addresses / 2, "{new_clients} counted as new clients");
    let after = read_counter(&server, "/resident_bytes")?;
    ensure!(after < before + MEMORY_NOISE_BYTES, "memory: {before}, then {after} bytes");
    let maps_after = map_bytes(&server)?;
    ensure!(maps_after == maps, "maps: {maps}, then {maps_after} bytes");
    Ok(())
}
