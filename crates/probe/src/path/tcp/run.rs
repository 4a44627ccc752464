//! A measurement of TCP from its options to its record.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use horolog_io::target::require_unicast;
use horolog_record::{
    Code, Finding, Host, PATH_TCP_SCHEMA, PathEnd, PathTcpResult, Severity, Slots, TcpBandwidth,
    TcpDirection, TcpLatency, TcpTarget, rfc3339_now,
};

use super::super::looks::{Onlooker, Under};
use super::client::Session;
use super::error::PathError;
use super::latency::{Row, is_set};
use super::looks::{Looking, of_bandwidth, of_latency};
use super::loss::Loss;
use super::options::{TcpOptions, ms};
use super::protocol::{Flags, Hello, Work};
use super::{bandwidth, facts, latency};

/// How often it is asked whether the run is to end.
const LOOK: Duration = Duration::from_millis(50);

/// A far end that was greeted, and what is to be measured with it.
pub struct TcpPath {
    options: TcpOptions,
    address: SocketAddr,
    near: PathEnd,
    far: Option<PathEnd>,
}

/// One row of the sweep.
#[derive(Clone, Copy)]
enum Step {
    Latency(u64),
    Bandwidth(u64, TcpDirection),
}

/// What it came to.
enum Measured {
    Latency(Row<TcpLatency>),
    Bandwidth(Row<TcpBandwidth>),
}

impl Step {
    /// What those call it who look on.
    fn name(self) -> String {
        match self {
            Self::Latency(size) => format!("latency {size} B"),
            Self::Bandwidth(size, TcpDirection::Out) => format!("out {size} B"),
            Self::Bandwidth(size, TcpDirection::Back) => format!("back {size} B"),
        }
    }
}

impl TcpPath {
    /// Checks the options, finds the far end and asks for its facts.
    ///
    /// # Errors
    ///
    /// When the options cannot be, or the far end is not there or refuses.
    pub fn open(options: TcpOptions) -> Result<Self, PathError> {
        options.check()?;
        let address = options.target.resolve(options.family)?;
        require_unicast(address.ip())?;
        let hello = Hello {
            work: Work::Facts,
            flags: Flags::default(),
            request_bytes: largest(&options),
            head_bytes: 0,
            body_bytes: 0,
            batch: 1,
            time_ms: ms(options.time()),
            warm_up_ms: ms(options.warm_up()),
        };
        let over = AtomicBool::new(false);
        let session = Session::open(address, &hello, &over)?;
        let near = facts::near_end(&session.stream);
        let far = session.far;
        Ok(Self { options, address, near, far })
    }

