//! Scenario of a server that replies but is not synchronised: Debian's chronyd without `local` and
//! without a source, which replies with leap 3 and stratum 0. The load engines, the table of
//! ntpperf and `query` count these replies as received, and chronyd counts as many requests.

use std::net::TcpStream;
use std::ops::RangeInclusive;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_record::{FindingCode, LoadResult, QueryResult};
use tempfile::TempDir;

use crate::chronyd::ChronydClient;
use crate::load_command::{
    ENGINES, TIMEOUT, check_sums, has_finding, only_trial, parse, result_of,
};
use crate::load_modes::{SERVER_NAME, certificate_of};
use crate::process::{binary, run_to_end, server_address};
use crate::scenario::Scenario;
use crate::server_nts::CHRONY;
use crate::{query, scenarios, unsynchronised_server};

pub(crate) fn all() -> Vec<Scenario> {
    scenarios!(CHRONY, unsynchronised_server: replies_of_an_unsynchronised_chronyd_are_counted)
        .into()
}

/// Lab with a chronyd without a source, and the number of packets that it counted at the last
/// check.
struct UnsynchronisedTestbed {
    lab: Lab,
    chronyd: ChronydClient,
    certificate: String,
    _directory: TempDir,
    received: u64,
}

impl UnsynchronisedTestbed {
    fn start() -> Result<Self> {
        let lab = Lab::new(&LabConfig::default())?;
        let lines = ["allow all", "ntsservercert DIR/cert.pem", "ntsserverkey DIR/key.pem"];
        let directory = tempfile::tempdir()?;
        let [certificate, key] = certificate_of(
            directory.path(),
            &rcgen::CertificateParams::new([SERVER_NAME.to_owned()])?,
        )?;
        let chronyd = ChronydClient::start(lab.server(), &lines.map(str::to_owned), |own| {
            for (from, name) in [(&certificate, "cert.pem"), (&key, "key.pem")] {
                std::fs::copy(from, own.join(name))?;
            }
            Ok(())
        })?;
        let address = (lab.server().first_interface().ipv4, 4460);
        let begun = Instant::now();
        while lab.server().run(|| TcpStream::connect(address).is_err())? {
            ensure!(begun.elapsed() < TIMEOUT, "chronyd does not listen for NTS-KE");
            thread::sleep(Duration::from_millis(20));
        }
        let certificate = certificate.display().to_string();
        Ok(Self { lab, chronyd, certificate, _directory: directory, received: 0 })
    }

    /// Checks the number of packets that chronyd received since the last check. A busy host may
    /// have lost some on the way.
    fn check_received(&mut self, expected: RangeInclusive<u64>) -> Result<()> {
        let text = self.chronyd.query("serverstats")?;
        let line = text.lines().find(|line| line.starts_with("NTP packets received"));
        let count = line.and_then(|line| line.split(": ").nth(1)).context("no statistics")?;
        let before = std::mem::replace(&mut self.received, count.trim().parse()?);
        let more = self.received - before;
        ensure!(expected.contains(&more), "{more} packets instead of {expected:?}: {text}");
        Ok(())
    }

    /// Checks that the replies to a load are valid and count as those of an unsynchronised server.
    fn check_load(&mut self, result: &LoadResult) -> Result<()> {
        let trial = only_trial(result)?;
        check_sums(trial)?;
        ensure!(trial.sent > 0 && trial.invalid.is_empty(), "{trial:?}");
        // A busy host loses some.
        ensure!(trial.received * 2 > trial.sent, "{trial:?}");
        ensure!(trial.unsynchronised == trial.received, "{trial:?}");
        let kinds = trial.responses;
        ensure!(kinds.basic + kinds.interleaved + kinds.nts == trial.received, "{trial:?}");
        ensure!(trial.rtt_ns.is_some() && trial.response_time_ns.is_some(), "{trial:?}");
        let unexpected =
            [FindingCode::NoReplies, FindingCode::InvalidReplies, FindingCode::KissOfDeath];
        ensure!(
            trial.lost > 0 || !has_finding(result, FindingCode::ServerOutage),
            "{:?}",
            result.findings
        );
        ensure!(unexpected.iter().all(|code| !has_finding(result, *code)), "{:?}", result.findings);
        let findings =
            result.findings.iter().filter(|one| one.code == FindingCode::ServerUnsynchronised);
        ensure!(findings.count() == 1, "{:?}", result.findings);
        self.check_received(trial.received..=trial.sent)
    }

