//! Scenarios of floods beside authenticated clients: of plain requests, and of long ones from
//! made-up addresses that look like NTS.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_io::{Batch, BatchDevice, FrameSelection, PacketSocketDevice, PacketSocketOptions};
use horolog_wire::ethernet::MacAddress;
use horolog_wire::frame::UdpFrameBuilder;
use libtest_mimic::Trial;

use crate::chronyd::Client;
use crate::client;
use crate::load_command::result_of;
use crate::process::{Engine, TIMEOUT, binary, run_to_end};
use crate::random::Random;
use crate::scenario::scenario;
use crate::server_nts::{CHRONY, SELECTED, WithNts, counter};

/// What authenticated clients ask: 16 times a second.
const OFTEN: &str = "iburst minpoll -4 maxpoll -4";
/// How long a flood lasts.
const FLOOD: Duration = Duration::from_secs(3);
const SEED: u64 = 0x6e74_735f_666c_6f6f;

/// All of them.
pub(crate) fn all() -> Vec<Trial> {
    let mut all = Vec::new();
    for engine in Engine::ALL {
        let name = format!("server_flood::plain_requests_leave_room_for_nts::{}", engine.name());
        all.push(scenario(name, CHRONY, move || plain_requests_leave_room_for_nts(engine)));
        let name = format!("server_flood::forged_cookies_leave_room_for_nts::{}", engine.name());
        all.push(scenario(name, CHRONY, move || forged_cookies_leave_room_for_nts(engine)));
        let name = format!("server_flood::handshakes_leave_room_for_nts::{}", engine.name());
        all.push(scenario(name, CHRONY, move || handshakes_leave_room_for_nts(engine)));
    }
    all
}

/// Requests and replies of a client while something happened.
struct ReplyShare {
    requests: u64,
    answered: u64,
}

impl ReplyShare {
    fn of(client: &Client, meanwhile: impl FnOnce() -> Result<()>) -> Result<Self> {
        let [requests_before, answered_before] = client.packets()?;
        meanwhile()?;
        let [requests, answered] = client.packets()?;
        Ok(Self { requests: requests - requests_before, answered: answered - answered_before })
    }

    /// Fails unless the client asked, and next to nothing was lost.
    fn check(&self) -> Result<()> {
        let Self { requests, answered } = self;
        ensure!(*requests >= 20, "chronyd asked {requests} times only");
        ensure!(answered * 10 >= requests * 9, "{answered} of {requests} were answered");
        Ok(())
    }
}

/// While plain requests come at many times what one thread can answer, a slow client with NTS loses
/// next to nothing, whether sockets answer the flood or XDP.
fn plain_requests_leave_room_for_nts(engine: Engine) -> Result<()> {
    // Within what the link carries.
    let rate = match engine {
        Engine::Socket => "600k",
        Engine::Xdp => "2M",
    };
    let nts = WithNts::start_on(engine, &["--threads", "1"])?;
    let client = nts.client(OFTEN)?;
    client.await_signs("sources", SELECTED)?;
    let target = nts.at.ip().to_string();
    let before = counter(&nts.server, "nts")?;
    let share = ReplyShare::of(&client, || {
        let arguments = [&target, "--engine", "xdp", "-r", rate, "-t", "6", "-x", "3"];
        let result = result_of(nts.lab.client(), &arguments)?;
        let lost: u64 = result.trials.iter().map(|trial| trial.lost).sum();
        let sent: u64 = result.trials.iter().map(|trial| trial.sent).sum();
        match engine {
            Engine::Socket => ensure!(lost > sent / 10, "no flood: {lost} of {sent} lost"),
            Engine::Xdp => ensure!(sent > 2_000_000, "no flood: {sent} requests"),
        }
        Ok(())
    })?;
    share.check()?;
    let answered = counter(&nts.server, "nts")? - before;
    ensure!(answered >= share.answered, "the server answered fewer than chronyd received");
    Ok(())
}

