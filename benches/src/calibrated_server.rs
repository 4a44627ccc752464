//! Server whose clock is calibrated by a simulated receiver, with its calibration threads on the
//! core that a benchmark selects.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use horolog_lab::receiver::SimulatedGnssReceiver;
use horolog_lab::{Lab, LabConfig, RunningProgram};
use horolog_load::ramp::Ramp;
use horolog_load::{LoadOptions, LoadProcedure, LoadRun};
use horolog_record::{LoadEngineKind, LoadResult};
use horolog_server::status;
use horolog_source::{SOCK_SAMPLE_LEN, SockSample};
use horolog_stats::ExactSummary;
use horolog_time::Span;
use serde_json::Value;
use tempfile::TempDir;

/// Timeout of the server's readiness, for which several sentences have to agree.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Calibration threads of the server: the one that evaluates sentences, and the one that reads and
/// timestamps them.
const CALIBRATION_THREADS: [&str; 2] = ["calibration", "gnss"];
const ANSWERING_THREAD: &str = "answer-0";
/// Duration of the load; sentences arrive once a second.
const DURATION: Duration = Duration::from_secs(20);
/// Timeout of one sample, after which the end of the load is checked again.
const WAIT: Duration = Duration::from_millis(100);

/// Core on which a server calibrates.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CalibrationCore {
    /// Without calibration.
    Disabled,
    /// On the core of the answering thread.
    SameCore,
    /// On a core other than that of the answering thread.
    OtherCore,
}

impl CalibrationCore {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Disabled => "none",
            Self::SameCore => "on the answering core",
            Self::OtherCore => "on another core",
        }
    }
}

/// Measurements of the calibration of a busy server.
pub(crate) struct BusyMeasurement {
    /// Delay from the sending of a sentence to its timestamp, in ns.
    pub(crate) delays: ExactSummary,
    /// CPU time of the calibration threads, as a share of one core.
    pub(crate) core_share: f64,
}

/// Server with optional calibration, in its own lab.
pub(crate) struct CalibratedServer {
    process: RunningProgram,
    calibrated: Option<CalibrationReceiver>,
    lab: Lab,
    _directory: TempDir,
}

impl CalibratedServer {
    /// Starts a server with one answering thread, and waits until the receiver's sentences agree.
    pub(crate) fn start(core: CalibrationCore, binary: &Path) -> Result<Self> {
        let lab = Lab::new(&LabConfig { queues: 2, ..LabConfig::default() })?;
        let directory = tempfile::Builder::new().prefix("horolog-bench-").tempdir()?;
        let path = |name: &str| -> PathBuf { directory.path().join(name) };
        let socket = path("status.sock");
        let mut command = lab.server().command(binary);
        command.args(["serve", "--engine", "socket", "--threads", "1", "--listen"]);
        command.arg(format!("{}:123", lab.server().first_interface().ipv4));
        command.arg("--status-socket").arg(&socket);
        let calibrated = if core == CalibrationCore::Disabled {
            command.args(["--local", "--stratum", "1"]);
            None
        } else {
            let (line, samples) = (path("gnss"), path("samples.sock"));
            // The server must not steer the host's clock.
            command.args(["--no-clock-control", "--coarse-output", "--sock-output"]).arg(&samples);
            command.arg("--gnss").arg(format!("{}:115200", line.display()));
            Some(CalibrationReceiver::new(&line, &samples)?)
        };
        let mut process = RunningProgram::start(&mut command)?;
        process.await_ready(TIMEOUT, || {
            let fetched = status::fetch(&socket);
            fetched.is_ok_and(|status| calibrated.is_none() || is_coarse(&status))
        })?;
        let this = Self { process, calibrated, lab, _directory: directory };
        match core {
            CalibrationCore::Disabled => {}
            CalibrationCore::SameCore => this.calibrate_on(this.answering_core()?)?,
            CalibrationCore::OtherCore => this.calibrate_on(this.other_core()?)?,
        }
        Ok(this)
    }

    pub(crate) fn load(&self, job: LoadProcedure) -> Result<LoadResult> {
        let target = self.lab.server().first_interface().ipv4.to_string().parse()?;
        let mut options = LoadOptions::new(target, job);
        options.engine = Some(LoadEngineKind::Xdp);
        options.namespaces = vec![self.lab.server().netns.clone()];
        Ok(self.lab.client().run(|| LoadRun::prepare(options)?.run(&mut ()))??)
    }

    /// Loads the server at `rate` requests per second and measures its calibration meanwhile.
    pub(crate) fn measure_at(&self, rate: f64) -> Result<BusyMeasurement> {
        let calibrated = self.calibrated.as_ref().context("the server has no receiver")?;
        let ramp = Ramp { min: rate, max: rate, multiplier: 2.0, duration: DURATION };
        let (before, begun) = (self.calibration_cpu_s()?, Instant::now());
        let delays =
            calibrated.measure_delays(|| self.load(LoadProcedure::Ramp(ramp)).map(drop))?;
        let core_share = (self.calibration_cpu_s()? - before) / begun.elapsed().as_secs_f64();
        Ok(BusyMeasurement { delays, core_share })
    }

