//! Scenarios of interleaved mode, NTS and symmetric keys, with Debian's chronyd and ntpsec's ntpd
//! as clients. Neither touches the system clock: chronyd runs with `-x`, and ntpd is configured so
//! and has no privilege to set it.

use std::fs::{self, Permissions};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig, LabHost, RunningProgram};
use tempfile::TempDir;

use crate::chronyd::{ChronydClient, POLL_INTERVAL, TIMEOUT};
use crate::process::{Engine, Server, binary, run_to_end, server_address, write_secret};
use crate::scenario::{Need, Scenario, scenario};
use crate::scenarios;

/// Needs of scenarios with chronyd and chronyc.
pub(crate) const CHRONY: &[Need] = &[Need::Root, Need::Peer("chronyd"), Need::Peer("chronyc")];

pub(crate) fn all() -> Vec<Scenario> {
    use crate::server_nts;
    const NTPD: &[Need] = &[Need::Root, Need::Peer("ntpd"), Need::Peer("setpriv")];
    let mut all = Vec::new();
    for engine in Engine::ALL {
        let name = |of: &str| format!("server_nts::{of}::{}", engine.name());
        all.push(scenario(name("chronyd_uses_nts"), CHRONY, move || chronyd_uses_nts(engine)));
        all.push(scenario(name("ntpd_uses_nts"), NTPD, move || ntpd_uses_nts(engine)));
    }
    all.extend(scenarios!(CHRONY, server_nts:
        chronyd_gets_interleaved_replies,
        chronyd_uses_nts_in_interleaved_mode,
        chronyd_uses_symmetric_keys,
        a_wrong_key_gets_no_reply,
        a_server_with_another_secret_gives_a_kiss_and_new_cookies,
        invalid_key_files_are_named,
    ));
    all
}

pub(crate) fn counter(server: &Server, name: &str) -> Result<u64> {
    let status = server.status()?;
    status["counters"][name].as_u64().with_context(|| format!("no counter {name}: {status}"))
}

/// chronyd with `xleave` gets interleaved replies with transmit timestamps of the kernel.
fn chronyd_gets_interleaved_replies() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let server = Server::start(lab.server(), Engine::Socket, &[at], &[])?;
    let line = format!("server {} iburst xleave minpoll -2 maxpoll -2", at.ip());
    let client = ChronydClient::start(lab.client(), &[line], |_| Ok(()))?;
    client.await_lines("ntpdata", &[("Interleaved", "Yes")])?;
    client.await_lines("sources", &[("^*", "")])?;
    let interleaved = counter(&server, "interleaved")?;
    ensure!(interleaved > 0, "{}", server.status()?);
    let wanted = counter(&server, "transmit_timestamps_requested")?;
    let received = counter(&server, "transmit_kernel_timestamps")?;
    ensure!(received + 1 >= wanted && received > 0, "{received} of {wanted} transmit timestamps");
    ensure!(counter(&server, "receive_kernel_timestamps")? > 0, "{}", server.status()?);
    Ok(())
}

/// Writes a self-signed certificate for `host` and its key, in PEM; returns their paths.
pub(crate) fn write_certificate(host: IpAddr, directory: &Path) -> Result<[PathBuf; 2]> {
    let key = rcgen::KeyPair::generate()?;
    let certificate = rcgen::CertificateParams::new([host.to_string()])?.self_signed(&key)?;
    let paths = ["cert.pem", "key.pem"].map(|name| directory.join(name));
    fs::write(&paths[0], certificate.pem())?;
    fs::write(&paths[1], key.serialize_pem())?;
    Ok(paths)
}

/// Server with NTS in a lab, with the directory of its certificate.
pub(crate) struct NtsTestbed {
    pub(crate) lab: Lab,
    pub(crate) at: SocketAddr,
    files: TempDir,
    pub(crate) server: Server,
}

impl NtsTestbed {
    fn start(arguments: &[&str]) -> Result<Self> {
        Self::start_on(Engine::Socket, arguments)
    }

    pub(crate) fn start_on(engine: Engine, arguments: &[&str]) -> Result<Self> {
        let lab = Lab::new(&LabConfig::default())?;
        let at = server_address(&lab, false)?;
        let files = TempDir::new()?;
        let server = start_with_nts(&lab, engine, at, files.path(), arguments)?;
        Ok(Self { lab, at, files, server })
    }