    fn load(&mut self, ipv6: bool, more: &[&str]) -> Result<()> {
        let target = server_address(&self.lab, ipv6)?.ip().to_string();
        let all = [&[&*target, "-r", "1000", "-t", "0.3", "-c", "20"], more].concat();
        let result = result_of(self.lab.client(), &all)?;
        self.check_load(&result).with_context(|| format!("{all:?}"))
    }

    /// Runs ntpperf, whose table counts the replies as basic ones.
    fn ntpperf(&mut self) -> Result<()> {
        let (port, directory) = (self.lab.client().first_interface(), tempfile::tempdir()?);
        let target = server_address(&self.lab, false)?.ip().to_string();
        let file = directory.path().join("result.json");
        let mut command = self.lab.client().command(binary()?);
        command.args(["ntpperf", "-i", &port.name, "-s", "10.64.0.0/10", "-d", &target]);
        command.args(["-B", "-r", "1000-1400", "-t", "0.3", "-l", "--json"]).arg(&file);
        let output = run_to_end(&mut command, TIMEOUT)?;
        let (table, stderr) = (String::from_utf8(output.stdout)?, output.stderr);
        let stderr = String::from_utf8_lossy(&stderr);
        ensure!(output.status.success() && stderr.contains("not synchronised"), "{stderr}");
        let row: Vec<_> = table.lines().nth(2).context("no row")?.split_whitespace().collect();
        let percent = |at: usize| row.get(at)?.strip_suffix('%')?.parse::<f64>().ok();
        let [lost, invalid, basic] = [2, 3, 4].map(|at| percent(at).unwrap_or(f64::NAN));
        ensure!(lost < 50.0 && invalid == 0.0 && basic > 50.0, "{table}");
        self.check_load(&parse(&std::fs::read(&file)?)?)
    }

    fn query(&mut self, ipv6: bool, more: &[&str]) -> Result<()> {
        let target = server_address(&self.lab, ipv6)?.ip().to_string();
        let all = [&[&*target, "--count", "10", "--interval", "5ms"], more].concat();
        let result: QueryResult = query::result_of(self.lab.client(), &all)?;
        let counts = &result.servers[0].counts;
        let answered = (counts.received, counts.lost, counts.unsynchronised);
        ensure!(answered == (counts.sent, 0, counts.sent), "{all:?}: {counts:?}");
        ensure!(counts.invalid.is_empty() && counts.kisses.is_empty(), "{counts:?}");
        let one = result.findings.iter().find(|one| one.code == FindingCode::ServerUnsynchronised);
        let one = one.with_context(|| format!("{:?}", result.findings))?;
        ensure!(one.message.contains("not synchronised in"), "{one:?}");
        ensure!(!query::has_finding(&result, FindingCode::NoReplies), "{:?}", result.findings);
        ensure!(result.servers[0].samples.len() == 10, "{counts:?}");
        self.check_received(counts.sent..=counts.sent)
    }
}

/// Replies are counted by every engine, over IPv4 and IPv6, in basic, interleaved and NTS mode.
fn replies_of_an_unsynchronised_chronyd_are_counted() -> Result<()> {
    let mut testbed = UnsynchronisedTestbed::start()?;
    for engine in ENGINES {
        for ipv6 in [false, true] {
            testbed.load(ipv6, &["--engine", engine.name()])?;
        }
        testbed.load(false, &["--engine", engine.name(), "--interleaved"])?;
    }
    let ca = testbed.certificate.clone();
    let nts = ["--nts", "--ca", &ca, "--nts-name", SERVER_NAME];
    testbed.load(false, &[&["--engine", "packet"], &nts[..]].concat())?;
    testbed.load(true, &[&["--engine", "udp"], &nts[..]].concat())?;
    testbed.ntpperf()?;
    for ipv6 in [false, true] {
        testbed.query(ipv6, &[])?;
    }
    testbed.query(false, &["--interleaved"])?;
    testbed.query(false, &nts)
}