    fn calibration_threads(&self) -> Result<[Thread; 2]> {
        let [one, other] = CALIBRATION_THREADS.map(|name| Thread::find(self.process.pid(), name));
        Ok([one?, other?])
    }

    /// Returns the CPU time of the calibration threads, in seconds.
    fn calibration_cpu_s(&self) -> Result<f64> {
        self.calibration_threads()?.iter().map(Thread::cpu_time_s).sum()
    }

    fn answering_core(&self) -> Result<usize> {
        Thread::find(self.process.pid(), ANSWERING_THREAD)?.core()
    }

    fn other_core(&self) -> Result<usize> {
        let cores = thread::available_parallelism()?.get();
        ensure!(cores > 1, "cannot calibrate on another core: the host has one");
        Ok((self.answering_core()? + 1) % cores)
    }

    fn calibrate_on(&self, core: usize) -> Result<()> {
        for thread in self.calibration_threads()? {
            thread.pin_to(core)?;
            ensure!(thread.core()? == core, "{} is not on core {core}", thread.path.display());
        }
        Ok(())
    }
}

/// Simulated receiver, and the socket for the samples that the server derives from its sentences.
struct CalibrationReceiver {
    receiver: SimulatedGnssReceiver,
    samples: UnixDatagram,
}

impl CalibrationReceiver {
    fn new(line: &Path, samples: &Path) -> Result<Self> {
        let samples = UnixDatagram::bind(samples)?;
        samples.set_read_timeout(Some(WAIT))?;
        Ok(Self { receiver: SimulatedGnssReceiver::start(line, Span::ZERO)?, samples })
    }

    /// Returns the delays from the sending of sentences to their timestamps during `work`, in ns.
    fn measure_delays(&self, work: impl FnOnce() -> Result<()>) -> Result<ExactSummary> {
        // Discards samples that arrived before.
        while self.delay().is_some() {}
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            let delays = scope.spawn(|| {
                let mut delays = Vec::new();
                while !ended.load(Ordering::Relaxed) {
                    delays.extend(self.delay());
                }
                delays
            });
            let worked = work();
            ended.store(true, Ordering::Relaxed);
            let delays = delays.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            worked?;
            ExactSummary::from_values(delays).context("no sample was received")
        })
    }

    /// Returns the delay of the next sample in ns, or `None` without a matching sample within
    /// [`WAIT`]. The system time in a sample is truncated to microseconds.
    fn delay(&self) -> Option<i64> {
        let mut bytes = [0; SOCK_SAMPLE_LEN];
        let length = self.samples.recv(&mut bytes).ok()?;
        let sample = SockSample::parse(&bytes[..length])?;
        let sent = self.receiver.last_sent()?;
        // The time of a sample lies within the second that the sentence reports.
        let (second, _) = (sample.system + sample.offset).to_timespec();
        (second == sent.second).then(|| (sample.system - sent.at).as_ns())
    }
}

/// Returns true if a server's status reports that the sentences of its receiver agree.
fn is_coarse(status: &str) -> bool {
    let status: Value = serde_json::from_str(status).unwrap_or_default();
    status["calibration"]["state"] == "coarse"
}

/// Thread of another process (proc(5), /proc/pid/task).
struct Thread {
    path: PathBuf,
}

impl Thread {
    fn find(pid: u32, name: &str) -> Result<Self> {
        for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
            let path = entry?.path();
            if fs::read_to_string(path.join("comm"))?.trim() == name {
                return Ok(Self { path });
            }
        }
        bail!("the server has no thread '{name}'")
    }

    /// Returns the one core that the thread may run on.
    fn core(&self) -> Result<usize> {
        let status = fs::read_to_string(self.path.join("status"))?;
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let list = list.context("no Cpus_allowed_list in status")?.trim();
        list.parse().context("the thread is not pinned to one core")
    }

    fn pin_to(&self, core: usize) -> Result<()> {
        let mut taskset = Command::new("taskset");
        taskset.args(["-p", "-c", &core.to_string()]);
        taskset.arg(self.path.file_name().context("no thread identifier")?);
        let output = taskset.output().context("cannot run taskset")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// Returns the CPU time of the thread in seconds, to the nanosecond (Linux,
    /// Documentation/scheduler/sched-stats.rst).
    fn cpu_time_s(&self) -> Result<f64> {
        let text = fs::read_to_string(self.path.join("schedstat"))?;
        let ran_ns = text.split_whitespace().next().context("no time in schedstat")?;
        Ok(ran_ns.parse::<f64>()? / 1e9)
    }
}