    /// Fails unless at least `least` authenticated replies were sent and, if XDP receives the
    /// requests, it redirected them to the threads.
    fn check_replies(&self, engine: Engine, least: u64) -> Result<()> {
        let status = self.server.status()?;
        let count = |pointer: &str| status.pointer(pointer).and_then(serde_json::Value::as_u64);
        let replies = count("/counters/nts").context("no counter of NTS replies")?;
        ensure!(replies >= least, "{replies} authentic replies: {status}");
        if engine == Engine::Xdp {
            let redirected = count("/xdp_counters/to_af_xdp").context("no such counter")?;
            ensure!(redirected >= replies, "too few redirected requests: {status}");
        }
        Ok(())
    }

    /// Returns the path of the self-signed certificate.
    pub(crate) fn certificate_path(&self) -> PathBuf {
        self.files.path().join("cert.pem")
    }

    /// Starts chronyd with NTS and further options of its source.
    pub(crate) fn start_client(&self, options: &str) -> Result<ChronydClient> {
        let source = format!("server {} nts {options}", self.at.ip());
        let trust = self.certificate_path();
        let lines = [source, "ntstrustedcerts DIR/ca.pem".to_owned()];
        ChronydClient::start(self.lab.client(), &lines, |directory| {
            fs::copy(trust, directory.join("ca.pem"))?;
            Ok(())
        })
    }
}

fn start_with_nts(
    lab: &Lab,
    engine: Engine,
    at: SocketAddr,
    files: &Path,
    more: &[&str],
) -> Result<Server> {
    let paths = write_certificate(at.ip(), files)?.map(|path| path.display().to_string());
    let mut arguments = vec!["--nts-cert", &paths[0], "--nts-key", &paths[1]];
    arguments.extend(more);
    Server::start(lab.server(), engine, &[at], &arguments)
}

/// Pattern of the selected source in the output of `chronyc sources`.
pub(crate) const SELECTED: &[(&str, &str)] = &[("^*", "")];
/// Options of a source with a short polling interval.
pub(crate) const FAST: &str = "iburst minpoll -2 maxpoll -2";

/// chronyd exchanges keys, gets NTS replies, keeps its eight cookies and selects the server.
fn chronyd_uses_nts(engine: Engine) -> Result<()> {
    let nts = NtsTestbed::start_on(engine, &[])?;
    let client = nts.start_client(FAST)?;
    client.await_lines("sources", SELECTED)?;
    let address = nts.at.ip().to_string();
    // Mode NTS, AES-SIV-CMAC-256 (15) with its 256 bits, no NAK, eight cookies of 100 bytes.
    let line = client.await_lines("-n authdata", &[(&address, " 8  100")])?;
    ensure!(line.contains("NTS") && line.contains("15  256"), "{line}");
    nts.check_replies(engine, 3)?;
    ensure!(counter(&nts.server, "nts_kisses")? == 0, "{}", nts.server.status()?);
    let status = nts.server.status()?;
    ensure!(status["nts_ke"]["counters"]["established"] == 1, "{status}");
    Ok(())
}

/// chronyd uses NTS and interleaved mode at once.
fn chronyd_uses_nts_in_interleaved_mode() -> Result<()> {
    let nts = NtsTestbed::start(&[])?;
    let client = nts.start_client(&format!("{FAST} xleave"))?;
    client.await_lines("ntpdata", &[("Interleaved", "Yes"), ("Authenticated", "Yes")])?;
    client.await_lines("sources", SELECTED)?;
    let (nts_replies, interleaved) =
        (counter(&nts.server, "nts")?, counter(&nts.server, "interleaved")?);
    ensure!(nts_replies > 0 && interleaved > 0, "{}", nts.server.status()?);
    ensure!(counter(&nts.server, "transmit_kernel_timestamps")? > 0, "{}", nts.server.status()?);
    Ok(())
}

const KEYS: &str = "7 AES128 HEX:000102030405060708090a0b0c0d0e0f\n\
                    8 SHA256 HEX:000102030405060708090a0b0c0d0e0f10111213\n";

