//! Scenarios of NTS-KE: Horolog's client with Debian's chronyd, which always runs with `-x` so that
//! it does not touch the clock, and Horolog's server with slow clients at other addresses.

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use horolog_ke::{
    AES_128_GCM_SIV, AES_SIV_CMAC_256, CookieProvider, NtsKeClient, NtsKeConfig, NtsKeError,
    NtsKeServer, PORT, SessionMaterial, TrustAnchors,
};
use horolog_lab::{Lab, LabConfig, LabHost};
use horolog_sys::namespace::die_with_parent;
use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;

use crate::process::{TIMEOUT, signal};
use crate::scenario::{Need, Scenario};
use crate::{scenarios, server_ke};

pub(crate) const NAME: &str = "time.example";
/// Cookies per exchange, of chronyd and of Horolog.
const COOKIES: usize = 8;
const POLL_INTERVAL: Duration = Duration::from_millis(20);

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(&[Need::Root, Need::Peer("chronyd")], server_ke:
        chronyd_provides_keys,
        a_chronyd_with_an_untrusted_certificate_is_rejected,
    ));
    all.extend(scenarios!(&[Need::Root], server_ke: slow_clients_do_not_starve_others));
    all
}

/// Self-signed certificate and its key, in files.
pub(crate) struct Identity(TempDir);

impl Identity {
    pub(crate) fn new() -> Result<Self> {
        let identity = Self(TempDir::new()?);
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new([NAME.to_owned()])?.self_signed(&key)?;
        fs::write(identity.path("certificate.pem"), certificate.pem())?;
        fs::write(identity.path("key.pem"), key.serialize_pem())?;
        Ok(identity)
    }

    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn client(&self, algorithms: &[u16]) -> Result<NtsKeClient, NtsKeError> {
        NtsKeClient::new(
            &TrustAnchors::from_pem_file(Some(&self.path("certificate.pem")))?,
            algorithms,
        )
    }
}

/// A running chronyd that serves NTS.
pub(crate) struct Chronyd {
    child: Child,
    pub(crate) at: SocketAddr,
}