    /// How many rows there are.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.steps().len() as u64
    }

    fn steps(&self) -> Vec<Step> {
        let options = &self.options;
        let mut steps: Vec<_> =
            options.latency_sizes.iter().map(|size| Step::Latency(*size)).collect();
        for size in &options.bandwidth_sizes {
            let directions = options.directions;
            steps.extend(directions.out.then_some(Step::Bandwidth(*size, TcpDirection::Out)));
            steps.extend(directions.back.then_some(Step::Bandwidth(*size, TcpDirection::Back)));
        }
        steps
    }

    /// Measures row by row, until all are done, the far end has gone, or the run is to end;
    /// `onlooker` sees how it goes meanwhile.
    ///
    /// # Errors
    ///
    /// When the far end refuses the connections of the first row.
    pub fn run(
        self,
        progress: &dyn Fn(u64),
        is_over: &dyn Fn() -> bool,
        onlooker: Option<&dyn Onlooker>,
    ) -> Result<PathTcpResult, PathError> {
        let mut result = self.empty();
        let over = AtomicBool::new(false);
        let mut looking = onlooker.map(Looking::new);
        for (done, step) in (0..).zip(self.steps()) {
            progress(done);
            if is_over() {
                over.store(true, Ordering::Relaxed);
            }
            if is_set(&over) {
                result.findings.push(interrupted());
                return Ok(result);
            }
            let row = (done as usize, step);
            let work = || self.step(row, &over, &mut result, looking.as_mut());
            let lost = match watched(is_over, &over, work) {
                Ok(lost) => lost,
                Err(error) if done == 0 => return Err(error),
                Err(error) => Some(error.into()),
            };
            if let Some(loss) = lost {
                result.findings.push(loss.finding(self.address, "row"));
                return Ok(result);
            }
        }
        if is_set(&over) {
            result.findings.push(interrupted());
        }
        result.findings.extend(copied(&result));
        Ok(result)
    }

    /// Measures one row; why the far end is lost, where it is.
    fn step(
        &self,
        (index, step): (usize, Step),
        over: &AtomicBool,
        result: &mut PathTcpResult,
        looking: Option<&mut Looking<'_>>,
    ) -> Result<Option<Loss>, PathError> {
        let connections = self.options.settings.connections;
        let name = step.name();
        let under = self.under(index, step, &name);
        let measured = match looking.as_deref() {
            None => self.measure(step, over, None),
            Some(looking) => {
                looking.during(under, connections, |slots| self.measure(step, over, Some(slots)))
            }
        }?;
        if let Some(looking) = looking {
            looking.end(
                under,
                match &measured {
                    Measured::Latency(row) => of_latency(&row.figures, connections),
                    Measured::Bandwidth(row) => of_bandwidth(&row.figures),
                },
            );
        }
        Ok(match measured {
            Measured::Latency(row) => {
                result.latency.push(row.figures);
                row.lost
            }
            Measured::Bandwidth(row) => {
                result.bandwidth.push(row.figures);
                row.lost
            }
        })
    }

    /// A row as those see it who look on.
    fn under<'a>(&self, index: usize, step: Step, name: &'a str) -> Under<'a> {
        let time = self.options.warm_up() + self.options.time();
        Under {
            index,
            name,
            rate: None,
            duration_s: Some(time.as_secs_f64()),
            is_transfer: matches!(step, Step::Bandwidth(..)),
        }
    }

    fn measure(
        &self,
        step: Step,
        over: &AtomicBool,
        slots: Option<&Slots>,
    ) -> Result<Measured, PathError> {
        let (address, options) = (self.address, &self.options);
        match step {
            Step::Latency(size) => {
                latency::measure(address, size, options, over, slots).map(Measured::Latency)
            }
            Step::Bandwidth(size, direction) => {
                bandwidth::measure(address, size, direction, options, over, slots)
                    .map(Measured::Bandwidth)
            }
        }
    }

    fn empty(&self) -> PathTcpResult {
        let shared = super::row::same_machine(&self.near, self.far.as_ref());
        PathTcpResult {
            schema: PATH_TCP_SCHEMA.to_owned(),
            started: rfc3339_now(),
            command: self.options.command.clone(),
            host: Host::read(),
            target: TcpTarget {
                address: self.address,
                name: self.options.target.name().map(str::to_owned),
            },
            near: self.near.clone(),
            far: self.far.clone(),
            settings: self.options.settings,
            latency: Vec::new(),
            bandwidth: Vec::new(),
            limits: Vec::new(),
            findings: shared.into_iter().collect(),
        }
    }
}

fn largest(options: &TcpOptions) -> u32 {
    let sizes = options.latency_sizes.iter().chain(&options.bandwidth_sizes);
    sizes.copied().max().and_then(|size| u32::try_from(size).ok()).unwrap_or(0)
}

/// Does something that takes a while, and meanwhile asks whether the run is to end; sets the flag
/// when it is.
pub(crate) fn watched<T: Send>(
    is_over: &dyn Fn() -> bool,
    over: &AtomicBool,
    work: impl FnOnce() -> T + Send,
) -> T {
    let (done, end) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            // The receiver stays until this has come, or is gone with the process.
            let _ = done.send(work());
        });
        loop {
            match end.recv_timeout(LOOK) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Timeout) => {
                    if is_over() {
                        over.store(true, Ordering::Relaxed);
                    }
                }
                // The work panicked; the scope will as well.
                Err(RecvTimeoutError::Disconnected) => panic!("the measuring thread has ended"),
            }
        }
    })
}

fn interrupted() -> Finding {
    let message = "The run was ended before all rows were measured.".to_owned();
    finding(Code::Interrupted, Severity::Note, message, "")
}

/// Says so where the kernel copied what was to be sent without a copy.
fn copied(result: &PathTcpResult) -> Option<Finding> {
    let counts = result.bandwidth.iter().filter_map(|row| row.zero_copy);
    let (sends, copied) = counts.fold((0_u64, 0_u64), |(sends, copied), one| {
        (sends.saturating_add(one.sends), copied.saturating_add(one.copied))
    });
    (copied > 0).then(|| {
        let message = format!(
            "The kernel copied {copied} of {sends} sends that were to go without a copy: loopback \
             and virtual links cannot do otherwise."
        );
        let advice = "Measure without --zero-copy here; it costs more than it saves.";
        finding(Code::ZeroCopyCopied, Severity::Warning, message, advice)
    })
}

pub(crate) fn finding(code: Code, severity: Severity, message: String, advice: &str) -> Finding {
    Finding { code, severity, message, advice: advice.to_owned(), trial: None }
}
