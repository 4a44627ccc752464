//! Scenarios of floods while authenticated clients poll: plain requests, long requests from spoofed
//! addresses that look like NTS, and NTS-KE exchanges.

use std::hint;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_io::{Batch, BatchDevice, FrameSelection, PacketSocketDevice, PacketSocketOptions};
use horolog_wire::ethernet::MacAddress;
use horolog_wire::frame::UdpFrameBuilder;
use horolog_wire::ntp::extension::{ExtensionFieldType, ExtensionFieldWriter, FIELD_LEN_MIN};
use horolog_wire::ntp::nts::{Authenticator, TAG_LEN};

use crate::chronyd::ChronydClient;
use crate::client;
use crate::load_command::result_of;
use crate::process::{Engine, TIMEOUT, binary, run_to_end};
use crate::random::Random;
use crate::scenario::{Scenario, scenario};
use crate::server_nts::{CHRONY, NtsTestbed, SELECTED, counter};

/// chronyd options of authenticated clients: 64 requests per second.
const POLL_OPTIONS: &str = "iburst minpoll -6 maxpoll -6";
/// Duration of the flood of forged requests.
const FLOOD_DURATION: Duration = Duration::from_secs(2);
/// Number of requests that it sends at a time.
const BATCH: usize = 64;
const SEED: u64 = 0x6e74_735f_666c_6f6f;

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::new();
    for engine in Engine::ALL {
        let name = format!("server_flood::plain_requests_leave_room_for_nts::{}", engine.name());
        all.push(scenario(name, CHRONY, move || plain_requests_leave_room_for_nts(engine)));
        let name = format!("server_flood::forged_cookies_leave_room_for_nts::{}", engine.name());
        all.push(scenario(name, CHRONY, move || forged_cookies_leave_room_for_nts(engine)));
        let name = format!("server_flood::nts_ke_exchanges_leave_room_for_nts::{}", engine.name());
        all.push(scenario(name, CHRONY, move || nts_ke_exchanges_leave_room_for_nts(engine)));
    }
    all
}

/// Requests and replies of a client during a flood.
struct ReplyShare {
    requests: u64,
    answered: u64,
}

impl ReplyShare {
    fn measure(client: &ChronydClient, meanwhile: impl FnOnce() -> Result<()>) -> Result<Self> {
        let [requests_before, answered_before] = client.packet_counts()?;
        meanwhile()?;
        let [requests, answered] = client.packet_counts()?;
        Ok(Self { requests: requests - requests_before, answered: answered - answered_before })
    }

    /// Fails unless the client sent requests and received replies to at least 90% of them.
    fn check(&self) -> Result<()> {
        let Self { requests, answered } = self;
        ensure!(*requests >= 20, "chronyd sent only {requests} requests");
        ensure!(answered * 10 >= requests * 9, "{answered} replies to {requests} requests");
        Ok(())
    }
}