impl Chronyd {
    pub(crate) fn start(host: &LabHost, identity: &Identity) -> Result<Self> {
        let configuration = format!(
            "allow\nlocal stratum 1\ncmdport 0\nbindcmdaddress /\npidfile {}\n\
             ntsserverkey {}\nntsservercert {}\nntsprocesses 1\nntsport {PORT}\n",
            identity.path("chronyd.pid").display(),
            identity.path("key.pem").display(),
            identity.path("certificate.pem").display(),
        );
        fs::write(identity.path("chrony.conf"), configuration)?;
        let mut command = host.command("chronyd");
        command.args(["-x", "-d", "-u", "root", "-f"]).arg(identity.path("chrony.conf"));
        let log = fs::File::create(identity.path("chronyd.log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = die_with_parent(&mut command).spawn().context("cannot start chronyd")?;
        let server = Self { child, at: (host.first_interface().ipv4, PORT).into() };
        server.wait_until_ready(host, identity)?;
        Ok(server)
    }

    fn wait_until_ready(&self, host: &LabHost, identity: &Identity) -> Result<()> {
        let started = Instant::now();
        while host.run(|| TcpStream::connect(self.at))?.is_err() {
            if started.elapsed() > TIMEOUT {
                bail!("chronyd: {}", fs::read_to_string(identity.path("chronyd.log"))?);
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }
}

impl Drop for Chronyd {
    fn drop(&mut self) {
        // After SIGTERM chronyd ends its helper process, too.
        let _ = signal(&self.child, "TERM");
        let _ = self.child.wait();
    }
}

/// Exchanges keys from `host` and returns the outcome.
fn exchange_keys_with(
    host: &LabHost,
    client: &NtsKeClient,
    at: SocketAddr,
) -> Result<Result<SessionMaterial, NtsKeError>> {
    Ok(host.run(|| client.exchange_keys(NAME, at, TIMEOUT))?)
}

/// chronyd selects the mandatory algorithm or, if it supports it, the other one that is offered;
/// each session has its own keys and cookies.
pub(crate) fn chronyd_provides_keys() -> Result<()> {
    let (lab, identity) = (Lab::new(&LabConfig::default())?, Identity::new()?);
    let chronyd = Chronyd::start(lab.server(), &identity)?;
    let client = identity.client(&[AES_SIV_CMAC_256])?;
    let first = exchange_keys_with(lab.client(), &client, chronyd.at)??;
    let second = exchange_keys_with(lab.client(), &client, chronyd.at)??;
    for got in [&first, &second] {
        ensure!(got.algorithm == AES_SIV_CMAC_256, "{got:?}");
        ensure!(got.c2s.len() == 32 && got.s2c.len() == 32 && got.c2s != got.s2c, "{got:?}");
        ensure!(got.cookies.len() == COOKIES, "{got:?}");
    }
    ensure!(first.c2s != second.c2s, "two sessions have the same key");
    let is_new = |cookie: &Vec<u8>| !second.cookies.contains(cookie);
    ensure!(first.cookies.iter().all(is_new), "two sessions have the same cookie");

    let both = identity.client(&[AES_128_GCM_SIV, AES_SIV_CMAC_256])?;
    let got = exchange_keys_with(lab.client(), &both, chronyd.at)??;
    ensure!(Some(got.c2s.len()) == horolog_ke::key_len(got.algorithm), "{got:?}");
    // AEAD_AES_SIV_CMAC_512, which chronyd does not support.
    let refused = exchange_keys_with(lab.client(), &identity.client(&[17])?, chronyd.at)?;
    ensure!(matches!(refused, Err(NtsKeError::NoAlgorithm)), "{refused:?}");
    Ok(())
}

/// An untrusted certificate, or one for another name, ends the exchange.
pub(crate) fn a_chronyd_with_an_untrusted_certificate_is_rejected() -> Result<()> {
    let (lab, identity) = (Lab::new(&LabConfig::default())?, Identity::new()?);
    let chronyd = Chronyd::start(lab.server(), &identity)?;
    let untrusting_client = Identity::new()?.client(&[AES_SIV_CMAC_256])?;
    let refused = exchange_keys_with(lab.client(), &untrusting_client, chronyd.at)?;
    ensure!(matches!(refused, Err(NtsKeError::Tls(_))), "{refused:?}");
    let client = identity.client(&[AES_SIV_CMAC_256])?;
    let refused =
        lab.client().run(|| client.exchange_keys("other.example", chronyd.at, TIMEOUT))?;
    ensure!(matches!(refused, Err(NtsKeError::Tls(_))), "{refused:?}");
    Ok(())
}

/// Provider of cookies without content.
struct BlankCookieProvider;

impl CookieProvider for BlankCookieProvider {
    fn algorithms(&self) -> Vec<u16> {
        vec![AES_SIV_CMAC_256]
    }

    fn cookies(&self, _: u16, _: &[u8], _: &[u8], count: usize) -> Vec<Vec<u8>> {
        vec![vec![0; 100]; count]
    }
}

/// One address opens as many connections as it can and sends single bytes on each. It never exceeds
/// its share, so each exchange of a client at another address succeeds.
pub(crate) fn slow_clients_do_not_starve_others() -> Result<()> {
    let lab = Lab::new(&LabConfig { hosts: 3, ..LabConfig::default() })?;
    let identity = Identity::new()?;
    let (server_host, attacker, honest) = (lab.client(), lab.host(1), lab.host(2));
    let mut config = NtsKeConfig::new(
        (std::net::Ipv4Addr::UNSPECIFIED, PORT).into(),
        identity.path("certificate.pem"),
        identity.path("key.pem"),
    );
    config.threads = 1;
    config.limits.connections = 2 * config.limits.connections_per_prefix as usize;
    let share = u64::from(config.limits.connections_per_prefix);
    let server =
        server_host.run(|| NtsKeServer::start(config, Arc::new(BlankCookieProvider)))??;
    let at = |port: usize| SocketAddr::from((server_host.interfaces[port].ipv4, PORT));
    let client = identity.client(&[AES_SIV_CMAC_256])?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| attacker.run(|| send_slowly(at(0), 4 * share as usize, &stop)));
        let served = await_attack(&server, share).and_then(|()| {
            (0..COOKIES).try_for_each(|_| {
                exchange_keys_with(honest, &client, at(1))?.map(drop).context("honest client")
            })
        });
        stop.store(true, Relaxed);
        served
    })?;
    let counters = server.counts();
    ensure!(counters.established == COOKIES as u64 && counters.refused_full == 0, "{counters:?}");
    Ok(())
}

/// Waits until the attacker holds all its connections and further ones are refused.
fn await_attack(server: &NtsKeServer, share: u64) -> Result<()> {
    let started = Instant::now();
    loop {
        let counters = server.counts();
        let refused = counters.refused_concurrent + counters.refused_rate;
        ensure!(counters.open <= share, "the attacker exceeds its share: {counters:?}");
        if counters.open == share && refused > 0 {
            return Ok(());
        }
        ensure!(started.elapsed() < TIMEOUT, "no attack: {counters:?}");
        thread::sleep(POLL_INTERVAL);
    }
}

/// Keeps up to `count` connections open and sends single bytes of a TLS handshake on each.
fn send_slowly(at: SocketAddr, count: usize, stop: &AtomicBool) {
    let mut streams: Vec<TcpStream> = Vec::new();
    while !stop.load(Relaxed) {
        streams.retain_mut(|stream| stream.write_all(&[1]).is_ok());
        while streams.len() < count {
            let Ok(mut stream) = TcpStream::connect(at) else { break };
            // First bytes of a handshake record.
            let _ = stream.write_all(&[22, 3, 1, 1, 0]);
            streams.push(stream);
        }
        thread::sleep(POLL_INTERVAL);
    }
}
