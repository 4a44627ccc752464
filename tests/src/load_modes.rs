//! Scenarios of the generator's modes against chronyd: replies in interleaved and in basic mode are
//! distinguished, authenticated and extended requests are answered, and impossible loads are
//! refused. Nothing is timed.

use std::fs::{self, Permissions};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig, LabHost, RunningProgram};
use horolog_record::{
    FindingCode, LoadEngineKind, LoadResult, NtsKeFailureReason, NtsKeLoadResult, RequestMode,
};
use tempfile::TempDir;

use crate::load_command::{
    ENGINES, StartedProgram, check_sums, has_finding, load, only_trial, parse, result_of,
};
use crate::process::{binary, run_to_end, server_address, write_secret};
use crate::scenario::{Need, Scenario};
use crate::{load_modes, scenarios};

/// Name of the server in its certificate; it is not resolved.
pub(crate) const SERVER_NAME: &str = "time.example";
const TIMEOUT: Duration = Duration::from_secs(10);
/// Number of clients: few enough that each sends several requests, and enough that each has its
/// reply before its next request.
const CLIENTS: u64 = 40;

pub(crate) fn all() -> Vec<Scenario> {
    const CHRONYD: &[Need] = &[Need::Root, Need::Peer("chronyd")];
    scenarios!(CHRONYD, load_modes:
        chronyd_answers_in_interleaved_mode,
        without_memory_chronyd_answers_in_basic_mode,
        chronyd_answers_authenticated_requests,
        chronyd_renews_the_cookies_of_each_client,
        chronyd_answers_requests_with_trailers,
        impossible_nts_loads_are_refused,
        chronyd_establishes_keys,
        an_expired_certificate_yields_no_keys,
        an_interrupt_keeps_the_result_of_every_mode,
    )
    .into()
}

/// chronyd that answers every client and does not control the host's clock (`-x`).
pub(crate) struct Chronyd {
    process: RunningProgram,
    _directory: TempDir,
}

impl Chronyd {
    /// Starts chronyd with further directives, and waits until it serves.
    pub(crate) fn start(host: &LabHost, directives: &[&str]) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let pidfile = directory.path().join("chronyd.pid");
        let configuration = directory.path().join("chrony.conf");
        let text = format!(
            "local stratum 1\nallow all\ncmdport 0\nbindcmdaddress /\npidfile {}\n{}\n",
            pidfile.display(),
            directives.join("\n")
        );
        fs::write(&configuration, text)?;
        let mut command = host.command("chronyd");
        command.args(["-x", "-d", "-u", "root", "-f"]).arg(&configuration);
        let mut process = RunningProgram::start(&mut command)?;
        process.await_ready(TIMEOUT, || pidfile.exists())?;
        Ok(Self { process, _directory: directory })
    }
}

/// Writes a self-signed certificate of the lab's server and its key.
pub(crate) fn certificate(directory: &Path) -> Result<[PathBuf; 2]> {
    certificate_of(directory, &rcgen::CertificateParams::new([SERVER_NAME.to_owned()])?)
}

pub(crate) fn certificate_of(
    directory: &Path,
    parameters: &rcgen::CertificateParams,
) -> Result<[PathBuf; 2]> {
    let signing_key = rcgen::KeyPair::generate()?;
    let signed = parameters.self_signed(&signing_key)?;
    let [certificate, key] = ["cert.pem", "key.pem"].map(|name| directory.join(name));
    fs::write(&certificate, signed.pem())?;
    fs::write(&key, signing_key.serialize_pem())?;
    // chronyd refuses keys that others can read.
    fs::set_permissions(&key, Permissions::from_mode(0o600))?;
    Ok([certificate, key])
}

/// Starts a chronyd that serves NTS; returns also the directory and the path of its certificate.
pub(crate) fn nts_chronyd(host: &LabHost) -> Result<(Chronyd, TempDir, String)> {
    nts_chronyd_with(host, &rcgen::CertificateParams::new([SERVER_NAME.to_owned()])?)
}

