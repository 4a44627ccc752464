//! An agent's hands: a thread for each order, which has its processes made and started, and ends
//! them when it is told to. It decides nothing; what its processes do comes as events.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use crate::job::{Crew, Event, Means, Tell};
use crate::order::{ClockState, Ending, News, Order, Outcome};

/// How long services may take until they are ready.
const SERVICE_PATIENCE: Duration = Duration::from_secs(15);
const DIRECTORY: &str = "jobs";

/// What an order's processes are to do.
#[derive(Clone, Copy, Debug)]
enum Do {
    Start(i64),
    Finish,
    Abandon,
}

/// The thread of one order. When it is dropped, what still runs is ended.
pub(super) struct Hands {
    to: Sender<Do>,
}

/// A directory for jobs in that of the agent, empty: what is in it is of an agent that was killed.
pub(super) fn directory(state: &Path) -> io::Result<PathBuf> {
    let directory = state.join(DIRECTORY);
    match fs::remove_dir_all(&directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => DirBuilder::new().mode(0o700).create(&directory)?,
    }
    Ok(directory)
}

impl Hands {
    /// Starts the services of an order. Every job of it comes to an outcome, whatever happens.
    pub(super) fn begin(order: Order, means: Means, clock: Option<ClockState>, tell: Tell) -> Self {
        let (to, told) = mpsc::channel();
        let (spare, unable) = (order.clone(), Arc::clone(&tell));
        let run = move || match Crew::begin(&order, &means, clock, Arc::clone(&tell)) {
            Ok(crew) => serve(crew, &told),
            Err(error) => cannot(&order, &error.to_string(), &tell),
        };
        if let Err(error) = thread::Builder::new().name("order".into()).spawn(run) {
            cannot(&spare, &format!("the system gives no thread: {error}"), &unable);
        }
        Self { to }
    }

    /// Has the other jobs start at this instant, UTC in ns since 1970.
    pub(super) fn start(&self, at_ns: i64) {
        self.say(Do::Start(at_ns));
    }

    /// Has the services end.
    pub(super) fn finish(&self) {
        self.say(Do::Finish);
    }

    /// Has everything end.
    pub(super) fn abandon(&self) {
        self.say(Do::Abandon);
    }

    fn say(&self, what: Do) {
        // A thread that has ended has nothing left that could end.
        let _ = self.to.send(what);
    }
}

fn serve(mut crew: Crew, told: &Receiver<Do>) {
    // It says itself whether it is ready.
    let _ = crew.start_services(SERVICE_PATIENCE);
    for what in told {
        match what {
            Do::Start(at_ns) => crew.start(at_ns),
            Do::Finish => crew.finish(),
            Do::Abandon => crew.abandon(),
        }
    }
}

/// Nothing of an order can be begun.
fn cannot(order: &Order, reason: &str, tell: &Tell) {
    if let Some(job) = order.jobs.first() {
        let (job, reason) = (job.id.clone(), reason.to_owned());
        tell(Event::News(News::NotReady { job, reason }));
    }
    for job in &order.jobs {
        let Order { campaign, agent, .. } = order.clone();
        let ending = Ending::Refused { reason: reason.to_owned() };
        tell(Event::Outcome(Box::new(Outcome::new(campaign, agent, job.id.clone(), ending))));
    }
}
