//! Scenarios of reloads of limits, access lists, NTS-KE, symmetric keys and the secret of cookies:
//! new settings are in force afterwards and no request is lost; invalid ones change nothing and are
//! reported in one line.

use std::fs;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_ke::{
    AES_SIV_CMAC_256, NtsKeClient, NtsKeError, NtsKeExchangeStatus, PORT, SessionMaterial,
    TrustAnchors,
};
use horolog_lab::{Lab, LabConfig, LabHost};
use serde_json::Value;
use tempfile::TempDir;

use crate::chronyd::{ChronydClient, POLL_INTERVAL};
use crate::client::{self, SteadyClient};
use crate::process::{Engine, Server, TIMEOUT, run_to_end, server_address, write_secret};
use crate::scenario::{Scenario, scenario};
use crate::server_configuration::{REQUEST_INTERVAL, reload, write_configuration};
use crate::server_nts::{CHRONY, FAST, await_counter, counter, write_certificate};
use crate::{ROOT, scenarios, server_reload};

/// Time in which all replies arrive, expected and unexpected ones.
const QUIET_PERIOD: Duration = Duration::from_millis(200);
/// More changes of lists than the entry of a client can distinguish.
const LIST_CHANGES: usize = 18;
/// Prefixes without clients, so many that a change of lists takes noticeable time.
const UNUSED_PREFIXES: u32 = 5_000;

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(ROOT, server_reload:
        a_new_certificate_is_presented,
        nts_ke_addresses_are_reloaded,
        nts_ke_settings_are_reloaded,
        nts_is_not_switched_off,
    ));
    all.extend(scenarios!(CHRONY, server_reload:
        requests_need_the_reloaded_key,
        another_secret_makes_other_cookies,
    ));
    for engine in Engine::ALL {
        let name = |of: &str| format!("server_reload::{of}::{}", engine.name());
        all.push(scenario(name("lists_change"), ROOT, move || lists_change(engine)));
        all.push(scenario(name("limits_change"), ROOT, move || limits_change(engine)));
    }
    all
}

/// Server with a configuration file, in a lab.
struct ConfiguredServer {
    lab: Lab,
    at: SocketAddr,
    directory: TempDir,
    server: Server,
    /// Number of refused reloads.
    refused: usize,
}

