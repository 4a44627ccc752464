//! Scenarios of NTS key establishment: our client asks Debian's chronyd, which is always told to
//! leave this machine's clock alone (`-x`), and our listener, which clients at other addresses try
//! to keep busy.

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
use libtest_mimic::Trial;
use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;

use crate::process::{TIMEOUT, signal};
use crate::scenario::Need;
use crate::{scenarios, server_ke};

pub(crate) const NAME: &str = "time.example";
/// chronyd's number of cookies, and ours.
const COOKIES: usize = 8;
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// All of them.
pub(crate) fn all() -> Vec<Trial> {
    let mut all = Vec::from(scenarios!(&[Need::Root, Need::Peer("chronyd")], server_ke:
        chronyd_provides_keys,
        a_chronyd_with_an_untrusted_certificate_is_rejected,
    ));
    all.extend(scenarios!(&[Need::Root], server_ke: slow_clients_do_not_starve_others));
    all
}

/// A certificate that signed itself and its key, in files.
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
        let child = die_with_parent(&mut command).spawn().context("chronyd")?;
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
        // Told so, it ends its helper process as well.
        let _ = signal(&self.child, "TERM");
        let _ = self.child.wait();
    }
}

/// What a client in `host` gets.
fn exchange_keys_with(
    host: &LabHost,
    client: &NtsKeClient,
    at: SocketAddr,
) -> Result<Result<SessionMaterial, NtsKeError>> {
    Ok(host.run(|| client.exchange_keys(NAME, at, TIMEOUT))?)
}

/// chronyd agrees to the algorithm that every implementation has, whatever else is offered to this
/// version of it, and each session gets its own keys and cookies.
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
    ensure!(first.c2s != second.c2s, "two sessions with the same key");
    ensure!(first.cookies.iter().all(|cookie| !second.cookies.contains(cookie)), "cookies again");

    let both = identity.client(&[AES_128_GCM_SIV, AES_SIV_CMAC_256])?;
    let got = exchange_keys_with(lab.client(), &both, chronyd.at)??;
    ensure!(Some(got.c2s.len()) == horolog_ke::key_len(got.algorithm), "{got:?}");
    // 512 bits of AES-SIV-CMAC, which chronyd does not have.
    let refused = exchange_keys_with(lab.client(), &identity.client(&[17])?, chronyd.at)?;
    ensure!(matches!(refused, Err(NtsKeError::NoAlgorithm)), "{refused:?}");
    Ok(())
}

/// A certificate that nobody trusts, or for another name, ends the exchange.
pub(crate) fn a_chronyd_with_an_untrusted_certificate_is_rejected() -> Result<()> {
    let (lab, identity) = (Lab::new(&LabConfig::default())?, Identity::new()?);
    let chronyd = Chronyd::start(lab.server(), &identity)?;
    let stranger = Identity::new()?.client(&[AES_SIV_CMAC_256])?;
    let refused = exchange_keys_with(lab.client(), &stranger, chronyd.at)?;
    ensure!(matches!(refused, Err(NtsKeError::Tls(_))), "{refused:?}");
    let client = identity.client(&[AES_SIV_CMAC_256])?;
    let refused =
        lab.client().run(|| client.exchange_keys("other.example", chronyd.at, TIMEOUT))?;
    ensure!(matches!(refused, Err(NtsKeError::Tls(_))), "{refused:?}");
    Ok(())
}

/// Cookies with nothing in them.
struct Blank;

impl CookieProvider for Blank {
    fn algorithms(&self) -> Vec<u16> {
        vec![AES_SIV_CMAC_256]
    }

    fn cookies(&self, _: u16, _: &[u8], _: &[u8], count: usize) -> Vec<Vec<u8>> {
        vec![vec![0; 100]; count]
    }
}

/// One address opens as many connections as it can, and says a byte at a time in each. It never has
/// more than its share, so a client at another address is served each time that it asks.
pub(crate) fn slow_clients_do_not_starve_others() -> Result<()> {
    let lab = Lab::new(&LabConfig { hosts: 3, ..LabConfig::default() })?;
    let identity = Identity::new()?;
    let (house, attacker, honest) = (lab.client(), lab.host(1), lab.host(2));
    let mut config = NtsKeConfig::new(
        (std::net::Ipv4Addr::UNSPECIFIED, PORT).into(),
        identity.path("certificate.pem"),
        identity.path("key.pem"),
    );
    config.threads = 1;
    config.limits.connections = 2 * config.limits.connections_per_prefix as usize;
    let share = u64::from(config.limits.connections_per_prefix);
    let server = house.run(|| NtsKeServer::start(config, Arc::new(Blank)))??;
    let at = |port: usize| SocketAddr::from((house.interfaces[port].ipv4, PORT));
    let client = identity.client(&[AES_SIV_CMAC_256])?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| attacker.run(|| dribble(at(0), 4 * share as usize, &stop)));
        let served = await_attack(&server, share).and_then(|()| {
            (0..COOKIES).try_for_each(|_| {
                exchange_keys_with(honest, &client, at(1))?.map(drop).context("honest")
            })
        });
        stop.store(true, Relaxed);
        served
    })?;
    let counters = server.counts();
    ensure!(counters.established == COOKIES as u64 && counters.refused_full == 0, "{counters:?}");
    Ok(())
}

/// Waits until the attacker has all that it may have and is refused more.
fn await_attack(server: &NtsKeServer, share: u64) -> Result<()> {
    let started = Instant::now();
    loop {
        let counters = server.counts();
        let refused = counters.refused_concurrent + counters.refused_rate;
        ensure!(counters.open <= share, "more than its share: {counters:?}");
        if counters.open == share && refused > 0 {
            return Ok(());
        }
        ensure!(started.elapsed() < TIMEOUT, "no attack: {counters:?}");
        thread::sleep(POLL_INTERVAL);
    }
}

/// Keeps up to `count` connections open, each with a byte of a TLS handshake now and then.
fn dribble(at: SocketAddr, count: usize, stop: &AtomicBool) {
    let mut streams: Vec<TcpStream> = Vec::new();
    while !stop.load(Relaxed) {
        streams.retain_mut(|stream| stream.write_all(&[1]).is_ok());
        while streams.len() < count {
            let Ok(mut stream) = TcpStream::connect(at) else { break };
            // The head of a record of a handshake.
            let _ = stream.write_all(&[22, 3, 1, 1, 0]);
            streams.push(stream);
        }
        thread::sleep(POLL_INTERVAL);
    }
}
