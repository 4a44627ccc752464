//! PTP masters under comparison, each started in the lab's server host and ended when its value is
//! dropped, and a listener for their messages at the client's end of the link.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use horolog_io::{Batch, BatchDevice, BatchPacket, UdpDevice, UdpDeviceOptions};
use horolog_lab::{Lab, LabConfig, LabHost, RunningProgram};
use horolog_load::mix::RequestMix;
use horolog_load::ptp::PtpRequestOptions;
use horolog_load::{LoadOptions, LoadProcedure, LoadRun};
use horolog_record::{LoadEngineKind, LoadResult};
use horolog_wire::ptp::{EVENT_PORT, GENERAL_PORT, MULTICAST_IPV4, Message, MessageType};
use tempfile::TempDir;

/// Timeout of the first Announce; becoming master takes a second.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Larger than any multicast message of a master, in bytes.
const MESSAGE_MAX: usize = 512;
/// Network of the simulated clients, the only ones that are answered in NetSync Monitor.
const CLIENTS: &str = "10.64.0.0/10";
/// Interval of Announce messages (log2 of seconds): four per second, so that a master is elected
/// soon.
const LOG_ANNOUNCE_INTERVAL: &str = "-2";

/// Master under test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Master {
    /// Master of linuxptp with software timestamps, free-running, without permission to set a
    /// clock.
    Ptp4l,
    /// Horolog: XDP answers the requests that it can, a thread the others.
    Horolog,
}

/// Masters in the order in which they are measured.
pub(crate) const MASTERS: [Master; 2] = [Master::Ptp4l, Master::Horolog];

impl Master {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ptp4l => "ptp4l",
            Self::Horolog => "horolog",
        }
    }
}

/// Running master in its own lab.
pub(crate) struct RunningMaster {
    lab: Lab,
    _process: RunningProgram,
    _directory: TempDir,
}

impl RunningMaster {
    /// Starts a master with Syncs at the interval `log_sync_interval` (log2 of seconds), and waits
    /// for its Announce.
    pub(crate) fn new(master: Master, binary: &Path, log_sync_interval: i8) -> Result<Self> {
        let lab = Lab::new(&LabConfig { queues: 2, ..LabConfig::default() })?;
        let directory = tempfile::Builder::new().prefix("horolog-bench-").tempdir()?;
        let listener = Listener::join(lab.client(), GENERAL_PORT)?;
        let mut command = match master {
            Master::Ptp4l => ptp4l(lab.server(), directory.path(), log_sync_interval)?,
            Master::Horolog => {
                horolog_master(lab.server(), binary, directory.path(), log_sync_interval)
            }
        };
        let process = RunningProgram::start(&mut command)
            .with_context(|| format!("cannot run {}; is it installed?", master.name()))?;
        listener.await_first(MessageType::Announce, TIMEOUT).context(master.name())?;
        Ok(Self { lab, _process: process, _directory: directory })
    }

    /// Returns the host of the clients.
    pub(crate) fn client(&self) -> &LabHost {
        self.lab.client()
    }

    /// Loads the master from the client's host with the in-kernel engine.
    pub(crate) fn load(&self, plan: PtpRequestOptions, job: LoadProcedure) -> Result<LoadResult> {
        let target = self.lab.server().first_interface().ipv4.to_string().parse()?;
        let mut options = LoadOptions::new(target, job);
        options.engine = Some(LoadEngineKind::Xdp);
        options.requests = RequestMix::only(plan);
        options.source_network = Some(CLIENTS.parse()?);
        options.namespaces = vec![self.lab.server().netns.clone()];
        Ok(self.client().run(|| LoadRun::prepare(options)?.run(&mut ()))??)
    }
}

/// Returns the command that starts ptp4l.
fn ptp4l(host: &LabHost, directory: &Path, log_sync_interval: i8) -> Result<std::process::Command> {
    let configuration = directory.join("ptp4l.conf");
    let text = format!(
        "[global]\nfree_running 1\ntime_stamping software\nmasterOnly 1\nhybrid_e2e 1\n\
         net_sync_monitor 1\nunicast_listen 1\ntx_timestamp_timeout 50\n\
         fault_reset_interval ASAP\nannounceReceiptTimeout 2\nuse_syslog 0\n\
         logAnnounceInterval {LOG_ANNOUNCE_INTERVAL}\nlogSyncInterval {log_sync_interval}\n\
         uds_address {}\n[{}]\n",
        directory.join("ptp4l.sock").display(),
        host.first_interface().name
    );
    fs::write(&configuration, text)?;
    // ptp4l must not steer the host's clock.
    let mut command = host.command("setpriv");
    command.args(["--bounding-set", "-sys_time", "--inh-caps", "-sys_time", "ptp4l", "-f"]);
    command.arg(configuration);
    Ok(command)
}

/// Returns the command that starts Horolog.
fn horolog_master(
    host: &LabHost,
    binary: &Path,
    directory: &Path,
    log_sync_interval: i8,
) -> std::process::Command {
    let (port, sync) = (host.first_interface(), log_sync_interval.to_string());
    let mut command = host.command(binary);
    command.args(["serve", "--engine", "xdp", "--xdp-reply", "transmit", "--threads", "1"]);
    command.args(["--local", "--stratum", "1", "--tai-offset", "37", "--listen"]);
    command.arg(format!("{}:123", port.ipv4)).args(["--ptp", &port.name]);
    command.args(["--ptp-netsync-monitor", "--ptp-unicast-allow", CLIENTS]);
    command.args(["--ptp-announce-interval", LOG_ANNOUNCE_INTERVAL]);
    command.args(["--ptp-sync-interval", &sync, "--status-socket"]);
    command.arg(directory.join("status.sock"));
    command
}

/// Member of the PTP multicast group on the first interface of a host, at one of the two ports.
pub(crate) struct Listener {
    device: UdpDevice,
}

impl Listener {
    /// Joins the group.
    pub(crate) fn join(host: &LabHost, port: u16) -> Result<Self> {
        let options = UdpDeviceOptions {
            interface: Some(host.first_interface().name.clone()),
            ..UdpDeviceOptions::default()
        };
        let at = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        let device = host.run(|| UdpDevice::bind(at, &options))??;
        device.join(IpAddr::V4(MULTICAST_IPV4), host.first_interface().index)?;
        Ok(Self { device })
    }

    /// Joins the group at the port of event messages, among them Sync.
    pub(crate) fn join_events(host: &LabHost) -> Result<Self> {
        Self::join(host, EVENT_PORT)
    }

    /// Calls `each` with every received message and its packet, until `each` returns true or the
    /// instant `until` is reached.
    pub(crate) fn listen(
        mut self,
        until: Instant,
        mut each: impl FnMut(&Message<'_>, &BatchPacket<'_, horolog_io::DatagramEndpoints>) -> bool,
    ) -> Result<()> {
        let mut batch = Batch::new(32, MESSAGE_MAX);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            self.device.receive(&mut batch, left)?;
            for packet in batch.iter() {
                let Ok((message, _)) = Message::parse(packet.bytes) else { continue };
                if each(&message, &packet) {
                    return Ok(());
                }
            }
        }
    }

    /// Waits for the first message of the type `kind`.
    fn await_first(self, kind: MessageType, timeout: Duration) -> Result<()> {
        let mut is_received = false;
        self.listen(Instant::now() + timeout, |message, _| {
            is_received = message.kind() == Some(kind);
            is_received
        })?;
        if is_received { Ok(()) } else { bail!("no {kind:?} within {} s", timeout.as_secs()) }
    }
}