/// Requests that have all that a server looks for before it opens a cookie, from addresses that
/// have not asked before, are cut down to what newcomers may have. A client with NTS that was there
/// before loses next to nothing.
fn forged_cookies_leave_room_for_nts(engine: Engine) -> Result<()> {
    const NEW_CLIENTS: u64 = 100;
    let limits = ["--limit-rate", "100", "--limit-new-clients", "100", "--threads", "1"];
    let nts = WithNts::start_on(engine, &limits)?;
    let client = nts.client(OFTEN)?;
    client.await_signs("sources", SELECTED)?;
    let share = ReplyShare::of(&client, || flood(&nts))?;
    let status = nts.server.status()?;
    let count = |pointer: &str| status.pointer(pointer).and_then(serde_json::Value::as_u64);
    let dropped = match engine {
        Engine::Socket => count("/counters/ignored/new_clients"),
        Engine::Xdp => count("/xdp_counters/dropped/new_clients"),
    };
    let dropped = dropped.context("no such counter")?;
    ensure!(dropped > 100_000, "no flood: {dropped} were dropped as newcomers");
    share.check()?;
    // They are told that their cookies are good for nothing, as often as newcomers are served.
    let kisses = counter(&nts.server, "nts_kisses")?;
    let may = NEW_CLIENTS * (FLOOD.as_secs() + 2);
    ensure!((1..=may).contains(&kisses), "{kisses} kisses");
    Ok(())
}

/// While keys are established as fast as the cores can, without a limit for each address, a client
/// that has its keys loses next to nothing.
fn handshakes_leave_room_for_nts(engine: Engine) -> Result<()> {
    let unlimited = ["--nts-ke-rate-per-prefix", "0", "--nts-ke-connections-per-prefix", "0"];
    let nts = WithNts::start_on(engine, &unlimited)?;
    let client = nts.client(OFTEN)?;
    client.await_signs("sources", SELECTED)?;
    let trust = nts.trust().display().to_string();
    let target = nts.at.ip().to_string();
    let share = ReplyShare::of(&client, || {
        let mut command = nts.lab.client().command(binary()?);
        command.args(["load", "nts-ke", &target, "--ca", &trust, "-t", "4"]);
        let output = run_to_end(&mut command, TIMEOUT)?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    })?;
    share.check()?;
    let status = nts.server.status()?;
    let established = status.pointer("/nts_ke/counters/established");
    let established = established.and_then(serde_json::Value::as_u64).context("no counter")?;
    ensure!(established > 1_000, "no flood: {established} handshakes");
    Ok(())
}

/// A request as NTS has it (RFC 8915, section 5), in which nothing is genuine.
fn forged() -> Vec<u8> {
    const FIELDS: [(u16, u16); 3] = [(0x0104, 36), (0x0204, 104), (0x0404, 40)];
    let mut random = Random::new(SEED);
    let mut request = client::request(4, client::now()).to_vec();
    for (kind, length) in FIELDS {
        request.extend([kind.to_be_bytes(), length.to_be_bytes()].concat());
        request.extend(random.bytes(usize::from(length) - 4));
    }
    // The authenticator begins with the lengths of its nonce and its ciphertext.
    let lengths = request.len() - 36;
    request[lengths..][..4].copy_from_slice(&[0, 16, 0, 16]);
    request
}

/// Sends such requests as fast as this machine makes them, each from an address of its own.
fn flood(nts: &WithNts) -> Result<()> {
    const BATCH: usize = 64;
    let host = nts.lab.client();
    let options = PacketSocketOptions {
        selection: FrameSelection::NoFrames,
        ..PacketSocketOptions::default()
    };
    let mut device =
        host.run(|| PacketSocketDevice::open(&host.first_interface().name, &options))??;
    let payload = forged();
    let mut random = Random::new(SEED);
    let mut batch = Batch::new(BATCH, 512);
    let started = Instant::now();
    while started.elapsed() < FLOOD {
        batch.clear();
        for _ in 0..BATCH {
            let source = Ipv4Addr::from(0x0a00_0000 | random.next() as u32 & 0x00ff_ffff);
            let builder = UdpFrameBuilder {
                destination_mac: MacAddress(nts.lab.server().first_interface().mac),
                source_mac: MacAddress(host.first_interface().mac),
                vlan: None,
                source: SocketAddr::from((source, 40_000)),
                destination: nts.at,
            };
            let len = builder.headers_len() + payload.len();
            let fits = batch.push_with((), |frame| {
                builder.emit(&payload, &mut frame[..len]);
                len
            });
            ensure!(fits, "a frame does not fit");
        }
        device.send(&mut batch)?;
    }
    Ok(())
}
