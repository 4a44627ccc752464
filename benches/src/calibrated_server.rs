//! A server whose clock is calibrated by a simulated receiver, with its calibration threads on the
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

use crate::capacity::NullObserver;

/// Longer than the few sentences take that have to agree.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Threads that calibrate: the one that decides, and the one that reads the line and timestamps.
const CALIBRATING: [&str; 2] = ["calibration", "gnss"];
const ANSWERING: &str = "answer-0";
/// Sentences come once a second.
const DURATION: Duration = Duration::from_secs(20);
/// How long a sentence is waited for before it is looked whether more are wanted.
const WAIT: Duration = Duration::from_millis(100);

/// Where a server calibrates.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CalibrationCore {
    /// It does not.
    Nowhere,
    /// On the core of the answering thread.
    SameCore,
    /// On another one.
    OtherCore,
}

impl CalibrationCore {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Nowhere => "none",
            Self::SameCore => "on the answering core",
            Self::OtherCore => "on another core",
        }
    }
}

/// Measurements of the calibration of a busy server.
pub(crate) struct Busy {
    /// From when sentences were sent to when they were timestamped, in ns.
    pub(crate) delays: ExactSummary,
    /// Time that the calibrating threads ran, as a share of one core.
    pub(crate) core_share: f64,
}

/// A server in a lab of its own.
pub(crate) struct CalibratedServer {
    process: RunningProgram,
    calibrated: Option<Calibrated>,
    lab: Lab,
    _directory: TempDir,
}

impl CalibratedServer {
    /// Starts a server with one answering thread, and waits until its sentences agree.
    pub(crate) fn start(core: CalibrationCore, binary: &Path) -> Result<Self> {
        let lab = Lab::new(&LabConfig { queues: 2, ..LabConfig::default() })?;
        let directory = tempfile::Builder::new().prefix("horolog-bench-").tempdir()?;
        let path = |name: &str| -> PathBuf { directory.path().join(name) };
        let socket = path("status.sock");
        let mut command = lab.server().command(binary);
        command.args(["serve", "--engine", "socket", "--threads", "1", "--listen"]);
        command.arg(format!("{}:123", lab.server().first_interface().ipv4));
        command.arg("--status-socket").arg(&socket);
        let calibrated = if core == CalibrationCore::Nowhere {
            command.args(["--local", "--stratum", "1"]);
            None
        } else {
            let (line, samples) = (path("gnss"), path("samples.sock"));
            // It must never touch this machine's clock.
            command.args(["--no-clock-control", "--coarse-output", "--sock-output"]).arg(&samples);
            command.arg("--gnss").arg(format!("{}:115200", line.display()));
            Some(Calibrated::new(&line, &samples)?)
        };
        let mut process = RunningProgram::start(&mut command)?;
        process.await_ready(TIMEOUT, || {
            let fetched = status::fetch(&socket);
            fetched.is_ok_and(|status| calibrated.is_none() || is_coarse(&status))
        })?;
        let this = Self { process, calibrated, lab, _directory: directory };
        match core {
            CalibrationCore::Nowhere => {}
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
        Ok(self.lab.client().run(|| LoadRun::prepare(options)?.run(&mut NullObserver))??)
    }

    /// Loads it at one rate and sees what becomes of its sentences meanwhile.
    pub(crate) fn busy_at(&self, rate: f64) -> Result<Busy> {
        let calibrated = self.calibrated.as_ref().context("it has no receiver")?;
        let ramp = Ramp { min: rate, max: rate, multiplier: 2.0, duration: DURATION };
        let (before, begun) = (self.calibrating_s()?, Instant::now());
        let delays = calibrated.delays_during(|| self.load(LoadProcedure::Ramp(ramp)).map(drop))?;
        let core_share = (self.calibrating_s()? - before) / begun.elapsed().as_secs_f64();
        Ok(Busy { delays, core_share })
    }

    fn calibrating(&self) -> Result<[Thread; 2]> {
        let [one, other] = CALIBRATING.map(|name| Thread::find(self.process.pid(), name));
        Ok([one?, other?])
    }

    /// Processor time of the threads that calibrate.
    fn calibrating_s(&self) -> Result<f64> {
        self.calibrating()?.iter().map(Thread::ran_s).sum()
    }

    fn answering_core(&self) -> Result<usize> {
        Thread::find(self.process.pid(), ANSWERING)?.core()
    }

    fn other_core(&self) -> Result<usize> {
        let cores = thread::available_parallelism()?.get();
        ensure!(cores > 1, "this machine has one core; there is no other");
        Ok((self.answering_core()? + 1) % cores)
    }

    fn calibrate_on(&self, core: usize) -> Result<()> {
        for thread in self.calibrating()? {
            thread.put_on(core)?;
            ensure!(thread.core()? == core, "{} is not on core {core}", thread.path.display());
        }
        Ok(())
    }
}

/// A receiver, and what a server makes of its sentences.
struct Calibrated {
    receiver: SimulatedGnssReceiver,
    samples: UnixDatagram,
}

impl Calibrated {
    fn new(line: &Path, samples: &Path) -> Result<Self> {
        let samples = UnixDatagram::bind(samples)?;
        samples.set_read_timeout(Some(WAIT))?;
        Ok(Self { receiver: SimulatedGnssReceiver::start(line, Span::ZERO)?, samples })
    }

    /// How long after they were sent the sentences were timestamped during some work, in ns.
    fn delays_during(&self, work: impl FnOnce() -> Result<()>) -> Result<ExactSummary> {
        // Those of before.
        while self.delay().is_some() {}
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let delays = scope.spawn(|| {
                let mut delays = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    delays.extend(self.delay());
                }
                delays
            });
            let worked = work();
            over.store(true, Ordering::Relaxed);
            let delays = delays.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            worked?;
            ExactSummary::from_values(delays).context("no sentence was given on")
        })
    }

    /// The delay of the next sentence, if one comes soon. The system clock's reading in a sample is
    /// cut to microseconds.
    fn delay(&self) -> Option<i64> {
        let mut bytes = [0; SOCK_SAMPLE_LEN];
        let length = self.samples.recv(&mut bytes).ok()?;
        let sample = SockSample::parse(&bytes[..length])?;
        let sent = self.receiver.last_sent()?;
        // The time that is given on lies in the middle of the second that the sentence tells.
        let (second, _) = (sample.system + sample.offset).to_timespec();
        (second == sent.second).then(|| (sample.system - sent.at).as_ns())
    }
}

/// Returns true if a server's status reports that the sentences of its receiver agree.
fn is_coarse(status: &str) -> bool {
    let status: Value = serde_json::from_str(status).unwrap_or_default();
    status["calibration"]["state"] == "coarse"
}

/// A thread of another process (proc(5), /proc/pid/task).
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

    /// The one core that it may run on.
    fn core(&self) -> Result<usize> {
        let status = fs::read_to_string(self.path.join("status"))?;
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        list.context("no list of cores")?.trim().parse().context("it may run on several cores")
    }

    fn put_on(&self, core: usize) -> Result<()> {
        let mut taskset = Command::new("taskset");
        taskset.args(["-p", "-c", &core.to_string()]);
        taskset.arg(self.path.file_name().context("no number")?);
        let output = taskset.output().context("run taskset")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// Time that it has run, to the nanosecond (Linux, Documentation/scheduler/sched-stats.rst).
    fn ran_s(&self) -> Result<f64> {
        let text = fs::read_to_string(self.path.join("schedstat"))?;
        let ran_ns = text.split_whitespace().next().context("no time in schedstat")?;
        Ok(ran_ns.parse::<f64>()? / 1e9)
    }
}
