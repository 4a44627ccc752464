//! Waiting for conditions: looks in threads that may hang, decisions by `course`, the end by a
//! deadline or a signal. It returns what became of each; running a program then is its caller's.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use horolog_record::{AFTER_SCHEMA, AfterEnd, AfterResult, Dependency, Host, rfc3339_now};

use crate::condition::{Condition, Sight};
use crate::course::{Backoff, Change, Course, Known};
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

/// Waits until all conditions hold, the deadline has passed or a signal comes. `tell` hears of each
/// change. Looks that still hang at the end are left behind: end the process soon.
///
/// # Errors
///
/// The system gives no thread.
pub fn wait(options: WaitOptions, tell: impl Fn(&Dependency, Change)) -> io::Result<Waited> {
    let started = rfc3339_now();
    let start = Instant::now();
    let (sender, events) = mpsc::channel();
    let _signals = Signals::watch(sender.clone(), Event::Signal)?;
    let conditions: Vec<_> = options.conditions.iter().cloned().map(Arc::new).collect();
    let due = conditions.iter().map(|condition| match **condition {
        Condition::Delay(time) => time,
        _ => Duration::ZERO,
    });
    let mut course = Course::new(due, options.backoff);
    let (end, signal) = loop {
        let now = start.elapsed();
        if course.is_done(now) {
            break (AfterEnd::Held, None);
        }
        if options.deadline.is_some_and(|deadline| now >= deadline) {
            break (AfterEnd::Deadline, None);
        }
        for index in course.take_due(now) {
            look(index, &conditions[index], start, options.patience, &sender)?;
        }
        let until = [course.next_due(), options.deadline].into_iter().flatten().min();
        let until = until.unwrap_or(Duration::MAX).saturating_sub(start.elapsed());
        match events.recv_timeout(until.min(Duration::from_hours(1))) {
            Ok(Event::Saw(index, sight)) => {
                let change = course.saw(index, start.elapsed(), sight);
                if let Some(change) = change {
                    tell(&dependency(&conditions[index], &course.known()[index]), change);
                }
            }
            Ok(Event::Signal(came)) => break (AfterEnd::Interrupted, Some(came)),
            // This thread holds a sender itself, so the channel is never closed.
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
    };
    let known = conditions.iter().zip(course.known());
    let result = AfterResult {
        schema: AFTER_SCHEMA.to_owned(),
        started,
        command: options.command,
        host: Host::read(),
        deadline_ns: options.deadline.map(ns),
        waited_ns: ns(start.elapsed()),
        end,
        dependencies: known.map(|(condition, known)| dependency(condition, known)).collect(),
        program: options.program,
        findings: Vec::new(),
    };
    Ok(Waited { result, signal })
}

/// Looks in a thread of its own.
fn look(
    index: usize,
    condition: &Arc<Condition>,
    start: Instant,
    patience: Duration,
    to: &Sender<Event>,
) -> io::Result<()> {
    let (condition, to) = (Arc::clone(condition), to.clone());
    let look = move || {
        let sight = condition.look(start.elapsed(), patience);
        // Nobody listens any more where the wait is over.
        let _ = to.send(Event::Saw(index, sight));
    };
    thread::Builder::new().name("look".into()).spawn(look).map(drop)
}

fn dependency(condition: &Condition, known: &Known) -> Dependency {
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

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
