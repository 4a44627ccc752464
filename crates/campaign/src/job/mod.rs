//! Carrying out one order: its services are started and waited for, its other jobs are made before
//! the instant and wait for it, each in a process of its own that is watched, bounded and ended
//! with its agent. Agents and local runs do it by the same means. It judges no order; that is
//! [`crate::policy`]'s business and done before.

mod ending;
mod gate;
mod process;
mod ready;
mod streams;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use horolog_sys::namespace::NetNs;

pub use self::gate::pass as pass_gate;
use self::process::Process;
use self::ready::{Readied, Waiter};
use crate::id::{AgentName, CampaignId, JobId};
use crate::order::{ClockState, Ending, Job, News, Order, Outcome};
use crate::role::{Files, RoleFault};

/// How much longer than the other jobs a service may run, after which nobody wants it any more.
const SERVICE_REST: Duration = Duration::from_mins(1);
/// How long services may run before an instant is named.
const IDLE_MAX: Duration = Duration::from_mins(10);

/// Where and by what jobs are run.
#[derive(Clone, Debug)]
pub struct Means {
    /// The binary of horolog, or one that calls [`pass_gate`] as well before it begins.
    pub program: PathBuf,
    /// A directory of the agent's own. Each job gets one in it, which goes with the job.
    pub directory: PathBuf,
    /// The private host to run in; otherwise this one.
    pub host: Option<NetNs>,
}

/// What is told while an order is carried out.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// Something that is of interest now.
    News(News),
    /// What became of a job: once for each, whatever happens.
    Outcome(Box<Outcome>),
}

/// Who is told.
pub type Tell = Arc<dyn Fn(Event) + Send + Sync>;

/// Why an order cannot be begun.
#[derive(Debug, thiserror::Error)]
pub enum BeginError {
    /// A job's options are not those of its kind.
    #[error("job {job}: {fault}")]
    Options {
        /// The job.
        job: JobId,
        /// What is wrong with them.
        fault: RoleFault,
    },
    /// Files cannot be made.
    #[error("cannot make files for a job in {}: {source}; name another directory", directory.display())]
    Files {
        /// Where.
        directory: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// A service that is not there in time.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("service {job} is not ready: {reason}")]
pub struct NotReady {
    /// Which.
    pub job: JobId,
    /// Why, in one line.
    pub reason: String,
}

/// What the processes of an order are to do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Wish {
    /// Run.
    GoOn = 0,
    /// Jobs that are no services end, which measure what they have against services.
    Stop = 1,
    /// Everything ends.
    Abandon = 2,
}

/// What all processes of an order have in common.
struct Common {
    campaign: CampaignId,
    agent: AgentName,
    tell: Tell,
    wish: AtomicU8,
    /// Whether services are to end because all else is done.
    is_finished: AtomicBool,
    /// When services are ended although nobody said so.
    services_until: Mutex<Instant>,
}

impl Common {
    fn wish(&self) -> Wish {
        match self.wish.load(Ordering::SeqCst) {
            0 => Wish::GoOn,
            1 => Wish::Stop,
            _ => Wish::Abandon,
        }
    }

    fn want(&self, wish: Wish) {
        self.wish.fetch_max(wish as u8, Ordering::SeqCst);
    }

    fn services_until(&self) -> Instant {
        *self.services_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, news: News) {
        (self.tell)(Event::News(news));
    }

    /// Tells what became of a job. This comes once for each.
    fn told(&self, outcome: Outcome) {
        self.tell(News::Ended { job: outcome.job.clone() });
        (self.tell)(Event::Outcome(Box::new(outcome)));
    }

    /// The outcome of a job of which nothing is known yet but its end.
    fn outcome(&self, job: &JobId, ending: Ending) -> Outcome {
        Outcome::new(self.campaign.clone(), self.agent.clone(), job.clone(), ending)
    }
}

/// The processes of one order. When it is dropped, those that still run are ended, and it waits for
/// that.
pub struct Crew {
    common: Arc<Common>,
    deadline: Duration,
    clock: Option<ClockState>,
    /// Those that were not started yet.
    services: Vec<Process>,
    others: Vec<Process>,
    threads: Vec<JoinHandle<()>>,
}

impl Crew {
    /// Makes ready what can be made ready: command lines and directories. Nothing is started.
    /// `clock` is what is known of this machine's clock, for the outcomes.
    ///
    /// # Errors
    ///
    /// Options that cannot be, or a directory that cannot be written to.
    pub fn begin(
        order: &Order,
        means: &Means,
        clock: Option<ClockState>,
        tell: Tell,
    ) -> Result<Self, BeginError> {
        let common = Arc::new(Common {
            campaign: order.campaign.clone(),
            agent: order.agent.clone(),
            tell,
            wish: AtomicU8::new(Wish::GoOn as u8),
            is_finished: AtomicBool::new(false),
            services_until: Mutex::new(Instant::now() + IDLE_MAX),
        });
        let all =
            order.jobs.iter().map(|job| prepare(job, means)).collect::<Result<Vec<_>, _>>()?;
        let (services, others) = all.into_iter().partition(Process::is_service);
        let deadline = Duration::from_nanos(order.deadline_ns);
        Ok(Self { common, deadline, clock, services, others, threads: Vec::new() })
    }

