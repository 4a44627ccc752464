//! Scenarios of rate limits, lists and kisses, enforced in XDP: bursts pass, excess does not, who
//! is denied hears nothing or why, and a flood from made-up addresses shuts nobody out.

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
use crate::{ROOT, server_limits};

/// Long enough for a reply that must not come to show itself, and for those that must.
const QUIET_PERIOD: Duration = Duration::from_millis(500);
/// Long enough for a reply on a busy machine, and short enough to ask often where some are lost.
const TIMEOUT: Duration = Duration::from_millis(200);
/// From how many addresses a flood comes, each of which asks once.
const ADDRESSES: u64 = 10_000_000;
/// Memory may move by so much whatever is asked.
const NOISE_BYTES: u64 = 1 << 20;

/// All of them.
pub(crate) fn all() -> Vec<libtest_mimic::Trial> {
    Vec::from(crate::scenarios!(ROOT, server_limits:
        a_burst_passes_and_its_excess_does_not,
        denied_clients_get_no_reply_or_a_kiss,
        a_spoofed_flood_does_not_lock_out_known_clients,
    ))
}

/// Sends so many requests at once from one socket and returns all replies.
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

fn started(arguments: &[&str]) -> Result<(Lab, Server, SocketAddr)> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let server = Server::start(lab.server(), Engine::Xdp, &[at], arguments)?;
    Ok((lab, server, at))
}

fn count(server: &Server, pointer: &str) -> Result<u64> {
    let status = server.status()?;
    let number = status.pointer(pointer).and_then(serde_json::Value::as_u64);
    number.with_context(|| format!("no {pointer} in {status}"))
}

/// Eight requests at once, as iburst sends them, are answered; what comes on top of that is not,
/// and with RATE kisses one of them is told why.
pub(crate) fn a_burst_passes_and_its_excess_does_not() -> Result<()> {
    let (lab, server, at) = started(&["--limit-rate", "0.01"])?;
    let replies = send_at_once(&lab, at, 8)?;
    ensure!(replies.len() == 8, "{} of 8 are answered", replies.len());
    ensure!(replies.iter().all(|reply| reply.stratum != 0), "a kiss: {replies:?}");
    let replies = send_at_once(&lab, at, 8)?;
    ensure!(replies.is_empty(), "{} of the excess are answered", replies.len());
    let limited = count(&server, "/xdp_counters/dropped/limited")?;
    ensure!(limited == 8, "{limited} are counted as limited");

    let (lab, server, at) =
        started(&["--limit-rate", "0.01", "--limit-burst", "2", "--kiss-rate"])?;
    let replies = send_at_once(&lab, at, 8)?;
    let kisses = replies.iter().filter(|reply| &reply.reference_id == b"RATE").count();
    ensure!((replies.len(), kisses) == (3, 1), "{replies:?}");
    ensure!(count(&server, "/xdp_counters/kisses/rate")? == 1, "kisses are not counted");
    Ok(())
}

/// Who is denied hears nothing, or a DENY kiss; the longest prefix decides.
pub(crate) fn denied_clients_get_no_reply_or_a_kiss() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let (at, own) = (server_address(&lab, false)?, lab.client().first_interface().ipv4.to_string());
    let answers = |arguments: &[&str]| {
        let server = Server::start(lab.server(), Engine::Xdp, &[at], arguments)?;
        let replies = send_at_once(&lab, at, 1)?;
        let denied = count(&server, "/xdp_counters/dropped/denied")?;
        Ok::<_, anyhow::Error>((replies, denied))
    };
    let (replies, denied) = answers(&["--deny", &own])?;
    ensure!(replies.is_empty() && denied == 1, "denied: {replies:?}, {denied}");
    let (replies, denied) = answers(&["--allow", "198.51.100.0/24"])?;
    ensure!(replies.is_empty() && denied == 1, "not allowed: {replies:?}, {denied}");
    let (replies, _) = answers(&["--deny", "0.0.0.0/0", "--allow", &own])?;
    ensure!(replies.len() == 1 && replies[0].stratum != 0, "allowed: {replies:?}");
    let (replies, _) = answers(&["--deny", &own, "--kiss-deny"])?;
    let kissed = replies.len() == 1 && replies[0].stratum == 0;
    ensure!(kissed && &replies[0].reference_id == b"DENY", "told: {replies:?}");
    Ok(())
}

/// What the kernel's maps of a server take, as it says of each of its descriptors of one.
fn map_bytes(server: &Server) -> Result<u64> {
    let pid = server.status()?["pid"].as_u64().context("no pid")?;
    let mut sum = 0;
    for descriptor in fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        // One of a connection to the status socket is gone again.
        let text = fs::read_to_string(descriptor?.path()).unwrap_or_default();
        let bytes = text.lines().find_map(|line| line.strip_prefix("memlock:"));
        sum += bytes.map_or(Ok(0), |bytes| bytes.trim().parse::<u64>())?;
    }
    ensure!(sum > 0, "the kernel tells of no map");
    Ok(sum)
}

/// A flood from ten million and more made-up addresses is cut down to what newcomers may have. A
/// client that was there before is answered all the same, and neither the server nor its maps need
/// more memory.
pub(crate) fn a_spoofed_flood_does_not_lock_out_known_clients() -> Result<()> {
    let (lab, server, at) = started(&["--limit-rate", "500", "--limit-new-clients", "100"])?;
    let socket = client::socket(lab.client(), at, TIMEOUT)?;
    client::query(&socket, at)?;
    let before = count(&server, "/resident_bytes")?;
    let maps = map_bytes(&server)?;
    let known = SteadyClient::start(socket, at, Duration::from_millis(5));
    let target = at.ip().to_string();
    let mut addresses = 0;
    // A slow machine takes longer for as many.
    for seconds in ["7", "14"] {
        // No address comes twice before all have come.
        let flood = ["--engine", "xdp", "-r", "1500k", "-t", seconds, "--random-sources"];
        let arguments = [&[target.as_str(), "--source", "10.0.0.0/8"], &flood[..]].concat();
        let result = result_of(lab.client(), &arguments)?;
        let trial = only_trial(&result)?;
        ensure!(trial.received < trial.sent / 20, "{} of {}", trial.received, trial.sent);
        addresses = addresses.max(trial.sent);
        if addresses >= ADDRESSES {
            break;
        }
    }
    let ClientOutcome { requests, answered, .. } = known.end()?;
    // What a link that is full loses, it loses of everybody. A client that were a newcomer would
    // get next to no reply.
    ensure!(
        requests > 0 && answered * 10 >= requests * 9,
        "{answered} of {requests} were answered"
    );
    ensure!(addresses >= ADDRESSES, "a flood from {addresses} addresses only");
    let new_clients = count(&server, "/xdp_counters/dropped/new_clients")?;
    ensure!(new_clients > addresses / 2, "{new_clients} are counted as newcomers");
    let after = count(&server, "/resident_bytes")?;
    ensure!(after < before + NOISE_BYTES, "memory: {before}, then {after} bytes");
    let maps_after = map_bytes(&server)?;
    ensure!(maps_after == maps, "maps: {maps}, then {maps_after} bytes");
    Ok(())
}