/// Starts a chronyd that serves NTS with a certificate of these parameters.
fn nts_chronyd_with(
    host: &LabHost,
    parameters: &rcgen::CertificateParams,
) -> Result<(Chronyd, TempDir, String)> {
    let directory = tempfile::tempdir()?;
    let [certificate, key] = certificate_of(directory.path(), parameters)?;
    let certificate = certificate.display().to_string();
    let directives = [
        format!("ntsservercert {certificate}"),
        format!("ntsserverkey {}", key.display()),
        "noclientlog".to_owned(),
    ];
    let mut chronyd = Chronyd::start(host, &directives.each_ref().map(String::as_str))?;
    // The NTS-KE helper of chronyd listens some time after the NTP port does.
    let address = (host.first_interface().ipv4, 4460);
    let listens = || host.run(|| TcpStream::connect(address).is_ok()).unwrap_or(false);
    chronyd.process.await_ready(TIMEOUT, listens)?;
    Ok((chronyd, directory, certificate))
}

/// Each authenticated request has an authenticated reply and each plain one a plain reply, at every
/// share, with both engines that support NTS.
fn chronyd_answers_authenticated_requests() -> Result<()> {
    const REQUESTS: u64 = 500;
    let lab = Lab::new(&LabConfig::default())?;
    let (_chronyd, _directory, certificate) = nts_chronyd(lab.server())?;
    for engine in [LoadEngineKind::Udp, LoadEngineKind::Packet] {
        for (share, ipv6) in [(0, false), (10, true), (50, false), (100, true), (100, false)] {
            let target = server_address(&lab, ipv6)?.ip().to_string();
            let percent = share.to_string();
            let arguments =
                ["--nts", "--ca", &certificate, "--nts-name", SERVER_NAME, "--nts-sessions"];
            let mut all = vec![&*target, "-r", "2000", "-t", "0.25", "--engine", engine.name()];
            all.extend(arguments);
            all.extend(["3", "--nts-share", &percent]);
            let result = result_of(lab.client(), &all)?;
            let trial = only_trial(&result)?;
            check_sums(trial)?;
            ensure!(result.mode == RequestMode::NtpNts && trial.invalid.is_empty(), "{trial:?}");
            let class = trial.authenticated.context("no counts of authenticated requests")?;
            ensure!(trial.responses.nts == class.received, "{trial:?}");
            ensure!(class.lost == class.sent - class.received, "{class:?}");
            ensure!(trial.responses.basic + class.received == trial.received, "{trial:?}");
            let expected = REQUESTS * share / 100;
            ensure!(trial.sent < REQUESTS || class.sent == expected, "{share}%: {trial:?}");
            ensure!(trial.received * 10 >= trial.sent * 9, "{engine:?}, {share}%: {trial:?}");
        }
    }
    Ok(())
}

/// Clients with their own sessions use each cookie once, unless replies are lost.
fn chronyd_renews_the_cookies_of_each_client() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let (_chronyd, _directory, certificate) = nts_chronyd(lab.server())?;
    let target = server_address(&lab, false)?.ip().to_string();
    for engine in [LoadEngineKind::Udp, LoadEngineKind::Packet] {
        let arguments =
            ["--nts", "--ca", &certificate, "--nts-name", SERVER_NAME, "--nts-sessions"];
        let mut all = vec![&*target, "-r", "200", "-t", "2", "--engine", engine.name()];
        all.extend(arguments);
        all.extend(["each", "-c", "20"]);
        let result = result_of(lab.client(), &all)?;
        let trial = only_trial(&result)?;
        check_sums(trial)?;
        ensure!(trial.clients == 20 && trial.invalid.is_empty(), "{trial:?}");
        // Twenty requests of each client, with eight cookies at the start.
        ensure!(trial.sent == 400 && trial.received * 10 >= trial.sent * 9, "{trial:?}");
        let reused = trial.cookies_reused.context("reused cookies are not counted")?;
        ensure!(reused <= trial.lost, "{engine:?}: {trial:?}");
    }
    Ok(())
}

