//! Scenarios of NTS queries with keys that turn out to be invalid: after a restart of the server,
//! and if both ends export them differently. Also of the name of a negotiated server in errors.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_ke::{AES_128_GCM_SIV, CookieProvider, NtsKeConfig, NtsKeServer, PORT};
use horolog_lab::{Lab, LabConfig};
use horolog_nts::{
    AeadAlgorithm, COOKIE_LEN_MAX, CookieKeys, CookieMasterSecret, NonceStream,
    PAST_PERIODS_DEFAULT, ROTATION_DEFAULT, SessionKeys,
};
use horolog_record::{FindingCode, LoadResult, NtsUseSummary, QueryResult};
use horolog_sys::clock::ClockRealtime;
use horolog_time::Clock;
use tempfile::TempDir;

use crate::load_command::{StartedProgram, finding, load, only_trial, parse};
use crate::process::{Engine, Server, write_secret};
use crate::query::{TARGET, TIMEOUT, has_finding, output_of, query, result_of};
use crate::server_ke::{Chronyd, Identity, NAME};
use crate::server_nts::{NtsTestbed, counter};

/// A restarted chronyd has other keys and refuses the old ones: new ones are requested within two
/// polls, whatever was lost during the restart.
pub(crate) fn new_keys_of_a_restarted_chronyd_are_requested() -> Result<()> {
    let (lab, identity) = (Lab::new(&LabConfig::default())?, Identity::new()?);
    let chronyd = Chronyd::start(lab.server(), &identity)?;
    let (target, trust) = (chronyd.at.ip().to_string(), identity.path("certificate.pem"));
    let trust = trust.display().to_string();
    let arguments = [&target, "--nts", "--nts-name", NAME, "--ca", &trust, "-n", "25"];
    let arguments = [&arguments[..], &["--interval", "200ms", "--json", "r.json"]].concat();
    let mut run = StartedProgram::start(&mut query(lab.client(), &arguments)?)?;
    let begun = Instant::now();
    run.wait_until(|_, _| begun.elapsed() > Duration::from_millis(1500))?;
    drop(chronyd);
    let _again = Chronyd::start(lab.server(), &identity)?;
    let (status, _) = run.end()?;
    ensure!(status.success(), "{status}: {}", run.read("stderr")?);
    let result: QueryResult = parse(run.read("r.json")?.as_bytes())?;
    let one = &result.servers[0];
    let used = one.nts.as_ref().context("no summary of NTS")?;
    ensure!(used.renewals == 1 && used.abandoned_algorithm.is_none(), "{used:?}");
    let refused = one.counts.kisses.get("NTSN").copied().unwrap_or(0);
    ensure!(refused <= 2 && one.counts.received > 10, "{:?}", one.counts);
    ensure!(has_finding(&result, FindingCode::KeysRenewed), "{:?}", result.findings);
    Ok(())
}

/// The sessions of a load, shared or one per client, are renewed once after a change of the
/// server's secret: replies are authentic again, and the result reports the renewal.
pub(crate) fn sessions_of_a_load_are_renewed() -> Result<()> {
    let files = TempDir::new()?;
    let secret = files.path().join("secret");
    write_secret(&secret, &"01".repeat(32))?;
    let option = secret.display().to_string();
    let limits = ["--nts-ke-rate-per-prefix", "0", "--nts-ke-connections-per-prefix", "0"];
    let arguments = [&["--nts-master-secret", &option], &limits[..]].concat();
    let nts = NtsTestbed::start_on(Engine::Socket, &arguments)?;
    let trust = nts.certificate_path().display().to_string();
    for (byte, sessions) in [("02", "2"), ("03", "each")] {
        let arguments = [TARGET, "--nts", "--ca", &trust, "--nts-sessions", sessions, "-c", "20"];
        let rate = ["-r", "200", "-t", "3", "--json", "r.json"];
        let before = counter(&nts.server, "nts")?;
        let mut run =
            StartedProgram::start(&mut load(nts.lab.client(), &[&arguments[..], &rate].concat())?)?;
        let begun = Instant::now();
        while counter(&nts.server, "nts")? < before + 100 {
            ensure!(begun.elapsed() < TIMEOUT, "no requests: {}", run.read("stderr")?);
            thread::sleep(Duration::from_millis(20));
        }
        write_secret(&secret, &byte.repeat(32))?;
        nts.server.signal("HUP")?;
        let (status, _) = run.end()?;
        ensure!(status.success(), "{status}: {}", run.read("stderr")?);
        let result: LoadResult = parse(run.read("r.json")?.as_bytes())?;
        let trial = only_trial(&result)?;
        let renewal = finding(&result, FindingCode::KeysRenewed)?;
        ensure!(renewal.message.contains("renewed 1 times, 0 attempts failed"), "{renewal:?}");
        ensure!(trial.received > 300 && trial.received < trial.sent, "{sessions}: {trial:?}");
    }
    Ok(())
}

