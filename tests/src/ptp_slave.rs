//! linuxptp's ptp4l as a client of the server under test. It runs free and without `CAP_SYS_TIME`:
//! lab hosts share one clock, so that the measured offset is the one that the server adds.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use horolog_lab::{LabHost, RunningProgram};
use tempfile::TempDir;

use crate::process::run_to_end;
use crate::ptp4l::Transport;

/// Timeout of a measurement: four Announces, some Syncs and a delay response take a few seconds.
const TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// ptp4l that follows any master.
pub(crate) struct PtpSlave {
    process: RunningProgram,
    directory: TempDir,
    domain: u8,
}

/// Measurement of ptp4l at one instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PtpMeasurement {
    /// Offset of ptp4l's clock from the master's, in ns.
    pub(crate) offset_ns: f64,
    /// Delay to the master, in ns.
    pub(crate) delay_ns: f64,
}

impl PtpSlave {
    /// Starts ptp4l with further lines of the global section, followed by `sections`.
    pub(crate) fn start(
        host: &LabHost,
        transport: Transport,
        domain: u8,
        lines: &str,
        sections: &str,
    ) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("ptp4l.conf");
        let text = format!(
            "[global]\nfree_running 1\ntime_stamping software\nslaveOnly 1\nuse_syslog 0\n\
             logAnnounceInterval -2\nlogMinDelayReqInterval -3\nnetwork_transport {}\n\
             domainNumber {domain}\nuds_address {}\n{lines}{sections}",
            transport.name(),
            directory.path().join("ptp4l.sock").display(),
        );
        fs::write(&path, text)?;
        // The segment of shared memory that ptp4l writes ends with its IPC namespace.
        let mut command = host.command("unshare");
        command.args(["--ipc", "setpriv", "--bounding-set", "-sys_time"]);
        command.args(["--inh-caps", "-sys_time", "ptp4l", "-f"]).arg(path);
        let process = RunningProgram::start(&mut command)?;
        Ok(Self { process, directory, domain })
    }

    /// Returns a command of a program on `host`, in the IPC namespace of this client.
    pub(crate) fn command_in_ipc(&self, host: &LabHost) -> Command {
        let mut command = host.command("nsenter");
        command.arg(format!("--ipc=/proc/{}/ns/ipc", self.process.pid()));
        command
    }

    /// Starts ptp4l with multicast on the host's interface.
    pub(crate) fn start_multicast(
        host: &LabHost,
        transport: Transport,
        lines: &str,
    ) -> Result<Self> {
        let section = format!("[{}]\n", host.first_interface().name);
        Self::start(host, transport, 0, lines, &section)
    }

    /// Waits for a measurement with this property, and returns it.
    pub(crate) fn await_measurement(
        &self,
        is_right: impl Fn(&PtpMeasurement) -> bool,
    ) -> Result<PtpMeasurement> {
        let started = Instant::now();
        let mut last = None;
        while started.elapsed() < TIMEOUT {
            if let Some(measured) = self.measurement()? {
                if is_right(&measured) {
                    return Ok(measured);
                }
                last = Some(measured);
            }
            thread::sleep(POLL_INTERVAL);
        }
        bail!("last measurement: {last:?}; {}", self.query("PORT_DATA_SET")?)
    }

    /// Returns the present measurement; `None` without a master or a delay.
    pub(crate) fn measurement(&self) -> Result<Option<PtpMeasurement>> {
        let text = self.query("CURRENT_DATA_SET")?;
        if !text.contains("RESPONSE") {
            return Ok(None); // ptp4l is not ready yet
        }
        let measured = PtpMeasurement {
            offset_ns: number(&text, "offsetFromMaster")?,
            delay_ns: number(&text, "meanPathDelay")?,
        };
        let follows = number(&text, "stepsRemoved")? > 0.5;
        Ok((follows && measured.delay_ns != 0.0).then_some(measured))
    }

    /// Returns the output of pmc on this client; pmc uses sockets in the client's directory.
    pub(crate) fn query(&self, what: &str) -> Result<String> {
        let socket = |name| self.directory.path().join(name);
        let mut command = Command::new("pmc");
        command.args(["-u", "-b", "0", "-d", &self.domain.to_string(), "-i"]);
        command.arg(socket("pmc.sock")).arg("-s").arg(socket("ptp4l.sock"));
        let output = run_to_end(command.arg(format!("GET {what}")), Duration::from_secs(10))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Sends a management request from `host` to the clocks on its network; returns the output of pmc.
pub(crate) fn manage(host: &LabHost, transport: &str, domain: u8, request: &str) -> Result<String> {
    let directory = tempfile::tempdir()?;
    let mut command = host.command("pmc");
    command.args([transport, "-b", "0", "-d", &domain.to_string()]);
    command.args(["-i", &host.first_interface().name]).arg(request);
    command.current_dir(directory.path());
    let output = run_to_end(&mut command, Duration::from_secs(10))?;
    ensure!(output.status.success(), "pmc: {output:?}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the number after a name in the output of pmc.
pub(crate) fn number(text: &str, name: &str) -> Result<f64> {
    let line = text.lines().map(str::trim).find_map(|line| line.strip_prefix(name));
    let value = line.with_context(|| format!("no {name}: {text}"))?.trim();
    value.parse().with_context(|| format!("{name}: {value}"))
}