/// Starts a server with [`KEYS`], and chronyd with `keys`, of which it uses key `number`.
fn start_with_keys(keys: &str, number: u32) -> Result<(Lab, Server, ChronydClient)> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let files = TempDir::new()?;
    let path = files.path().join("ntp.keys");
    write_secret(&path, KEYS)?;
    let arguments = ["--keys", &path.display().to_string()];
    let server = Server::start(lab.server(), Engine::Socket, &[at], &arguments)?;
    let lines = [format!("server {} key {number} {FAST}", at.ip()), "keyfile DIR/keys".to_owned()];
    let client = ChronydClient::start(lab.client(), &lines, |directory| {
        Ok(fs::write(directory.join("keys"), keys)?)
    })?;
    Ok((lab, server, client))
}

/// chronyd accepts replies with the MAC of its key.
fn chronyd_uses_symmetric_keys() -> Result<()> {
    for number in [7, 8] {
        let (_lab, server, client) = start_with_keys(KEYS, number)?;
        client.await_lines("ntpdata", &[("Authenticated", "Yes")])?;
        client.await_lines("sources", SELECTED)?;
        ensure!(counter(&server, "mac")? > 0, "{}", server.status()?);
    }
    Ok(())
}

/// Requests with the MAC of a wrong or unknown key are counted and get no reply.
fn a_wrong_key_gets_no_reply() -> Result<()> {
    let wrong = "7 AES128 HEX:ff0102030405060708090a0b0c0d0e0f\n";
    let unknown = "9 AES128 HEX:000102030405060708090a0b0c0d0e0f\n";
    for (keys, number) in [(wrong, 7), (unknown, 9)] {
        let (_lab, server, _client) = start_with_keys(keys, number)?;
        let started = Instant::now();
        loop {
            let status = server.status()?;
            if status["counters"]["ignored"]["mac"].as_u64().unwrap_or(0) >= 3 {
                ensure!(status["counters"]["answered"] == 0, "{status}");
                break;
            }
            ensure!(started.elapsed() < TIMEOUT, "too few requests are counted: {status}");
            thread::sleep(POLL_INTERVAL);
        }
    }
    Ok(())
}

/// After a restart with the same secret, the server accepts earlier cookies. With another secret it
/// rejects them by a kiss, and chronyd gets new ones and continues.
fn a_server_with_another_secret_gives_a_kiss_and_new_cookies() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let files = TempDir::new()?;
    let secret = files.path().join("secret");
    let option = secret.display().to_string();
    let master = ["--nts-master-secret", option.as_str()];
    write_secret(&secret, &"01".repeat(32))?;
    let server = start_with_nts(&lab, Engine::Socket, at, files.path(), &master)?;
    let nts = NtsTestbed { lab, at, files, server };
    let client = nts.start_client(FAST)?;
    client.await_lines("sources", SELECTED)?;
    let NtsTestbed { lab, files, server, .. } = nts;
    server.end("TERM")?;
    let paths = ["cert.pem", "key.pem"].map(|name| files.path().join(name).display().to_string());
    let arguments = ["--nts-cert", &paths[0], "--nts-key", &paths[1], master[0], master[1]];
    let server = Server::start(lab.server(), Engine::Socket, &[at], &arguments)?;
    await_counter(&server, "nts", 3)?;
    ensure!(counter(&server, "nts_kisses")? == 0, "{}", server.status()?);
    server.end("TERM")?;
    write_secret(&secret, &"02".repeat(32))?;
    let server = Server::start(lab.server(), Engine::Socket, &[at], &arguments)?;
    await_counter(&server, "nts_kisses", 1)?;
    await_counter(&server, "nts", 3)?;
    Ok(())
}