/// chronyd answers requests with unknown extension fields and with a MAC of a known key, and
/// ignores those with a MAC of another key.
fn chronyd_answers_requests_with_trailers() -> Result<()> {
    const KEYS: &str = "1 SHA256 HEX:00112233445566778899aabbccddeeff\n\
                        2 AES128 HEX:000102030405060708090a0b0c0d0e0f\n";
    let lab = Lab::new(&LabConfig::default())?;
    let directory = tempfile::tempdir()?;
    let [right, wrong] = ["right.keys", "wrong.keys"].map(|name| directory.path().join(name));
    write_secret(&right, KEYS)?;
    write_secret(&wrong, &KEYS.replace("0011", "1100"))?;
    let keyfile = format!("keyfile {}", right.display());
    let _chronyd = Chronyd::start(lab.server(), &[&keyfile])?;
    let [right, wrong] = [right, wrong].map(|path| path.display().to_string());
    let cases: [(&[&str], bool); 6] = [
        (&["--key", "1", "--keys", &right], true),
        (&["--key", "2", "--keys", &right, "--ntp-version", "3"], true),
        (&["--key", "2", "--keys", &right, "--interleaved", "-c", "20"], true),
        (&["--extension", "0x2005:0102", "--extension", "0x2006"], true),
        (&["--key", "1", "--keys", &right, "--extension", "0x2005:0102"], true),
        (&["--key", "1", "--keys", &wrong], false),
    ];
    for engine in [LoadEngineKind::Udp, LoadEngineKind::Packet] {
        for (arguments, answered) in cases {
            let target = server_address(&lab, false)?.ip().to_string();
            let mut all = vec![&*target, "-r", "1000", "-t", "0.2", "--engine", engine.name()];
            all.extend(["--timeout", "200ms"]);
            all.extend(arguments);
            let output = run_to_end(load(lab.client(), &all)?.args(["--json", "-"]), TIMEOUT)?;
            let result: LoadResult = parse(&output.stdout)?;
            let trial = only_trial(&result)?;
            let context = || format!("{engine:?}, {arguments:?}: {trial:?}");
            ensure!(trial.invalid.is_empty() && trial.sent > 0, "{}", context());
            if answered {
                ensure!(trial.received * 10 >= trial.sent * 9, "{}", context());
            } else {
                ensure!(trial.received == 0 && output.status.code() == Some(1), "{}", context());
            }
        }
    }
    let open = directory.path().join("open.keys").display().to_string();
    fs::write(&open, KEYS)?;
    fs::set_permissions(&open, Permissions::from_mode(0o604))?;
    let target = server_address(&lab, false)?.ip().to_string();
    for (arguments, status, words) in [
        (&["--key", "7", "--keys", &right][..], 2, "no key 7"),
        (&["--key", "1"], 2, "--keys"),
        (&["--key", "1", "--keys", &open], 3, "is accessible to every user"),
        (&["--key", "1", "--keys", "/nonexistent"], 3, "nonexistent"),
        (&["--extension", "0x2005:0"], 2, "hexadecimal"),
        (&["--extension", "1", "--engine", "xdp"], 3, "use --engine packet or udp"),
    ] {
        let all = [&[&*target], arguments].concat();
        let output = run_to_end(&mut load(lab.client(), &all)?, TIMEOUT)?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(status), "{arguments:?}: {stderr}");
        ensure!(stderr.contains(words) && stderr.trim_end().lines().count() == 1, "{stderr}");
    }
    Ok(())
}

/// Impossible NTS loads are refused with one line that states the cause.
fn impossible_nts_loads_are_refused() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let (_chronyd, directory, certificate) = nts_chronyd(lab.server())?;
    let target = server_address(&lab, false)?.ip().to_string();
    let empty = directory.path().join("empty.pem").display().to_string();
    fs::write(&empty, "")?;
    let ca: &[&str] = &["--nts", "--nts-name", SERVER_NAME, "--ca"];
    let cases: [(&[&str], i32, &str); 7] = [
        (&[&certificate, "--engine", "xdp"], 3, "use --engine packet or udp"),
        (&[&certificate, "--interleaved"], 2, "interleaved mode"),
        (&[&certificate, "--ntp-version", "3"], 2, "version 4 only"),
        (&[&certificate, "--nts-sessions", "0"], 2, "from 1 to"),
        (&[&certificate, "--nts-ke", "127.0.0.1:9"], 3, "127.0.0.1:9"),
        (&[&empty], 2, "empty.pem"),
        (&["/nonexistent.pem"], 2, "nonexistent.pem"),
    ];
    for (arguments, status, words) in cases {
        let all = [&[&*target], ca, arguments].concat();
        let output = run_to_end(&mut load(lab.client(), &all)?, TIMEOUT)?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(status), "{arguments:?}: {stderr}");
        ensure!(stderr.contains(words) && stderr.trim_end().lines().count() == 1, "{stderr}");
    }
    Ok(())
}