/// Provider of cookies with other keys than the client's for AES-128-GCM-SIV, as of a server that
/// exports them differently, and with the correct ones for the other algorithm.
struct MismatchedCookies(CookieKeys);

impl CookieProvider for MismatchedCookies {
    fn algorithms(&self) -> Vec<u16> {
        AeadAlgorithm::ALL.iter().map(|one| one.number()).collect()
    }

    fn cookies(&self, algorithm: u16, c2s: &[u8], s2c: &[u8], count: usize) -> Vec<Vec<u8>> {
        let (Some(known), Ok(mut nonces)) =
            (AeadAlgorithm::from_number(algorithm), NonceStream::new())
        else {
            return Vec::new();
        };
        let keys = match algorithm {
            AES_128_GCM_SIV => SessionKeys::generate(known).ok(),
            _ => SessionKeys::new(known, c2s, s2c).ok(),
        };
        let seal = |keys: &SessionKeys| {
            let (mut nonce, mut cookie) = ([0; 16], vec![0; COOKIE_LEN_MAX]);
            nonces.fill(&mut nonce);
            let len = self.0.seal(keys, nonce, &mut cookie);
            cookie.truncate(len);
            cookie
        };
        keys.iter().cycle().take(count).map(seal).collect()
    }
}

/// Mismatched keys, refused by the first reply, are replaced once, and all other requests are
/// answered. The negotiated port differs from the target's, and is named in errors.
pub(crate) fn mismatched_keys_are_replaced_and_the_negotiated_server_is_named() -> Result<()> {
    const NTP: u16 = 1123;
    let (lab, identity, files) =
        (Lab::new(&LabConfig::default())?, Identity::new()?, TempDir::new()?);
    let secret = files.path().join("secret");
    write_secret(&secret, &"01".repeat(32))?;
    let at = SocketAddr::from((lab.server().first_interface().ipv4, NTP));
    let option = secret.display().to_string();
    let server =
        Server::start(lab.server(), Engine::Socket, &[at], &["--nts-master-secret", &option])?;
    let master = CookieMasterSecret::from_bytes([1; 32]);
    let cookies =
        CookieKeys::new(&master, ROTATION_DEFAULT, PAST_PERIODS_DEFAULT, ClockRealtime.now());
    let mut config = NtsKeConfig::new(
        (Ipv4Addr::UNSPECIFIED, PORT).into(),
        identity.path("certificate.pem"),
        identity.path("key.pem"),
    );
    config.ntp_port = Some(NTP);
    let provider = Arc::new(MismatchedCookies(cookies));
    let _ke = lab.server().run(|| NtsKeServer::start(config, provider))??;

    let trust = identity.path("certificate.pem").display().to_string();
    let arguments = [TARGET, "--nts", "--nts-name", NAME, "--ca", &trust, "--timeout", "200ms"];
    let arguments = [&arguments[..], &["-n", "6", "--interval", "10ms"]].concat();
    let result = result_of(lab.client(), &arguments)?;
    let one = &result.servers[0];
    let used = one.nts.as_ref().context("no summary of NTS")?;
    let expected = NtsUseSummary {
        ke_server: format!("{TARGET}:{PORT}"),
        algorithm: "AES-SIV-CMAC-256".to_owned(),
        ke_exchanges: 2,
        server: Some(at.to_string()),
        renewals: 0,
        renewals_failed: 0,
        abandoned_algorithm: Some("AES-128-GCM-SIV".to_owned()),
    };
    ensure!(*used == expected && one.port == NTP, "{used:?}");
    ensure!((one.counts.received, one.counts.kisses["NTSN"]) == (5, 1), "{:?}", one.counts);
    ensure!(has_finding(&result, FindingCode::AlgorithmAbandoned), "{:?}", result.findings);

    drop(server);
    let text = format!("{:?}", output_of(lab.client(), &arguments)?);
    ensure!(text.contains(&format!("{at} (for {TARGET})")), "{text}");
    Ok(())
}
