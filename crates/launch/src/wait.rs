//! Waiting for conditions: looks in threads that may hang, decisions by `course`, the end by a
//! deadline or a signal. It returns what became of each; running a program then is its caller's.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use horolog_record::{AFTER_SCHEMA, AfterEnd, AfterResult, Dependency, Host, rfc3339_now};

use crate::condition::{Condition, Sight};
use crate::course::{Backoff, Change, Course};
use crate::signals::{Came, Signals};

/// What is waited for, and how.
#[derive(Clone, Debug)]
pub struct WaitOptions {
    /// The conditions, all of which are to hold.
    pub conditions: Vec<Condition>,
    /// How long to wait at most.
    pub deadline: Option<Duration>,
    /// How looks at one condition follow each other.
    pub backoff: Backoff,
    /// How long one look may take.
    pub patience: Duration,
    /// The command that was given, for the record.
    pub command: Vec<String>,
    /// The program that is to run then, for the record.
    pub program: Vec<String>,
}

/// Something that the waiting thread is told.
enum Event {
    Saw(usize, Sight),
    Signal(Came),
}

/// A wait that is over.
#[derive(Clone, Debug)]
pub struct Waited {
    /// What became of it.
    pub result: AfterResult,
    /// The signal that ended it.
    pub signal: Option<Came>,
}

struct Waiter {
    options: WaitOptions,
    conditions: Vec<Arc<Condition>>,
    course: Course,
    start: Instant,
    to: Sender<Event>,
    events: Receiver<Event>,
}

/// Waits until all conditions hold, the deadline has passed or a signal comes. `tell` hears of each
/// change. Looks that still hang at the end are left behind: end the process soon.
///
/// # Errors
///
/// The system gives no thread.
pub fn wait(options: WaitOptions, tell: impl Fn(&Dependency, Change)) -> io::Result<Waited> {
    let (started, start) = (rfc3339_now(), Instant::now());
    let (to, events) = mpsc::channel();
    let _signals = Signals::watch(to.clone(), Event::Signal)?;
    let conditions: Vec<_> = options.conditions.iter().cloned().map(Arc::new).collect();
    let due = conditions.iter().map(|condition| match **condition {
        Condition::Delay(time) => time,
        _ => Duration::ZERO,
    });
    let course = Course::new(due, options.backoff);
    let mut waiter = Waiter { options, conditions, course, start, to, events };
    let (end, signal) = waiter.run(tell)?;
    Ok(Waited { result: waiter.result(started, end), signal })
}

impl Waiter {
    fn run(&mut self, tell: impl Fn(&Dependency, Change)) -> io::Result<(AfterEnd, Option<Came>)> {
        loop {
            let now = self.start.elapsed();
            if self.course.is_done(now) {
                return Ok((AfterEnd::Held, None));
            }
            if self.options.deadline.is_some_and(|deadline| now >= deadline) {
                return Ok((AfterEnd::Deadline, None));
            }
            for index in self.course.take_due(now) {
                self.look(index)?;
            }
            match self.events.recv_timeout(self.pause()) {
                Ok(Event::Saw(index, sight)) => {
                    if let Some(change) = self.course.saw(index, self.start.elapsed(), sight) {
                        tell(&self.dependency(index), change);
                    }
                }
                Ok(Event::Signal(came)) => return Ok((AfterEnd::Interrupted, Some(came))),
                // This thread holds a sender itself, so the channel is never closed.
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
    }

    /// How long nothing is to be done, unless something is told.
    fn pause(&self) -> Duration {
        let until = [self.course.next_due(), self.options.deadline].into_iter().flatten().min();
        let until = until.unwrap_or(Duration::MAX).saturating_sub(self.start.elapsed());
        until.min(Duration::from_hours(1))
    }

    /// Looks in a thread of its own.
    fn look(&self, index: usize) -> io::Result<()> {
        let (condition, to) = (Arc::clone(&self.conditions[index]), self.to.clone());
        let (start, patience) = (self.start, self.options.patience);
        let look = move || {
            let sight = condition.look(start.elapsed(), patience);
            // Nobody listens any more where the wait is over.
            let _ = to.send(Event::Saw(index, sight));
        };
        thread::Builder::new().name("look".into()).spawn(look).map(drop)
    }

    fn dependency(&self, index: usize) -> Dependency {
        let (condition, known) = (&self.conditions[index], &self.course.known()[index]);
        Dependency {
            kind: condition.kind(),
            target: condition.target(),
            held: known.held_after.is_some(),
            held_after_ns: known.held_after.map(ns),
            tries: known.tries,
            lost: known.lost,
            seen: known.seen.clone(),
        }
    }

    fn result(self, started: String, end: AfterEnd) -> AfterResult {
        AfterResult {
            schema: AFTER_SCHEMA.to_owned(),
            started,
            host: Host::read(),
            deadline_ns: self.options.deadline.map(ns),
            waited_ns: ns(self.start.elapsed()),
            end,
            dependencies: (0..self.conditions.len()).map(|index| self.dependency(index)).collect(),
            command: self.options.command,
            program: self.options.program,
            findings: Vec::new(),
        }
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