/// NTS-KE exchanges all succeed with a trusted certificate, and all fail with an untrusted one.
fn chronyd_establishes_keys() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let (_chronyd, directory, certificate) = nts_chronyd(lab.server())?;
    let other = tempfile::tempdir_in(directory.path())?;
    let [other_certificate, _] = crate::load_modes::certificate(other.path())?;
    let target = server_address(&lab, false)?.ip().to_string();
    let run = |ca: &str| -> Result<(Option<i32>, NtsKeLoadResult)> {
        let mut command = lab.client().command(binary()?);
        command.args(["load", "nts-ke", &target, "--nts-name", SERVER_NAME, "--ca", ca]);
        let output = run_to_end(command.args(["-c", "3", "-t", "0.5", "--json", "-"]), TIMEOUT)?;
        Ok((output.status.code(), parse(&output.stdout)?))
    };
    let (status, result) = run(&certificate)?;
    let trial = result.trials.first().context("no trial")?;
    ensure!(status == Some(0) && result.mode == RequestMode::NtsKe, "{status:?}, {result:?}");
    ensure!(trial.received > 3 && trial.lost == 0 && result.findings.is_empty(), "{result:?}");
    let timed = trial.handshake_ns.as_ref().map_or(0, |times| times.count);
    ensure!(timed == trial.received && trial.achieved_rate > 0.0, "{trial:?}");
    let (status, result) = run(&other_certificate.display().to_string())?;
    let trial = result.trials.first().context("no trial")?;
    let untrusted = trial.failures.get(&NtsKeFailureReason::Tls).copied();
    ensure!(status == Some(1) && trial.received == 0, "{status:?}, {trial:?}");
    ensure!(untrusted == Some(trial.lost) && trial.lost == trial.sent, "{trial:?}");
    Ok(())
}

/// With a certificate that has expired or has another name, a run that needs keys is refused, and
/// `load nts-ke` counts every exchange as failed.
fn an_expired_certificate_yields_no_keys() -> Result<()> {
    let mut expired = rcgen::CertificateParams::new([SERVER_NAME.to_owned()])?;
    expired.not_before = rcgen::date_time_ymd(2019, 1, 1);
    expired.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let another = rcgen::CertificateParams::new(["another.example".to_owned()])?;
    for parameters in [expired, another] {
        let lab = Lab::new(&LabConfig::default())?;
        let (_chronyd, _directory, certificate) = nts_chronyd_with(lab.server(), &parameters)?;
        let target = server_address(&lab, false)?.ip().to_string();
        let trust = ["--nts-name", SERVER_NAME, "--ca", &certificate];
        let mut command = load(lab.client(), &[&target, "--nts", "--engine", "udp"])?;
        let output = run_to_end(command.args(trust), TIMEOUT)?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(3), "{}: {stderr}", output.status);
        ensure!(
            stderr.contains("certificate") && stderr.trim_end().lines().count() == 1,
            "{stderr}"
        );
        let mut command = lab.client().command(binary()?);
        command.args(["load", "nts-ke", &target, "-c", "2", "-t", "0.3", "--json", "-"]);
        let output = run_to_end(command.args(trust), TIMEOUT)?;
        let result: NtsKeLoadResult = parse(&output.stdout)?;
        let trial = result.trials.first().context("no trial")?;
        ensure!(output.status.code() == Some(1) && trial.received == 0, "{trial:?}");
        ensure!(trial.failures.get(&NtsKeFailureReason::Tls) == Some(&trial.sent), "{trial:?}");
    }
    Ok(())
}