pub(crate) fn await_counter(server: &Server, name: &str, least: u64) -> Result<()> {
    let started = Instant::now();
    while counter(server, name)? < least {
        ensure!(started.elapsed() < TIMEOUT, "{name} is below {least}: {}", server.status()?);
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Invalid options and files are named in one line, with statuses 2 and 3.
fn invalid_key_files_are_named() -> Result<()> {
    let files = TempDir::new()?;
    let [cert, key] = write_certificate("192.0.2.1".parse()?, files.path())?;
    let path = |name: &str, text: &str| -> Result<String> {
        let path = files.path().join(name);
        write_secret(&path, text)?;
        Ok(path.display().to_string())
    };
    let (cert, key) = (cert.display().to_string(), key.display().to_string());
    let (empty, rubbish) = (path("empty", "")?, path("rubbish", "-----BEGIN")?);
    let weak = path("weak", "1 MD5 abc\n")?;
    let short = path("short", "abcd\n")?;
    let open = path("open", KEYS)?;
    fs::set_permissions(&open, Permissions::from_mode(0o644))?;
    let cases: [(i32, &[&str], &str); 11] = [
        (2, &["--nts-cert", &cert], "--nts-cert requires --nts-key"),
        (2, &["--nts-ntp-server", "a.example"], "which requires --nts-cert"),
        (2, &["--nts-rotation", "1s", "--nts-master-secret", &short], "--nts-rotation takes"),
        (3, &["--nts-cert", &rubbish, "--nts-key", &key], "rubbish"),
        (3, &["--nts-cert", &cert, "--nts-key", &empty], "empty"),
        (3, &["--nts-master-secret", &short], "it requires 64"),
        (3, &["--nts-master-secret", "/nonexistent/secret"], "secret cannot be read"),
        (3, &["--nts-master-secret", &open], "chmod o="),
        (3, &["--keys", &open], "is accessible to every user (mode 644)"),
        (3, &["--keys", &weak], "line 1: MD5 is not supported"),
        (3, &["--keys", &empty], "contains no key"),
    ];
    for (status, arguments, sign) in cases {
        let mut command = Command::new(binary()?);
        command.args(["serve", "--engine", "socket", "--listen", "127.0.0.1:0"]);
        let socket = files.path().join("status.sock");
        command.args(
            ["--nts-ke-listen", "127.0.0.1:0"]
                .iter()
                .filter(|_| arguments.len() == 4 && arguments[0] == "--nts-cert"),
        );
        command.arg("--status-socket").arg(socket).args(arguments);
        let output = run_to_end(&mut command, TIMEOUT)?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(status), "{arguments:?}: {}: {stderr}", output.status);
        ensure!(stderr.contains(sign) && stderr.lines().count() == 1, "{arguments:?}: {stderr}");
    }
    Ok(())
}

/// ntpsec's ntpd with its log in a directory of its own. Neither it nor its children have the
/// privilege to set the clock, whatever their configuration is.
pub(crate) struct Ntpd {
    _process: RunningProgram,
    directory: TempDir,
}

impl Ntpd {
    /// Starts ntpd with these lines of configuration.
    pub(crate) fn start(host: &LabHost, lines: &str) -> Result<Self> {
        let directory = TempDir::new()?;
        let path = |name: &str| directory.path().join(name);
        let log = path("ntpd.log");
        let text = format!("disable kernel\nlogfile {}\n{lines}\n", log.display());
        fs::write(path("ntp.conf"), text)?;
        let mut command = host.command("setpriv");
        command.args(["--bounding-set", "-sys_time", "--inh-caps", "-sys_time"]);
        command.args(["ntpd", "-n", "-c"]).arg(path("ntp.conf"));
        let mut process = RunningProgram::start(&mut command)?;
        process.await_ready(TIMEOUT, || log.exists())?;
        Ok(Self { _process: process, directory })
    }

    fn log(&self) -> Result<String> {
        Ok(fs::read_to_string(self.directory.path().join("ntpd.log"))?)
    }
}

/// ntpd, a second implementation of NTS, exchanges keys, gets eight cookies and receives replies.
fn ntpd_uses_nts(engine: Engine) -> Result<()> {
    let nts = NtsTestbed::start_on(engine, &[])?;
    // No authority signed the certificate, hence noval.
    let source = format!("server {} nts noval iburst minpoll 3 maxpoll 3", nts.at.ip());
    let ntpd = Ntpd::start(nts.lab.client(), &format!("disable ntp\n{source}"))?;
    await_counter(&nts.server, "nts", 4).with_context(|| ntpd.log().unwrap_or_default())?;
    let log = ntpd.log()?;
    for signs in [["Got 8 cookies, length 100, ", "aead=15"], ["NTS-KE req", "OK"]] {
        let has_all = |line: &str| signs.iter().all(|sign| line.contains(sign));
        ensure!(log.lines().any(has_all), "no {signs:?} in: {log}");
    }
    nts.check_replies(engine, 4)?;
    ensure!(counter(&nts.server, "nts_kisses")? == 0, "{}", nts.server.status()?);
    let status = nts.server.status()?;
    ensure!(status["nts_ke"]["counters"]["established"] == 1, "{status}");
    Ok(())
}
