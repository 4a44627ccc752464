//! Scenarios of reloads of what a server holds clients to and shows them: limits and lists, key
//! establishment, symmetric keys and the secret of cookies. What is new is in force afterwards and
//! nobody's request is lost; what is broken changes nothing, and one line says so.

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
use libtest_mimic::Trial;
use serde_json::Value;
use tempfile::TempDir;

use crate::chronyd::{Client, POLL_INTERVAL};
use crate::client::{self, SteadyClient};
use crate::process::{Engine, Server, TIMEOUT, run_to_end, server_address, write_secret};
use crate::scenario::scenario;
use crate::server_configuration::{REQUEST_PAUSE, reload, write};
use crate::server_nts::{CHRONY, FAST, await_counter, certificate, counter};
use crate::{ROOT, scenarios, server_reload};

/// Long enough for a reply that must not come to show itself, and for those that must.
const QUIET_PERIOD: Duration = Duration::from_millis(200);
/// More reloads of lists than a client's word can tell apart.
const LIST_CHANGES: usize = 18;
/// Prefixes that no client has, so many that a change of lists is no matter of an instant.
const OTHERS: u32 = 5_000;

/// All of them.
pub(crate) fn all() -> Vec<Trial> {
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

/// A server with a configuration file in a lab.
struct Configured {
    lab: Lab,
    at: SocketAddr,
    directory: TempDir,
    server: Server,
    /// Reloads that were refused.
    refused: usize,
}

impl Configured {
    fn start(engine: Engine, options: &str) -> Result<Self> {
        let lab = Lab::new(&LabConfig::default())?;
        let at = server_address(&lab, false)?;
        let directory = TempDir::new()?;
        let path = directory.path().join("horolog.toml");
        write(&path, &[at], options)?;
        let config = path.to_string_lossy().into_owned();
        let server = Server::start_as(lab.server(), engine, &[], &["-c", &config])?;
        Ok(Self { lab, at, directory, server, refused: 0 })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Takes these options over.
    fn change(&self, options: &str) -> Result<Value> {
        write(&self.path("horolog.toml"), &[self.at], options)?;
        let status = reload(&self.server)?;
        ensure!(status["reload"]["last_reload_error"].is_null(), "{options}: {status}");
        Ok(status)
    }

    /// Refuses these options, with these words in the reason.
    fn refuse(&mut self, options: &str, words: &[&str]) -> Result<()> {
        write(&self.path("horolog.toml"), &[self.at], options)?;
        let status = reload(&self.server)?;
        let reason = status["reload"]["last_reload_error"].as_str().unwrap_or_default();
        for word in words {
            ensure!(reason.contains(word), "{word} is not in the reason: {reason}");
        }
        self.refused += 1;
        Ok(())
    }

    /// Ends it; it must have said in one line each which reloads were refused.
    fn end(self) -> Result<()> {
        let ended = self.server.end("TERM")?;
        let reported = ended.stderr.lines().filter(|line| line.contains("reload-refused")).count();
        ensure!(reported == self.refused, "{} were refused: {}", self.refused, ended.stderr);
        Ok(())
    }
}

/// Gives the host another address, and returns a socket there.
fn socket_at(host: &LabHost, address: IpAddr) -> Result<UdpSocket> {
    let mut command = host.command("ip");
    command.args(["addr", "add", &format!("{address}/32"), "dev", &host.first_interface().name]);
    let output = run_to_end(&mut command, TIMEOUT)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let socket = host.run(|| UdpSocket::bind((address, 0)))??;
    socket.set_read_timeout(Some(QUIET_PERIOD))?;
    Ok(socket)
}

/// Lists come and go while a client asks that all of them serve: each of its requests is answered.
/// Another client is served by some of them. Prefixes are longer than what counts as one client
/// here, so that every request is looked up.
fn lists_change(engine: Engine) -> Result<()> {
    const ALWAYS: &str = "limit-ipv4-prefix = 24\n";
    let mut running = Configured::start(engine, &format!("{ALWAYS}deny = ['198.51.100.1']\n"))?;
    let own = running.lab.client().first_interface().ipv4;
    let other = IpAddr::from([10, 77, 0, 1]);
    let others =
        (0..OTHERS).map(|number| format!("{}\n", std::net::Ipv4Addr::from(0x0a01_0000 + number)));
    fs::write(running.path("others"), others.collect::<String>())?;
    let others = format!("deny-file = '{}'\n", running.path("others").display());
    let variants = [
        (format!("{others}deny = ['0.0.0.0/0']\nallow = ['{own}']\n"), false),
        (others.clone(), true),
        (format!("allow = ['0.0.0.0/0']\ndeny = ['{other}']\n"), false),
        (format!("{others}allow = ['10.77.0.0/16', '{own}']\ndeny = ['203.0.113.0/24']\n"), true),
    ];
    let socket = client::socket(running.lab.client(), running.at, TIMEOUT)?;
    let steady = SteadyClient::start(socket, running.at, REQUEST_PAUSE);
    let socket = socket_at(running.lab.client(), other)?;
    for (lists, is_served) in variants.iter().cycle().take(LIST_CHANGES) {
        running.change(&format!("{ALWAYS}{lists}"))?;
        let reply = client::query(&socket, running.at);
        ensure!(reply.is_ok() == *is_served, "{lists}: {reply:?}");
    }
    fs::write(running.path("others"), "10.0.0.0/8\n10.0.0.0/33\n")?;
    running.refuse(&format!("{ALWAYS}{others}"), &["others, line 2", "too long"])?;
    running.refuse(&format!("{ALWAYS}deny = ['here']\n"), &["horolog.toml:4", "here"])?;
    // The last list that was right is in force: it denies the other one.
    let reply = client::query(&socket, running.at);
    ensure!(reply.is_ok() == variants[(LIST_CHANGES - 1) % variants.len()].1, "{reply:?}");
    steady.end()?.all_answered()?;
    running.end()
}

/// How many of eight requests at once are answered.
fn answered_at_once(socket: &UdpSocket, server: SocketAddr) -> Result<usize> {
    for _ in 0..8 {
        socket.send_to(&client::request(4, client::now()), server)?;
    }
    let mut buffer = [0; 1024];
    Ok(std::iter::from_fn(|| socket.recv(&mut buffer).ok()).count())
}

/// Limits that a client keeps come and go without a request lost; one that it does not keep holds
/// from then on, and no longer than until the next.
fn limits_change(engine: Engine) -> Result<()> {
    let wide = "limit-rate = 5000\nlimit-burst = 1000\n";
    let narrow = "limit-rate = 0.01\nlimit-burst = 2\n";
    let mut running = Configured::start(engine, wide)?;
    let steady = client::socket(running.lab.client(), running.at, TIMEOUT)?;
    let steady = SteadyClient::start(steady, running.at, REQUEST_PAUSE);
    for rate in ["4000", "6000", "5000"] {
        let status = running.change(&format!("limit-rate = {rate}\nlimit-burst = 1000\n"))?;
        ensure!(status["reload"]["restart_needed"].as_array().is_some_and(Vec::is_empty));
    }
    steady.end()?.all_answered()?;
    let socket = client::socket(running.lab.client(), running.at, QUIET_PERIOD)?;
    running.change(narrow)?;
    let answered = answered_at_once(&socket, running.at)?;
    ensure!(answered == 2, "{answered} are answered of a burst of two");
    running.refuse("limit-rate = 0\n", &["horolog.toml:3", "--limit-rate"])?;
    running.refuse("limit-rate = 'much'\n", &["horolog.toml:3", "limit-rate"])?;
    let answered = answered_at_once(&socket, running.at)?;
    ensure!(answered == 0, "{answered} are answered though the limit stayed");
    running.change(wide)?;
    let answered = answered_at_once(&socket, running.at)?;
    ensure!(answered == 8, "{answered} are answered of those that the limit allows");
    running.end()
}

/// Puts a pair into the place of another, whole file for whole file.
fn put(from: &Path, to: &Path) -> Result<()> {
    for name in ["cert.pem", "key.pem"] {
        let new = to.join("new");
        fs::copy(from.join(name), &new)?;
        fs::rename(new, to.join(name))?;
    }
    Ok(())
}

/// After a reload the listener for key establishment shows the certificate that stands in the file
/// by then; one that is broken or does not fit its key leaves the one before.
pub(crate) fn a_new_certificate_is_presented() -> Result<()> {
    let pairs: [TempDir; 2] = [TempDir::new()?, TempDir::new()?];
    let directory = TempDir::new()?;
    let file = |name: &str| directory.path().join(name).display().to_string();
    let options = format!("nts-cert = '{}'\nnts-key = '{}'\n", file("cert.pem"), file("key.pem"));
    let ip = server_address(&Lab::new(&LabConfig::default())?, false)?.ip();
    for pair in &pairs {
        certificate(ip, pair.path())?;
    }
    put(pairs[0].path(), directory.path())?;
    let mut running = Configured::start(Engine::Socket, &options)?;
    let shows = |running: &Configured, number: usize| -> Result<()> {
        for (other, pair) in pairs.iter().enumerate() {
            match establish(running, PORT, pair.path())? {
                Ok(_) if other == number => {}
                Err(NtsKeError::Tls(_)) if other != number => {}
                got => anyhow::bail!("certificate {other} instead of {number}: {got:?}"),
            }
        }
        Ok(())
    };
    shows(&running, 0).context("at the start")?;
    put(pairs[1].path(), directory.path())?;
    shows(&running, 0).context("before the reload")?;
    running.change(&options)?;
    shows(&running, 1).context("after the reload")?;
    fs::copy(pairs[0].path().join("key.pem"), directory.path().join("key.pem"))?;
    running.refuse(&options, &["key.pem"])?;
    fs::write(directory.path().join("cert.pem"), "-----BEGIN CERTIFICATE-----\n")?;
    running.refuse(&options, &["cert.pem"])?;
    shows(&running, 1).context("after what is broken")?;
    put(pairs[0].path(), directory.path())?;
    running.change(&options)?;
    shows(&running, 0).context("after it was put back")?;
    running.end()
}

/// A client that believes the certificate in this directory.
fn trusting_client(directory: &Path) -> Result<NtsKeClient> {
    let trust = TrustAnchors::from_pem_file(Some(&directory.join("cert.pem")))?;
    Ok(NtsKeClient::new(&trust, &[AES_SIV_CMAC_256])?)
}

/// What such a client gets at a port of the server.
fn establish(
    running: &Configured,
    port: u16,
    directory: &Path,
) -> Result<Result<SessionMaterial, NtsKeError>> {
    let (client, at) = (trusting_client(directory)?, SocketAddr::new(running.at.ip(), port));
    let name = at.ip().to_string();
    Ok(running.lab.client().run(|| client.exchange_keys(&name, at, TIMEOUT))?)
}

/// A connection to a port of the server, over which nothing has been said.
fn connect(running: &Configured, port: u16) -> Result<TcpStream> {
    let at = SocketAddr::new(running.at.ip(), port);
    let stream = running.lab.client().run(|| TcpStream::connect(at))??;
    stream.set_read_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

/// Options of a listener with the pair in this directory, at these ports.
fn listener(running: &Configured, pair: &Path, ports: &[u16]) -> String {
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

/// A server with NTS at its default port, and a pair that it can read.
fn with_nts() -> Result<(Configured, TempDir)> {
    let pair = TempDir::new()?;
    let ip = server_address(&Lab::new(&LabConfig::default())?, false)?.ip();
    let named = ["cert", "key"].into_iter().zip(certificate(ip, pair.path())?);
    let options = named.map(|(name, path)| format!("nts-{name} = '{}'\n", path.display()));
    Ok((Configured::start(Engine::Socket, &options.collect::<String>())?, pair))
}

/// Addresses of key establishment come and go while the others serve on; a connection that was
/// open at one that goes is served to its end. A port that is taken changes nothing.
pub(crate) fn nts_ke_addresses_are_reloaded() -> Result<()> {
    let [first, second, free, taken] = [PORT, 4461, 4462, 4463];
    let (mut running, pair) = with_nts()?;
    let serves_at = |running: &Configured, wanted: &[u16]| -> Result<()> {
        for port in [first, second, free] {
            match establish(running, port, pair.path())? {
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
    serves_at(&running, &[first]).context("at the start")?;
    let status = running.change(&listener(&running, pair.path(), &[first, second]))?;
    ensure!(status["reload"]["restart_needed"].as_array().is_some_and(Vec::is_empty), "{status}");
    serves_at(&running, &[first, second]).context("with a second one")?;
    let mut open = connect(&running, first)?;
    running.change(&listener(&running, pair.path(), &[second]))?;
    serves_at(&running, &[second]).context("without the first one")?;
    let name = running.at.ip().to_string();
    let mut exchange = trusting_client(pair.path())?.begin(&name)?;
    while !matches!(
        exchange.advance(&mut open).context("the open one")?,
        NtsKeExchangeStatus::Done(_)
    ) {}

    let at_taken = SocketAddr::new(running.at.ip(), taken);
    let _holder = running.lab.server().run(|| TcpListener::bind(at_taken))??;
    let elsewhere = "nts-ntp-server = 'elsewhere.example'\n";
    let options = listener(&running, pair.path(), &[second, free, taken]) + elsewhere;
    running.refuse(&options, &[&at_taken.to_string(), "in use", "--nts-ke-listen"])?;
    serves_at(&running, &[second]).context("after a taken one")?;
    let options = listener(&running, pair.path(), &[]).replace("[]", "['0.0.0.0:4461']");
    running.refuse(&options, &["--nts-ke-listen 0.0.0.0:4461 overlaps"])?;
    serves_at(&running, &[second]).context("after one that overlaps")?;
    running.end()
}

/// Other files of the certificate, another server that clients are sent to and other limits are in
/// force after a reload.
pub(crate) fn nts_ke_settings_are_reloaded() -> Result<()> {
    let (mut running, pair) = with_nts()?;
    let other = TempDir::new_in(pair.path())?;
    certificate(running.at.ip(), other.path())?;
    let get = |running: &Configured| establish(running, PORT, other.path());
    ensure!(matches!(get(&running)?, Err(NtsKeError::Tls(_))), "another certificate at the start");
    let options = listener(&running, other.path(), &[PORT]);
    running.change(&options)?;
    let got = get(&running)?.context("the certificate of another file")?;
    ensure!(got.server.is_none(), "clients are sent to {:?}", got.server);
    running.change(&format!("{options}nts-ntp-server = 'time.example'\n"))?;
    let got = get(&running)?.context("with another server")?;
    ensure!(got.server.as_deref() == Some("time.example"), "clients are sent to {:?}", got.server);

    running.change(&format!("{options}nts-ke-connections-per-prefix = 1\n"))?;
    let guest = connect(&running, PORT)?;
    let refused = |running: &Configured| -> Result<u64> {
        let status = running.server.status()?;
        let refused = status.pointer("/nts_ke/counters/refused_concurrent");
        refused.and_then(Value::as_u64).with_context(|| format!("{status}"))
    };
    ensure!(refused(&running)? == 0 && get(&running)?.is_err(), "two though the limit is one");
    ensure!(refused(&running)? == 1, "{} are refused", refused(&running)?);
    running.refuse(&format!("{options}nts-ke-connections = 0\n"), &["connections"])?;
    running.change(&format!("{options}nts-ke-connections-per-prefix = 2\n"))?;
    get(&running)?.context("as the limit is two again")?;
    drop(guest);
    running.end()
}

/// Whether there is key establishment at all is no matter of a reload: the listener stays as it is,
/// and what waits for a restart is named.
pub(crate) fn nts_is_not_switched_off() -> Result<()> {
    let (running, pair) = with_nts()?;
    running.change("")?;
    await_restart_needed(&running, &["nts-cert", "nts-key"])?;
    establish(&running, PORT, pair.path())?.context("after NTS was switched off")?;
    running.change(&listener(&running, pair.path(), &[PORT]))?;
    await_restart_needed(&running, &[])?;
    running.end()
}

/// Waits until these options are said to wait for a restart, which is a moment after the reload is
/// counted.
fn await_restart_needed(running: &Configured, keys: &[&str]) -> Result<()> {
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

/// Replies that a client has in a row where all goes well.
const SOME: u64 = 3;

/// Waits until so many more are counted, by a counter of the socket threads.
fn await_more(running: &Configured, name: &str) -> Result<()> {
    let before = counter(&running.server, name)?;
    await_counter(&running.server, name, before + SOME)
}

/// Waits until so many more requests with a MAC are not answered.
fn await_ignored(running: &Configured) -> Result<()> {
    let ignored = || -> Result<u64> {
        let status = running.server.status()?;
        status["counters"]["ignored"]["mac"].as_u64().context("no such counter")
    };
    let (before, answered) = (ignored()?, counter(&running.server, "mac")?);
    let started = Instant::now();
    while ignored()? < before + SOME {
        ensure!(started.elapsed() < TIMEOUT, "none is ignored: {}", running.server.status()?);
        thread::sleep(POLL_INTERVAL);
    }
    let now = counter(&running.server, "mac")?;
    ensure!(now == answered, "{} were answered meanwhile", now - answered);
    Ok(())
}

/// After a reload a request takes the symmetric key that stands in the file by then; a file that is
/// broken leaves the keys before.
pub(crate) fn requests_need_the_reloaded_key() -> Result<()> {
    let directory = TempDir::new()?;
    let path = directory.path().join("ntp.keys");
    let key = |first: &str| format!("7 AES128 HEX:{first}0102030405060708090a0b0c0d0e0f\n");
    write_secret(&path, &key("00"))?;
    let options = format!("keys = '{}'\n", path.display());
    let mut running = Configured::start(Engine::Socket, &options)?;
    let lines = [format!("server {} key 7 {FAST}", running.at.ip()), "keyfile DIR/keys".to_owned()];
    let _client = Client::start(running.lab.client(), &lines, |directory| {
        Ok(fs::write(directory.join("keys"), key("00"))?)
    })?;
    await_more(&running, "mac").context("at the start")?;
    running.change(&options)?;
    await_more(&running, "mac").context("with the same key")?;
    write_secret(&path, &key("ff"))?;
    running.change(&options)?;
    await_ignored(&running).context("with another key")?;
    write_secret(&path, "7 AES128 HEX:00\n8 MD5 abc\n")?;
    running.refuse(&options, &["ntp.keys", "line 1", "16 bytes", "line 2", "MD5"])?;
    await_ignored(&running).context("after what is broken")?;
    write_secret(&path, &format!("8 MD5 abc\n{}", key("00")))?;
    running.change(&options)?;
    await_more(&running, "mac").context("after it was put back, beside a line that is not used")?;
    running.end()
}

/// After a reload cookies of another secret are good for nothing, and clients get new ones; with
/// the same secret, or one that is broken, they notice nothing.
pub(crate) fn another_secret_makes_other_cookies() -> Result<()> {
    let directory = TempDir::new()?;
    let file = |name: &str| directory.path().join(name);
    let ip = server_address(&Lab::new(&LabConfig::default())?, false)?.ip();
    let [certificate, key] = certificate(ip, directory.path())?;
    write_secret(&file("secret"), &"01".repeat(32))?;
    let named = [("cert", &certificate), ("key", &key), ("master-secret", &file("secret"))];
    let options = named.map(|(name, path)| format!("nts-{name} = '{}'\n", path.display())).concat();
    let mut running = Configured::start(Engine::Xdp, &options)?;
    let lines =
        [format!("server {ip} nts {FAST}"), format!("ntstrustedcerts {}", certificate.display())];
    let _client = Client::start(running.lab.client(), &lines, |_| Ok(()))?;
    await_more(&running, "nts").context("at the start")?;
    running.change(&options)?;
    write_secret(&file("secret"), "01")?;
    running.refuse(&options, &["secret", "it requires 64"])?;
    await_more(&running, "nts").context("with the same secret")?;
    ensure!(counter(&running.server, "nts_kisses")? == 0, "{}", running.server.status()?);
    write_secret(&file("secret"), &"02".repeat(32))?;
    running.change(&options)?;
    await_counter(&running.server, "nts_kisses", 1)?;
    await_more(&running, "nts").context("with another secret")?;
    running.end()
}