/// SIGINT ends a run after its trial in every mode, with a complete result.
fn an_interrupt_keeps_the_result_of_every_mode() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let (_chronyd, _directory, certificate) = nts_chronyd(lab.server())?;
    let target = server_address(&lab, false)?.ip().to_string();
    let trust = ["--nts-name", SERVER_NAME, "--ca", &certificate];
    let interrupted = |command: &mut Command| -> Result<String> {
        let mut run = StartedProgram::start(command.args(["--json", "r.json"]))?;
        run.wait_until(|_, stderr| stderr.contains("horolog: "))?;
        // The first trial takes longer than this.
        thread::sleep(Duration::from_millis(300));
        run.signal("INT")?;
        let (status, _) = run.end()?;
        ensure!(status.success(), "{status}: {}", run.read("stderr")?);
        run.read("r.json")
    };
    let ramp = ["-r", "1k-2k", "-x", "1.1", "-t", "1"];
    for engine in ENGINES {
        let nts = [&["--nts"], &trust[..]].concat();
        let modes = [&["--interleaved"][..], &nts];
        for mode in
            modes.into_iter().filter(|mode| engine != LoadEngineKind::Xdp || mode.len() == 1)
        {
            let run = [&[&*target, "--engine", engine.name()], &ramp[..], mode].concat();
            let result: LoadResult =
                parse(interrupted(&mut load(lab.client(), &run)?)?.as_bytes())?;
            ensure!(has_finding(&result, FindingCode::Interrupted), "{engine:?} {mode:?}");
            check_sums(only_trial(&result)?).with_context(|| format!("{engine:?} {mode:?}"))?;
        }
    }
    let mut command = lab.client().command(binary()?);
    command.args(["load", "nts-ke", &target, "-c", "2", "-t", "60"]).args(trust);
    let result: NtsKeLoadResult = parse(interrupted(&mut command)?.as_bytes())?;
    let trial = result.trials.first().context("no trial")?;
    ensure!(trial.received > 0 && trial.lost == trial.sent - trial.received, "{trial:?}");
    Ok(())
}

/// Runs a load of two trials in interleaved mode, and checks its counts.
fn run_interleaved(lab: &Lab, engine: LoadEngineKind, ipv6: bool) -> Result<LoadResult> {
    let target = server_address(lab, ipv6)?.ip().to_string();
    let clients = CLIENTS.to_string();
    // What a generator that was paused sends at once fits into chronyd's socket.
    let arguments = ["-r", "800-1600", "-x", "2", "-t", "0.25", "-c", &clients];
    let mut all = vec![&*target, "--interleaved", "--engine", engine.name()];
    all.extend(arguments);
    let result = result_of(lab.client(), &all)?;
    ensure!(result.mode == RequestMode::NtpInterleaved && result.trials.len() == 2, "{result:?}");
    for trial in &result.trials {
        check_sums(trial)?;
        ensure!(trial.received > 0 && trial.invalid.is_empty(), "{trial:?}");
        let responses = trial.responses;
        ensure!(responses.basic + responses.interleaved == trial.received, "{trial:?}");
        let timed = trial.response_time_ns.as_ref().map_or(0, |times| times.count);
        // An interleaved reply completes the previous exchange, unless that was overtaken.
        let possible = responses.basic..=trial.received;
        ensure!(possible.contains(&timed), "{timed} response times of {responses:?}");
    }
    Ok(result)
}

/// The first two requests of each client are answered in basic mode, since chronyd stores nothing
/// for requests that refer to no reply; later ones, except after a loss, in interleaved mode. With
/// every engine, over IPv4 and IPv6.
fn chronyd_answers_in_interleaved_mode() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let _chronyd = Chronyd::start(lab.server(), &[])?;
    for engine in ENGINES {
        for ipv6 in [false, true] {
            let context = || format!("{engine:?}, IPv6: {ipv6}");
            let result = run_interleaved(&lab, engine, ipv6).with_context(context)?;
            for (trial, basic) in result.trials.iter().zip([2 * CLIENTS, 0]) {
                // On a busy machine, a client that sends before its last reply refers to an older
                // one, which the server may have discarded.
                let rest = trial.received.saturating_sub(basic);
                ensure!(rest > 0 && trial.responses.basic >= basic, "{}: {trial:?}", context());
                ensure!(trial.responses.interleaved * 10 >= rest * 9, "{}: {trial:?}", context());
            }
        }
    }
    Ok(())
}

/// A chronyd without client records answers all requests in basic mode.
fn without_memory_chronyd_answers_in_basic_mode() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let _chronyd = Chronyd::start(lab.server(), &["noclientlog"])?;
    for engine in ENGINES {
        let result = run_interleaved(&lab, engine, false).with_context(|| format!("{engine:?}"))?;
        for trial in &result.trials {
            ensure!(trial.responses.interleaved == 0, "{trial:?}");
        }
    }
    Ok(())
}