impl ConfiguredServer {
    fn start(engine: Engine, options: &str) -> Result<Self> {
        let lab = Lab::new(&LabConfig::default())?;
        let at = server_address(&lab, false)?;
        let directory = TempDir::new()?;
        let path = directory.path().join("horolog.toml");
        write_configuration(&path, &[at], options)?;
        let config = path.to_string_lossy().into_owned();
        let server = Server::start_without_local(lab.server(), engine, &[], &["-c", &config])?;
        Ok(Self { lab, at, directory, server, refused: 0 })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Reloads the server with these options, which it must accept.
    fn reload_with(&self, options: &str) -> Result<Value> {
        write_configuration(&self.path("horolog.toml"), &[self.at], options)?;
        let status = reload(&self.server)?;
        ensure!(status["reload"]["last_reload_error"].is_null(), "{options}: {status}");
        Ok(status)
    }

    /// Reloads the server with these options, which it must refuse for a reason with these words.
    fn check_reload_refused(&mut self, options: &str, words: &[&str]) -> Result<()> {
        write_configuration(&self.path("horolog.toml"), &[self.at], options)?;
        let status = reload(&self.server)?;
        let reason = status["reload"]["last_reload_error"].as_str().unwrap_or_default();
        for word in words {
            ensure!(reason.contains(word), "{word} is missing in the reason: {reason}");
        }
        self.refused += 1;
        Ok(())
    }

    /// Ends the server and checks that it reported each refused reload in one line.
    fn end(self) -> Result<()> {
        let ended = self.server.end("TERM")?;
        let reported = ended.stderr.lines().filter(|line| line.contains("reload-refused")).count();
        ensure!(reported == self.refused, "{} reloads refused: {}", self.refused, ended.stderr);
        Ok(())
    }
}

/// Adds an address to the host and returns a socket that is bound to it.
fn socket_at(host: &LabHost, address: IpAddr) -> Result<UdpSocket> {
    let mut command = host.command("ip");
    command.args(["addr", "add", &format!("{address}/32"), "dev", &host.first_interface().name]);
    let output = run_to_end(&mut command, TIMEOUT)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let socket = host.run(|| UdpSocket::bind((address, 0)))??;
    socket.set_read_timeout(Some(QUIET_PERIOD))?;
    Ok(socket)
}

/// Lists change while a client that all of them admit sends requests: each gets a reply. Another
/// client is admitted by some lists. Prefixes are longer than the prefix of one client here, so
/// that every request is looked up.
fn lists_change(engine: Engine) -> Result<()> {
    const ALWAYS: &str = "limit-ipv4-prefix = 24\n";
    let mut running =
        ConfiguredServer::start(engine, &format!("{ALWAYS}deny = ['198.51.100.1']\n"))?;
    let own = running.lab.client().first_interface().ipv4;
    let other = IpAddr::from([10, 77, 0, 1]);
    let others = (0..UNUSED_PREFIXES)
        .map(|number| format!("{}\n", std::net::Ipv4Addr::from(0x0a01_0000 + number)));
    fs::write(running.path("others"), others.collect::<String>())?;
    let others = format!("deny-file = '{}'\n", running.path("others").display());
    let variants = [
        (format!("{others}deny = ['0.0.0.0/0']\nallow = ['{own}']\n"), false),
        (others.clone(), true),
        (format!("allow = ['0.0.0.0/0']\ndeny = ['{other}']\n"), false),
        (format!("{others}allow = ['10.77.0.0/16', '{own}']\ndeny = ['203.0.113.0/24']\n"), true),
    ];
    let socket = client::socket(running.lab.client(), running.at, TIMEOUT)?;
    let steady = SteadyClient::start(socket, running.at, REQUEST_INTERVAL);
    let socket = socket_at(running.lab.client(), other)?;
    for (lists, is_served) in variants.iter().cycle().take(LIST_CHANGES) {
        running.reload_with(&format!("{ALWAYS}{lists}"))?;
        let reply = client::query(&socket, running.at);
        ensure!(reply.is_ok() == *is_served, "{lists}: {reply:?}");
    }
    fs::write(running.path("others"), "10.0.0.0/8\n10.0.0.0/33\n")?;
    running.check_reload_refused(&format!("{ALWAYS}{others}"), &["others, line 2", "too long"])?;
    running
        .check_reload_refused(&format!("{ALWAYS}deny = ['here']\n"), &["horolog.toml:4", "here"])?;
    // The last valid lists are in force.
    let reply = client::query(&socket, running.at);
    ensure!(reply.is_ok() == variants[(LIST_CHANGES - 1) % variants.len()].1, "{reply:?}");
    steady.end()?.all_answered()?;
    running.end()
}

/// Sends eight requests at once and returns the number of replies.
fn replies_to_burst(socket: &UdpSocket, server: SocketAddr) -> Result<usize> {
    for _ in 0..8 {
        socket.send_to(&client::request(4, client::now()), server)?;
    }
    let mut buffer = [0; 1024];
    Ok(std::iter::from_fn(|| socket.recv(&mut buffer).ok()).count())
}

/// Limits above the rate of a client change without a lost request; a limit below it is in force
/// from its reload to the next one.
fn limits_change(engine: Engine) -> Result<()> {
    let wide = "limit-rate = 5000\nlimit-burst = 1000\n";
    let narrow = "limit-rate = 0.01\nlimit-burst = 2\n";
    let mut running = ConfiguredServer::start(engine, wide)?;
    let steady = client::socket(running.lab.client(), running.at, TIMEOUT)?;
    let steady = SteadyClient::start(steady, running.at, REQUEST_INTERVAL);
    for rate in ["4000", "6000", "5000"] {
        let status = running.reload_with(&format!("limit-rate = {rate}\nlimit-burst = 1000\n"))?;
        ensure!(status["reload"]["restart_needed"].as_array().is_some_and(Vec::is_empty));
    }
    steady.end()?.all_answered()?;
    let socket = client::socket(running.lab.client(), running.at, QUIET_PERIOD)?;
    running.reload_with(narrow)?;
    let answered = replies_to_burst(&socket, running.at)?;
    ensure!(answered == 2, "{answered} replies with a burst of two");
    running.check_reload_refused("limit-rate = 0\n", &["horolog.toml:3", "--limit-rate"])?;
    running.check_reload_refused("limit-rate = 'much'\n", &["horolog.toml:3", "limit-rate"])?;
    let answered = replies_to_burst(&socket, running.at)?;
    ensure!(answered == 0, "{answered} replies beyond the previous limit");
    running.reload_with(wide)?;
    let answered = replies_to_burst(&socket, running.at)?;
    ensure!(answered == 8, "{answered} replies within the limit");
    running.end()
}

/// Replaces the certificate and key in `to` by those in `from`, each file atomically.
fn replace_pair(from: &Path, to: &Path) -> Result<()> {
    for name in ["cert.pem", "key.pem"] {
        let new = to.join("new");
        fs::copy(from.join(name), &new)?;
        fs::rename(new, to.join(name))?;
    }
    Ok(())
}

/// After a reload the NTS-KE server presents the certificate that is now in the file; an invalid
/// one, or one without its key, leaves the previous one in force.
pub(crate) fn a_new_certificate_is_presented() -> Result<()> {
    let pairs: [TempDir; 2] = [TempDir::new()?, TempDir::new()?];
    let directory = TempDir::new()?;
    let file = |name: &str| directory.path().join(name).display().to_string();
    let options = format!("nts-cert = '{}'\nnts-key = '{}'\n", file("cert.pem"), file("key.pem"));
    let ip = server_address(&Lab::new(&LabConfig::default())?, false)?.ip();
    for pair in &pairs {
        write_certificate(ip, pair.path())?;
    }
    replace_pair(pairs[0].path(), directory.path())?;
    let mut running = ConfiguredServer::start(Engine::Socket, &options)?;
    let check_presented = |running: &ConfiguredServer, number: usize| -> Result<()> {
        for (other, pair) in pairs.iter().enumerate() {
            match exchange_keys(running, PORT, pair.path())? {
                Ok(_) if other == number => {}
                Err(NtsKeError::Tls(_)) if other != number => {}
                got => anyhow::bail!("certificate {other} instead of {number}: {got:?}"),
            }
        }
        Ok(())
    };
    check_presented(&running, 0).context("at the start")?;
    replace_pair(pairs[1].path(), directory.path())?;
    check_presented(&running, 0).context("before the reload")?;
    running.reload_with(&options)?;
    check_presented(&running, 1).context("after the reload")?;
    fs::copy(pairs[0].path().join("key.pem"), directory.path().join("key.pem"))?;
    running.check_reload_refused(&options, &["key.pem"])?;
    fs::write(directory.path().join("cert.pem"), "-----BEGIN CERTIFICATE-----\n")?;
    running.check_reload_refused(&options, &["cert.pem"])?;
    check_presented(&running, 1).context("after invalid files")?;
    replace_pair(pairs[0].path(), directory.path())?;
    running.reload_with(&options)?;
    check_presented(&running, 0).context("after the first pair was restored")?;
    running.end()
}

/// Returns a client that trusts the certificate in `directory`.
fn trusting_client(directory: &Path) -> Result<NtsKeClient> {
    let trust = TrustAnchors::from_pem_file(Some(&directory.join("cert.pem")))?;
    Ok(NtsKeClient::new(&trust, &[AES_SIV_CMAC_256])?)
}

/// Exchanges keys at a port of the server and returns the outcome.
fn exchange_keys(
    running: &ConfiguredServer,
    port: u16,
    directory: &Path,
) -> Result<Result<SessionMaterial, NtsKeError>> {
    let (client, at) = (trusting_client(directory)?, SocketAddr::new(running.at.ip(), port));
    let name = at.ip().to_string();
    Ok(running.lab.client().run(|| client.exchange_keys(&name, at, TIMEOUT))?)
}

/// Opens a connection to a port of the server, over which nothing is sent.
fn connect(running: &ConfiguredServer, port: u16) -> Result<TcpStream> {
    let at = SocketAddr::new(running.at.ip(), port);
    let stream = running.lab.client().run(|| TcpStream::connect(at))??;
    stream.set_read_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

/// Returns the options of an NTS-KE server with the pair in this directory, at these ports.
fn nts_ke_options(running: &ConfiguredServer, pair: &Path, ports: &[u16]) -> String {
    let file = |name: &str| pair.join(name).display().to_string();
    let ip = running.at.ip();
    let listen: Vec<_> = ports.iter().map(|port| format!("'{ip}:{port}'")).collect();
    format!(
        "nts-cert = '{}'\nnts-key = '{}'\nnts-ke-listen = [{}]\n",
        file("cert.pem"),
        file("key.pem"),
        listen.join(", ")
    )
}

/// Starts a server with NTS at its default port. Returns it with the directory of its certificate.
fn start_with_nts() -> Result<(ConfiguredServer, TempDir)> {
    let pair = TempDir::new()?;
    let ip = server_address(&Lab::new(&LabConfig::default())?, false)?.ip();
    let named = ["cert", "key"].into_iter().zip(write_certificate(ip, pair.path())?);
    let options = named.map(|(name, path)| format!("nts-{name} = '{}'\n", path.display()));
    Ok((ConfiguredServer::start(Engine::Socket, &options.collect::<String>())?, pair))
}

/// Addresses of NTS-KE change while the others continue to serve; a connection at a removed address
/// is served to its end. A port in use changes nothing.
pub(crate) fn nts_ke_addresses_are_reloaded() -> Result<()> {
    let [first, second, free, taken] = [PORT, 4461, 4462, 4463];
    let (mut running, pair) = start_with_nts()?;
    let check_served = |running: &ConfiguredServer, wanted: &[u16]| -> Result<()> {
        for port in [first, second, free] {
            match exchange_keys(running, port, pair.path())? {
                Ok(got) if wanted.contains(&port) => {
                    ensure!(got.server.is_none(), "clients are sent to {:?}", got.server);
                }
                Err(NtsKeError::Connection { .. }) if !wanted.contains(&port) => {}
                got => anyhow::bail!("port {port} of {wanted:?}: {got:?}"),
            }
        }
        let status = running.server.status()?;
        let ip = running.at.ip();
        let wanted: Vec<_> = wanted.iter().map(|port| format!("{ip}:{port}")).collect();
        ensure!(status["nts_ke"]["listen"] == Value::from(wanted), "{}", status["nts_ke"]);
        Ok(())
    };
    check_served(&running, &[first]).context("at the start")?;
    let status = running.reload_with(&nts_ke_options(&running, pair.path(), &[first, second]))?;
    ensure!(status["reload"]["restart_needed"].as_array().is_some_and(Vec::is_empty), "{status}");
    check_served(&running, &[first, second]).context("with a second port")?;
    let mut open = connect(&running, first)?;
    running.reload_with(&nts_ke_options(&running, pair.path(), &[second]))?;
    check_served(&running, &[second]).context("without the first port")?;
    let name = running.at.ip().to_string();
    let mut exchange = trusting_client(pair.path())?.begin(&name)?;
    while !matches!(
        exchange.advance(&mut open).context("open connection")?,
        NtsKeExchangeStatus::Done(_)
    ) {}

    let at_taken = SocketAddr::new(running.at.ip(), taken);
    let _holder = running.lab.server().run(|| TcpListener::bind(at_taken))??;
    let elsewhere = "nts-ntp-server = 'elsewhere.example'\n";
    let options = nts_ke_options(&running, pair.path(), &[second, free, taken]) + elsewhere;
    running
        .check_reload_refused(&options, &[&at_taken.to_string(), "in use", "--nts-ke-listen"])?;
    check_served(&running, &[second]).context("after a port in use")?;
    let options = nts_ke_options(&running, pair.path(), &[]).replace("[]", "['0.0.0.0:4461']");
    running.check_reload_refused(&options, &["--nts-ke-listen 0.0.0.0:4461 overlaps"])?;
    check_served(&running, &[second]).context("after an overlapping address")?;
    running.end()
}

/// Other files of the certificate, another NTP server and other limits are in force after a reload.
pub(crate) fn nts_ke_settings_are_reloaded() -> Result<()> {
    let (mut running, pair) = start_with_nts()?;
    let other = TempDir::new_in(pair.path())?;
    write_certificate(running.at.ip(), other.path())?;
    let get = |running: &ConfiguredServer| exchange_keys(running, PORT, other.path());
    let early = get(&running)?;
    ensure!(matches!(early, Err(NtsKeError::Tls(_))), "another certificate at the start");
    let options = nts_ke_options(&running, other.path(), &[PORT]);
    running.reload_with(&options)?;
    let got = get(&running)?.context("with another certificate")?;
    ensure!(got.server.is_none(), "clients are sent to {:?}", got.server);
    running.reload_with(&format!("{options}nts-ntp-server = 'time.example'\n"))?;
    let got = get(&running)?.context("with another server")?;
    ensure!(got.server.as_deref() == Some("time.example"), "clients are sent to {:?}", got.server);

    running.reload_with(&format!("{options}nts-ke-connections-per-prefix = 1\n"))?;
    let open_connection = connect(&running, PORT)?;
    let refused = |running: &ConfiguredServer| -> Result<u64> {
        let status = running.server.status()?;
        let refused = status.pointer("/nts_ke/counters/refused_concurrent");
        refused.and_then(Value::as_u64).with_context(|| format!("{status}"))
    };
    let is_free = refused(&running)? == 0;
    ensure!(is_free && get(&running)?.is_err(), "two connections despite a limit of one");
    ensure!(refused(&running)? == 1, "{} connections were refused", refused(&running)?);
    running
        .check_reload_refused(&format!("{options}nts-ke-connections = 0\n"), &["connections"])?;
    running.reload_with(&format!("{options}nts-ke-connections-per-prefix = 2\n"))?;
    get(&running)?.context("with a limit of two")?;
    drop(open_connection);
    running.end()
}

/// A reload does not switch NTS-KE on or off: the server continues, and the options that need a
/// restart are reported.
pub(crate) fn nts_is_not_switched_off() -> Result<()> {
    let (running, pair) = start_with_nts()?;
    running.reload_with("")?;
    await_restart_needed(&running, &["nts-cert", "nts-key"])?;
    exchange_keys(&running, PORT, pair.path())?.context("after NTS was switched off")?;
    running.reload_with(&nts_ke_options(&running, pair.path(), &[PORT]))?;
    await_restart_needed(&running, &[])?;
    running.end()
}

/// Waits until exactly these options are reported to need a restart, which is soon after the reload
/// was counted.
fn await_restart_needed(running: &ConfiguredServer, keys: &[&str]) -> Result<()> {
    let started = Instant::now();
    loop {
        let status = running.server.status()?;
        if status["reload"]["restart_needed"] == Value::from(keys) {
            return Ok(());
        }
        ensure!(started.elapsed() < TIMEOUT, "{status}");
        thread::sleep(POLL_INTERVAL);
    }
}

/// Successive replies that show that a client is served.
const REPLIES_MIN: u64 = 3;

/// Waits until a counter of the socket threads has risen by `REPLIES_MIN`.
fn await_increase(running: &ConfiguredServer, name: &str) -> Result<()> {
    let before = counter(&running.server, name)?;
    await_counter(&running.server, name, before + REPLIES_MIN)
}

/// Waits until `REPLIES_MIN` more requests with a MAC are ignored, and checks that none gets a
/// reply.
fn await_ignored(running: &ConfiguredServer) -> Result<()> {
    let ignored = || -> Result<u64> {
        let status = running.server.status()?;
        status["counters"]["ignored"]["mac"].as_u64().context("no such counter")
    };
    let (before, answered) = (ignored()?, counter(&running.server, "mac")?);
    let started = Instant::now();
    while ignored()? < before + REPLIES_MIN {
        ensure!(
            started.elapsed() < TIMEOUT,
            "too few requests are ignored: {}",
            running.server.status()?
        );
        thread::sleep(POLL_INTERVAL);
    }
    let now = counter(&running.server, "mac")?;
    ensure!(now == answered, "{} replies meanwhile", now - answered);
    Ok(())
}

/// After a reload requests need the symmetric key that is now in the file; an invalid file leaves
/// the previous keys in force.
pub(crate) fn requests_need_the_reloaded_key() -> Result<()> {
    let directory = TempDir::new()?;
    let path = directory.path().join("ntp.keys");
    let key = |first: &str| format!("7 AES128 HEX:{first}0102030405060708090a0b0c0d0e0f\n");
    write_secret(&path, &key("00"))?;
    let options = format!("keys = '{}'\n", path.display());
    let mut running = ConfiguredServer::start(Engine::Socket, &options)?;
    let lines = [format!("server {} key 7 {FAST}", running.at.ip()), "keyfile DIR/keys".to_owned()];
    let _client = ChronydClient::start(running.lab.client(), &lines, |directory| {
        Ok(fs::write(directory.join("keys"), key("00"))?)
    })?;
    await_increase(&running, "mac").context("at the start")?;
    running.reload_with(&options)?;
    await_increase(&running, "mac").context("with the same key")?;
    write_secret(&path, &key("ff"))?;
    running.reload_with(&options)?;
    await_ignored(&running).context("with another key")?;
    write_secret(&path, "7 AES128 HEX:00\n8 MD5 abc\n")?;
    running.check_reload_refused(&options, &["ntp.keys", "line 1", "16 bytes", "line 2", "MD5"])?;
    await_ignored(&running).context("after an invalid file")?;
    write_secret(&path, &format!("8 MD5 abc\n{}", key("00")))?;
    running.reload_with(&options)?;
    await_increase(&running, "mac").context("with the first key and an unused line")?;
    running.end()
}

/// After a reload with another secret, earlier cookies are rejected and clients get new ones; with
/// the same secret, or an invalid one, clients notice no change.
pub(crate) fn another_secret_makes_other_cookies() -> Result<()> {
    let directory = TempDir::new()?;
    let file = |name: &str| directory.path().join(name);
    let ip = server_address(&Lab::new(&LabConfig::default())?, false)?.ip();
    let [certificate, key] = write_certificate(ip, directory.path())?;
    write_secret(&file("secret"), &"01".repeat(32))?;
    let named = [("cert", &certificate), ("key", &key), ("master-secret", &file("secret"))];
    let options = named.map(|(name, path)| format!("nts-{name} = '{}'\n", path.display())).concat();
    let mut running = ConfiguredServer::start(Engine::Xdp, &options)?;
    let lines =
        [format!("server {ip} nts {FAST}"), format!("ntstrustedcerts {}", certificate.display())];
    let _client = ChronydClient::start(running.lab.client(), &lines, |_| Ok(()))?;
    await_increase(&running, "nts").context("at the start")?;
    running.reload_with(&options)?;
    write_secret(&file("secret"), "01")?;
    running.check_reload_refused(&options, &["secret", "it requires 64"])?;
    await_increase(&running, "nts").context("with the same secret")?;
    ensure!(counter(&running.server, "nts_kisses")? == 0, "{}", running.server.status()?);
    write_secret(&file("secret"), &"02".repeat(32))?;
    running.reload_with(&options)?;
    await_counter(&running.server, "nts_kisses", 1)?;
    await_increase(&running, "nts").context("with another secret")?;
    running.end()
}