/// While plain requests arrive at many times the capacity of one thread, a slow NTS client loses
/// almost nothing, whether sockets or XDP reply to the flood.
fn plain_requests_leave_room_for_nts(engine: Engine) -> Result<()> {
    // Below the capacity of the link.
    let rate = match engine {
        Engine::Socket => "800k",
        Engine::Xdp => "2M",
    };
    let nts = NtsTestbed::start_on(engine, &["--threads", "1"])?;
    let client = nts.start_client(POLL_OPTIONS)?;
    client.await_lines("sources", SELECTED)?;
    let target = nts.at.ip().to_string();
    let before = counter(&nts.server, "nts")?;
    let share = ReplyShare::measure(&client, || {
        let arguments = [&target, "--engine", "xdp", "-r", rate, "-t", "2.5"];
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
    ensure!(answered >= share.answered, "the server counts too few replies: {answered}");
    Ok(())
}

/// Requests from unknown addresses that pass every check before the decryption of their cookie are
/// subject to the limit of new clients. A known NTS client loses almost nothing.
fn forged_cookies_leave_room_for_nts(engine: Engine) -> Result<()> {
    const NEW_CLIENTS: u64 = 100;
    let limits = ["--limit-rate", "100", "--limit-new-clients", "100", "--threads", "1"];
    let nts = NtsTestbed::start_on(engine, &limits)?;
    let client = nts.start_client(POLL_OPTIONS)?;
    client.await_lines("sources", SELECTED)?;
    // At a socket, what one thread can receive, but not also decrypt; the XDP program drops more.
    let rate = match engine {
        Engine::Socket => 500_000,
        Engine::Xdp => 1_000_000,
    };
    let share = ReplyShare::measure(&client, || send_forged_requests(&nts, rate))?;
    let status = nts.server.status()?;
    let count = |pointer: &str| status.pointer(pointer).and_then(serde_json::Value::as_u64);
    let dropped = match engine {
        Engine::Socket => count("/counters/ignored/new_clients"),
        Engine::Xdp => count("/xdp_counters/dropped/new_clients"),
    };
    let dropped = dropped.context("no such counter")?;
    ensure!(dropped > 100_000, "no flood: {dropped} requests of new clients were dropped");
    share.check()?;
    // Invalid cookies are answered by kisses, within the limit of new clients.
    let kisses = counter(&nts.server, "nts_kisses")?;
    let may = NEW_CLIENTS * (FLOOD_DURATION.as_secs() + 2);
    ensure!((1..=may).contains(&kisses), "{kisses} kisses, expected 1 to {may}");
    Ok(())
}

/// While clients exchange keys as fast as the cores can, without a limit per address, a client that
/// has its keys loses almost nothing.
fn nts_ke_exchanges_leave_room_for_nts(engine: Engine) -> Result<()> {
    let unlimited = ["--nts-ke-rate-per-prefix", "0", "--nts-ke-connections-per-prefix", "0"];
    let nts = NtsTestbed::start_on(engine, &unlimited)?;
    let client = nts.start_client(POLL_OPTIONS)?;
    client.await_lines("sources", SELECTED)?;
    let trust = nts.certificate_path().display().to_string();
    let target = nts.at.ip().to_string();
    let share = ReplyShare::measure(&client, || {
        let mut command = nts.lab.client().command(binary()?);
        command.args(["load", "nts-ke", &target, "--ca", &trust, "-t", "2.5"]);
        let output = run_to_end(&mut command, TIMEOUT)?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    })?;
    share.check()?;
    let status = nts.server.status()?;
    let established = status.pointer("/nts_ke/counters/established");
    let established = established.and_then(serde_json::Value::as_u64).context("no such counter")?;
    ensure!(established > 1_000, "no flood: {established} NTS-KE exchanges");
    Ok(())
}

/// Returns a request with the extension fields of NTS (RFC 8915, section 5) and random contents.
fn forged_request() -> Option<Vec<u8>> {
    const FIELDS: [(ExtensionFieldType, usize); 2] =
        [(ExtensionFieldType::UNIQUE_IDENTIFIER, 32), (ExtensionFieldType::COOKIE, 100)];
    let mut random = Random::new(SEED);
    let mut request = vec![0; 512];
    let mut writer = ExtensionFieldWriter::new(&mut request);
    writer.write_bytes(&client::request(4, client::now()))?;
    for (field_type, length) in FIELDS {
        writer.write_field(field_type, &random.bytes(length), FIELD_LEN_MIN)?;
    }
    let (_, tag) = Authenticator::reserve(&mut writer, &random.bytes(16), TAG_LEN)?;
    tag.copy_from_slice(&random.bytes(TAG_LEN));
    let length = writer.written_len();
    request.truncate(length);
    Some(request)
}

/// Sends forged requests, each from a random address, at `rate` per second.
fn send_forged_requests(nts: &NtsTestbed, rate: u32) -> Result<()> {
    let host = nts.lab.client();
    let options = PacketSocketOptions {
        selection: FrameSelection::NoFrames,
        ..PacketSocketOptions::default()
    };
    let mut device =
        host.run(|| PacketSocketDevice::open(&host.first_interface().name, &options))??;
    let payload = forged_request().context("the request does not fit")?;
    let mut random = Random::new(SEED);
    let mut batch = Batch::new(BATCH, 512);
    let mut due = Instant::now();
    let end = due + FLOOD_DURATION;
    while due < end {
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
        while Instant::now() < due {
            hint::spin_loop();
        }
        device.send(&mut batch)?;
        due += Duration::from_secs(BATCH as u64) / rate;
    }
    Ok(())
}