    /// Starts the services and waits until all are ready. Where one is not, everything is ended,
    /// and the outcomes of all jobs have been told.
    ///
    /// # Errors
    ///
    /// The service that is not ready, and why.
    pub fn start_services(&mut self, patience: Duration) -> Result<(), NotReady> {
        let (to, ready) = mpsc::channel();
        let until = Instant::now() + patience;
        let services = std::mem::take(&mut self.services);
        let all: Vec<_> = services.iter().map(|service| service.id().clone()).collect();
        for process in services {
            self.run(process, None, Some(Waiter { to: to.clone(), until }));
        }
        drop(to);
        let readied = all_ready(&ready, &all);
        match &readied {
            Ok(()) => self.common.tell(News::Ready),
            Err(NotReady { job, reason }) => {
                let (job, reason) = (job.clone(), reason.clone());
                self.common.tell(News::NotReady { job, reason });
                self.call_off("a service was not ready");
            }
        }
        readied
    }

    /// Makes the processes of the other jobs, which start by themselves at the instant: UTC, in ns
    /// since 1970. It returns before that.
    pub fn start(&mut self, at_ns: i64) {
        let ahead = at_ns.saturating_sub(process::now_ns()).max(0).unsigned_abs();
        let until = Instant::now() + Duration::from_nanos(ahead) + self.deadline + SERVICE_REST;
        *self.common.services_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
        for process in std::mem::take(&mut self.others) {
            self.run(process, Some(at_ns), None);
        }
    }

    /// Ends the services; the other jobs go on.
    pub fn finish(&self) {
        self.common.is_finished.store(true, Ordering::SeqCst);
    }

    /// Ends the jobs that are no services; those go on until [`Crew::finish`], so that none of the
    /// others measures their end. Jobs that were not started are told as abandoned.
    pub fn stop(&mut self) {
        self.end(Wish::Stop);
    }

    /// Ends everything; jobs that were not started are told as abandoned.
    pub fn abandon(&mut self) {
        self.end(Wish::Abandon);
    }

    fn end(&mut self, wish: Wish) {
        self.common.want(wish);
        for process in self.services.drain(..).chain(self.others.drain(..)) {
            self.common.told(self.common.outcome(process.id(), Ending::Abandoned));
        }
    }

    /// Whether all processes that were started have ended and been told of.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Waits for that.
    pub fn wait(&mut self) {
        for thread in self.threads.drain(..) {
            // One that panicked has said so itself.
            let _ = thread.join();
        }
    }

    /// Ends what was started and tells of what was not.
    fn call_off(&mut self, reason: &str) {
        let refused = Ending::Refused { reason: reason.to_owned() };
        for process in self.others.drain(..) {
            self.common.told(self.common.outcome(process.id(), refused.clone()));
        }
        self.abandon();
        self.wait();
    }

    fn run(&mut self, process: Process, at_ns: Option<i64>, ready: Option<Waiter>) {
        let (common, id) = (Arc::clone(&self.common), process.id().clone());
        let (deadline, clock) = (self.deadline, self.clock.clone());
        let run = move || common.told(process.run(&common, at_ns, deadline, clock, ready));
        match thread::Builder::new().name(id.to_string()).spawn(run) {
            Ok(thread) => self.threads.push(thread),
            Err(error) => {
                let reason = format!("the system gives no thread: {error}");
                self.common.told(self.common.outcome(&id, Ending::Refused { reason }));
            }
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.abandon();
        self.wait();
    }
}

/// Waits until each of these has said that it is ready, or one that it is not.
fn all_ready(ready: &Receiver<Readied>, all: &[JobId]) -> Result<(), NotReady> {
    let mut missing: Vec<_> = all.iter().collect();
    for (job, readied) in ready {
        missing.retain(|other| **other != job);
        readied.map_err(|reason| NotReady { job, reason })?;
    }
    let not_started = |job: &&JobId| {
        let reason = "it could not be started".to_owned();
        NotReady { job: (*job).clone(), reason }
    };
    missing.first().map(not_started).map_or(Ok(()), Err)
}

fn prepare(job: &Job, means: &Means) -> Result<Process, BeginError> {
    let files_error = |source| BeginError::Files { directory: means.directory.clone(), source };
    let own = tempfile::Builder::new().prefix("job-").tempdir_in(&means.directory);
    let own = own.map_err(files_error)?;
    let [result, table, socket] = ["result", "table", "socket"].map(|name| own.path().join(name));
    let files = Files { result: &result, table: &table, socket: &socket };
    let line = job.kind.command_line(&job.options, &files);
    let line = line.map_err(|fault| BeginError::Options { job: job.id.clone(), fault })?;
    if let Some(text) = &line.table {
        std::fs::write(&table, text).map_err(files_error)?;
    }
    Ok(Process::new(job.clone(), line.words, means.clone(), own))
}

#[cfg(test)]
mod tests;
