//! linuxptp's ptp4l as a PTP master of scenarios. It takes software timestamps, so that it needs no
//! PHC. It runs free and without `CAP_SYS_TIME`, so that it cannot control the host's clock.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_lab::{LabHost, RunningProgram};
use tempfile::TempDir;

use crate::process::run_to_end;

/// Timeout of becoming master, which takes half a second.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Configuration of all masters. Frequent Announce messages make ptp4l master soon; its own Sync
/// messages are rare, so that they do not mix with requested ones.
const COMMON: &str = "\
free_running 1
time_stamping software
masterOnly 1
hybrid_e2e 1
net_sync_monitor 1
unicast_listen 1
tx_timestamp_timeout 50
fault_reset_interval ASAP
logAnnounceInterval -2
announceReceiptTimeout 2
logSyncInterval 7
use_syslog 0
";

/// Network transport of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Transport {
    Ipv4,
    Ipv6,
    Ethernet,
}

impl Transport {
    /// Returns the name in linuxptp's configuration.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "UDPv4",
            Self::Ipv6 => "UDPv6",
            Self::Ethernet => "L2",
        }
    }
}

/// Master that answers every client.
pub(crate) struct Ptp4l {
    process: RunningProgram,
    directory: TempDir,
    domain: u8,
}

impl Ptp4l {
    /// Starts ptp4l in a domain, and waits until it is master.
    pub(crate) fn start(host: &LabHost, transport: Transport, domain: u8) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("ptp4l.conf");
        let text = format!(
            "[global]\n{COMMON}network_transport {}\ndomainNumber {domain}\nuds_address {}\n[{}]\n",
            transport.name(),
            directory.path().join("ptp4l.sock").display(),
            host.first_interface().name,
        );
        fs::write(&path, text)?;
        let mut command = host.command("setpriv");
        command.args(["--bounding-set", "-sys_time", "--inh-caps", "-sys_time"]);
        command.args(["ptp4l", "-f"]).arg(path);
        let process = RunningProgram::start(&mut command)?;
        let mut this = Self { process, directory, domain };
        this.await_master()?;
        Ok(this)
    }

    fn await_master(&mut self) -> Result<()> {
        let Self { process, directory, domain } = self;
        let is_master = |response: String| response.contains("MASTER");
        process.await_ready(TIMEOUT, || {
            query(directory, *domain, "PORT_DATA_SET").is_ok_and(is_master)
        })?;
        Ok(())
    }

    /// Returns the counts of received and sent messages, by pmc's names.
    pub(crate) fn counts(&self) -> Result<BTreeMap<String, u64>> {
        let response = query(&self.directory, self.domain, "PORT_STATS_NP")?;
        let counts: BTreeMap<_, _> = response
            .lines()
            .filter_map(|line| {
                let (name, count) = line.trim().split_once(char::is_whitespace)?;
                let is_count = name.starts_with("rx_") || name.starts_with("tx_");
                Some((name.to_owned(), count.trim().parse().ok()?)).filter(|_| is_count)
            })
            .collect();
        ensure!(!counts.is_empty(), "no counts: {response}");
        Ok(counts)
    }
}

/// Returns the increase of a count from `before` to `after`.
pub(crate) fn count_increase(
    before: &BTreeMap<String, u64>,
    after: &BTreeMap<String, u64>,
    name: &str,
) -> Result<u64> {
    let of = |counts: &BTreeMap<String, u64>| counts.get(name).copied().context("no such count");
    Ok(of(after)? - of(before)?)
}

/// Returns the output of pmc, which uses sockets in the directory and so may run on any host.
fn query(directory: &TempDir, domain: u8, what: &str) -> Result<String> {
    let socket = |name| directory.path().join(name);
    let mut command = Command::new("pmc");
    command.args(["-u", "-b", "0", "-d", &domain.to_string(), "-i"]).arg(socket("pmc.sock"));
    command.arg("-s").arg(socket("ptp4l.sock")).arg(format!("GET {what}"));
    let output = run_to_end(&mut command, Duration::from_secs(10))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "pmc {what}: {text}");
    Ok(text)
}
